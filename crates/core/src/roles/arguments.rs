//! What the hidden modes' command lines have in common.

use std::ffi::{OsStr, OsString};
use std::slice::Iter;

/// The number that follows an option.
pub fn number_after(option: &OsStr, rest: &mut Iter<'_, OsString>, least: i32) -> Result<i32, String> {
    let shown = rest.next().map_or_else(String::new, |value| value.to_string_lossy().into_owned());
    number_from(least, &shown).ok_or_else(|| {
        format!("'{}' needs a number from {least} on, not '{shown}'", option.to_string_lossy())
    })
}

/// Digits and nothing else.
pub fn number_from(least: i32, text: &str) -> Option<i32> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number: &i32| digits && number >= least)
}
