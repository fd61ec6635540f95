//! Messages of the helper's modes on standard error.

use std::io::{self, Write};
use std::time::Duration;

use crate::sys;

/// Prints `holdfast: …` on standard error; gives up after 1 s if it is not read.
pub fn say(text: &str) {
    if sys::await_writable(sys::stderr(), Duration::from_secs(1)) {
        let _ = writeln!(io::stderr(), "holdfast: {text}");
    }
}
