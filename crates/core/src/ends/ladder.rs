//! The times and signals of a ladder that all who end something have in common.

use std::time::Duration;

use crate::sys;

/// From the first SIGKILL until survivors are reported.
pub const BUDGET: Duration = Duration::from_secs(5);
/// How long a process that is asked to end is left alone, and how long one that refuses signals may take to exit by
/// itself after the last success, as sudo(8) does when its command or its terminal is gone.
pub const REFUSAL_GRACE: Duration = Duration::from_millis(500);

// The defaults of `holdfast run`, the starter and the guard, in milliseconds. Those of the API, in
// src/options/values.ts, are the same.
/// From the first signal to SIGKILL.
pub const GRACE: u64 = 2_000;
/// The same for what a command leaves at its exit.
pub const BACKGROUND_GRACE: u64 = 500;
/// How long that may go on working before it is signalled.
pub const SETTLE: u64 = 100;

/// Signals that begin the end of `holdfast run` and of the starter, and are its first signal. Every other one is passed on
/// to the command's first process, as if that had been started in their place.
pub const ENDS: [i32; 4] = [sys::SIGHUP, sys::SIGINT, sys::SIGQUIT, sys::SIGTERM];
