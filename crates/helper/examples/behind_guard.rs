//! Starts a command as its own child behind a guard, waits for it, and lets the guard end the rest:
//! `behind_guard [--twice | --closed] <helper> <program> [args...]`. Prints a line for each step.
//!
//! `--twice`: two threads do so, several times at the same time. `--closed`: without standard input and output; the
//! command has the output all the same.

#![deny(unsafe_code)]

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use holdfast_core::host::gate::{NotRun, start_behind_guard};
use holdfast_core::roles::guard::GuardOptions;
use holdfast_core::sys;
use holdfast_core::wire::{Background, Lifetime, NO_DESCRIPTOR, Spec};

/// Ends the process when the threads of `--twice` wait for each other.
const PATIENCE: Duration = Duration::from_secs(8);
const ROUNDS: usize = 10;

fn main() -> ExitCode {
    let mut args: Vec<_> = std::env::args_os().skip(1).collect();
    let option = args.first().filter(|arg| *arg == "--twice" || *arg == "--closed").cloned();
    args.drain(..usize::from(option.is_some()));
    let Ok(output) = rustix::io::dup(rustix::stdio::stdout()).map(File::from) else {
        return ExitCode::FAILURE;
    };
    match option.as_ref().and_then(|option| option.to_str()) {
        Some("--twice") => twice(&args, output),
        Some(_) => {
            let Ok(directory) = File::open(".") else { return ExitCode::FAILURE };
            let Ok(passed) = output.try_clone() else { return ExitCode::FAILURE };
            close_input_and_output();
            start(&args, &[directory.into(), passed.into()], &[1, 1, 1], &output)
        }
        None => {
            let Ok(directory) = File::open(".") else { return ExitCode::FAILURE };
            start(&args, &[directory.into()], &[], &output)
        }
    }
}

/// The next two descriptors of this process get their numbers.
#[expect(unsafe_code, reason = "the standard library closes neither of them")]
fn close_input_and_output() {
    // SAFETY: nothing here uses it any more.
    unsafe { rustix::io::close(0) };
    // SAFETY: likewise.
    unsafe { rustix::io::close(1) };
}

fn twice(args: &[OsString], output: File) -> ExitCode {
    let (done, all) = mpsc::channel();
    for _ in 0..2 {
        let (args, done) = (args.to_vec(), done.clone());
        let Ok(output) = output.try_clone() else { return ExitCode::FAILURE };
        std::thread::spawn(move || {
            for _ in 0..ROUNDS {
                let Ok(directory) = File::open(".") else { return };
                start(&args, &[directory.into()], &[], &output);
            }
            let _ = done.send(());
        });
    }
    match [all.recv_timeout(PATIENCE), all.recv_timeout(PATIENCE)] {
        [Ok(()), Ok(())] => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn start(args: &[OsString], descriptors: &[OwnedFd], places: &[u8], mut output: &File) -> ExitCode {
    // At once: another thread writes as well.
    let mut say = |text: &str| drop(output.write_all(format!("{text}\n").as_bytes()));
    let [helper, program, ..] = args else {
        say("usage: behind_guard [--twice | --closed] <helper> <program> [args...]");
        return ExitCode::from(64);
    };
    let joined = args[1..].iter().map(|arg| arg.as_bytes()).collect::<Vec<_>>().join(&0);
    let spec = Spec {
        file: program.as_bytes(),
        args: &joined,
        env: &sys::environment(),
        cwd: b"",
        places,
        descriptors: descriptors.len() as u32,
        umask: None,
        nice: 0,
        nofile: u64::MAX,
        uid: None,
        gid: None,
        lifetime: Lifetime {
            timeout: 0,
            kill_signal: 15,
            grace: 0,
            background: Background::End,
            background_grace: 0,
            background_settle: 0,
        },
        same_group: false,
        detached: false,
        cwd_is_open: false,
        program: NO_DESCRIPTOR,
    };
    let options = GuardOptions { helper: Path::new(helper), end_on_exit: true, grace: 0 };
    match start_behind_guard(&spec, descriptors, &options) {
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
