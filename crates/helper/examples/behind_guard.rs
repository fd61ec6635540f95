//! Starts a command as its own child behind a guard, waits for it, and lets the guard end the rest:
//! `behind_guard <helper> <program> [args...]`. Prints a line for each step.

#![forbid(unsafe_code)]

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;

use holdfast_core::gate::{NotRun, start_behind_guard};
use holdfast_core::guard::GuardOptions;
use holdfast_core::sys;
use holdfast_core::wire::{Background, Spec};

fn say(text: &str) {
    let _ = writeln!(io::stdout(), "{text}");
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let [helper, program, ..] = args.as_slice() else {
        say("usage: behind_guard <helper> <program> [args...]");
        return ExitCode::from(64);
    };
    let joined = args[1..].iter().map(|arg| arg.as_bytes()).collect::<Vec<_>>().join(&0);
    let Ok(directory) = std::fs::File::open(".") else { return ExitCode::FAILURE };
    let spec = Spec {
        file: program.as_bytes(),
        args: &joined,
        env: &sys::environment(),
        cwd: b"",
        places: &[],
        descriptors: 1,
        umask: None,
        nice: 0,
        nofile: u64::MAX,
        uid: None,
        gid: None,
        timeout: 0,
        kill_signal: 15,
        grace: 0,
        background: Background::End,
        background_grace: 0,
        same_group: false,
    };
    let options = GuardOptions { helper: Path::new(helper), sweep: true, grace: 0 };
    match start_behind_guard(&spec, &[directory.into()], &options) {
        Ok(gated) => {
            say(&format!("started {} {}", gated.pid.raw(), gated.guard.raw()));
            sys::await_end(gated.pid);
            let exit = sys::reap(gated.pid).map(|reaped| reaped.exit);
            sys::await_end(gated.guard);
            let guard = sys::reap(gated.guard).map(|reaped| reaped.exit);
            say(&format!("ended {exit:?} {guard:?}"));
            ExitCode::SUCCESS
        }
        Err(NotRun::NotStarted { step, error }) => {
            say(&format!("not started: {}: {error}", step.as_str()));
            ExitCode::from(2)
        }
        Err(NotRun::NotALeader) => {
            say("not a leader");
            ExitCode::from(3)
        }
        Err(NotRun::NoGuard(error)) => {
            say(&format!("no guard: {error}"));
            ExitCode::from(4)
        }
    }
}
