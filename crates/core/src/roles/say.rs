//! What the helper's modes say to whoever reads standard error.

use std::io::{self, Write};
use std::time::Duration;

use crate::sys;

/// Prints `holdfast: …` on standard error; gives up after a second if nobody reads.
pub fn say(text: &str) {
    // Nobody is kept waiting for a reader that does not read.
    if sys::await_writable(sys::stderr(), Duration::from_secs(1)) {
        let _ = writeln!(io::stderr(), "holdfast: {text}");
    }
}
