//! Each process killed at each step: it stops itself there (cargo feature `stops`), and so is where it is meant to be.

mod gate;
mod guard;
mod starter;

use rustix::process::Signal;

use crate::common::{Watched, stat, until};

const POINT: &str = "HOLDFAST_STOP";

fn await_stop(process: &Watched, point: &str) {
    until(&format!("a stop at {point}"), || stat(process.pid).first().is_some_and(|state| state == "T"));
}

/// Who is in a group that has just been orphaned is sent this by the kernel, and may be gone by now.
fn go_on(process: &Watched) {
    process.signal(Signal::CONT);
}
