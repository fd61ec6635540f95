//! The gate: a command that must be a child of the host itself is not executed before its guard is ready.
//!
//! The new process waits between fork and exec, in a group of its own, at a pipe whose only write end is the starting
//! process's. The guard joins the group, pins it, leaves it and reports that; then one byte opens the gate. If the
//! starting process dies before that, the pipe ends, and the new process exits without having executed the program.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use holdfast_wire::{Spec, Step, ToKeeper};

use crate::roles::guard::{GuardOptions, start_guard};
use crate::sys::stops::stop;
use crate::sys::{
    self, ChildState, Failure, Gate, Grouping, Handle, PASSED, Pid, Placement, Plan, StartContext, Wait,
};

/// Time limit for the guard's first line.
const READY: Duration = Duration::from_secs(5);

/// A command that runs, and the guard of its group. When this is dropped the guard ends the group.
#[derive(Debug)]
pub struct Gated {
    /// The command: a child of the caller, to be waited for there.
    pub pid: Pid,
    /// The guard: also a child of the caller, to be waited for there.
    pub guard: Pid,
    /// To the guard; its end is the host's (see [`guard`](crate::roles::guard)).
    pub control: OwnedFd,
}

/// Why nothing was run.
#[derive(Debug)]
pub enum NotRun {
    /// The process could not be made, or the program not be executed.
    NotStarted {
        /// What failed.
        step: Step,
        /// The system's error.
        error: io::Error,
    },
    /// The new process does not lead a group of its own.
    NotALeader,
    /// The guard could not be started, or could not hold the group.
    NoGuard(io::Error),
}

/// Starts a command as a child of this process, behind a guard. A place of stdio without a descriptor stays as this
/// process has it; the first descriptor is the working directory.
///
/// The caller's other threads must not wait for children that are not theirs.
pub fn start_behind_guard(
    spec: &Spec<'_>,
    descriptors: &[OwnedFd],
    options: &GuardOptions<'_>,
) -> Result<Gated, NotRun> {
    let not_started = |error: io::Error| NotRun::NotStarted { step: Step::Helper, error };
    let mut bytes = Vec::new();
    ToKeeper::put_spec(&mut bytes, spec).map_err(|unfit| NotRun::from(Failure::from(unfit)))?;
    let Some(spec) = ToKeeper::spec_in(&bytes) else {
        return Err(not_started(io::ErrorKind::InvalidInput.into()));
    };
    let (read, write) = sys::gate().map_err(not_started)?;
    let context = StartContext {
        grouping: Grouping::Own,
        gate: Some(Gate { read: read.as_fd(), write: write.as_fd() }),
        ..StartContext::default()
    };
    let mut plan = Box::new(Plan::new(spec, descriptors, &context).map_err(not_started)?);
    let started = sys::fork_gated(&mut plan).map_err(not_started)?;
    stop("gate-forked");
    let pid = started.pid;
    // Our unreaped child, by a descriptor: this process may have other threads.
    let handle = Handle::open(pid).map_err(NotRun::NoGuard);
    let opened = handle.and_then(|handle| {
        let opened = open_behind_guard(pid, &handle, &write, options);
        if opened.is_err() {
            let _ = handle.signal(sys::SIGKILL);
        }
        opened.map(|gated| (gated, handle))
    });
    // Shut, if it was not opened: then the new process leaves, if it lives.
    drop(write);
    match opened {
        Ok((gated, handle)) => match outcome(&started.status, &handle) {
            None => Ok(gated),
            Some(failure) => {
                // The guard has no process to end any more, and leaves at the end of its control pipe.
                drop(gated.control);
                reap_when_dead(gated.guard);
                reap_when_dead(pid);
                Err(failure.into())
            }
        },
        Err(refused) => {
            reap_when_dead(pid);
            // It may have failed by itself before the gate.
            Err(failure_in(&status_bytes(&started.status).0).map_or(refused, NotRun::from))
        }
    }
}

impl From<Failure> for NotRun {
    fn from(Failure { step, errno }: Failure) -> NotRun {
        NotRun::NotStarted { step, error: io::Error::from_raw_os_error(errno) }
    }
}

fn open_behind_guard(
    pid: Pid,
    handle: &Handle,
    gate: &OwnedFd,
    options: &GuardOptions<'_>,
) -> Result<Gated, NotRun> {
    // The new process does the same; the order does not matter.
    sys::give_group(pid);
    if sys::group_of(pid) != Some(pid) || sys::child_state(pid) != ChildState::Alive {
        return Err(NotRun::NotALeader);
    }
    stop("gate-grouped");
    let (guard, control) =
        start_guard(options, pid, handle, Placement::Group(pid), false).map_err(NotRun::NoGuard)?;
    stop("gate-guarded");
    let ready = await_ready(&control);
    stop("gate-ready");
    // The guard may have died after its line.
    let ready = ready.and_then(|()| match sys::child_state(guard) {
        ChildState::Alive => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    });
    if let Err(error) = ready {
        drop(control);
        // Our unreaped child: it may hang, or be no guard.
        if let Ok(guard) = Handle::open(guard) {
            let _ = guard.signal(sys::SIGKILL);
        }
        reap_when_dead(guard);
        return Err(NotRun::NoGuard(error));
    }
    // Whether the new process was there to read it is seen by its status.
    let _ = sys::write(gate, &[1]);
    stop("gate-open");
    Ok(Gated { pid, guard, control })
}

/// Reads the guard's first line.
fn await_ready(control: &OwnedFd) -> io::Result<()> {
    const LONGEST: usize = 64;
    let deadline = Instant::now() + READY;
    let mut line = Vec::new();
    while !line.ends_with(b"\n") && line.len() < LONGEST {
        let mut wait = Wait::new();
        wait.readable(control);
        if !wait.until(Some(deadline)).has_any() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let mut byte = [0];
        match sys::read(control, &mut byte) {
            Ok(1) => line.push(byte[0]),
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Err(error) => return Err(error),
        }
    }
    if line.starts_with(b"ready ") {
        Ok(())
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&line).trim_end().to_owned()))
    }
}

/// What is in the status pipe by now, and whether it has ended.
fn status_bytes(status: &OwnedFd) -> (Vec<u8>, bool) {
    let mut read = Vec::new();
    let mut bytes = [0; 16];
    loop {
        match sys::read(status, &mut bytes) {
            Ok(0) => return (read, true),
            Ok(count) => read.extend_from_slice(&bytes[..count]),
            Err(error) => return (read, error.kind() != io::ErrorKind::WouldBlock),
        }
    }
}

fn failure_in(status: &[u8]) -> Option<Failure> {
    status.strip_prefix(&PASSED).unwrap_or(status).try_into().ok().map(Failure::decode)
}

/// Why the program was not executed, if it was not. Not the pipe's end alone: other code in this process that forks may
/// hold its other end for any time.
fn outcome(status: &OwnedFd, new: &Handle) -> Option<Failure> {
    let deadline = Instant::now() + READY;
    let mut bytes = Vec::new();
    loop {
        let has_ended = new.has_ended();
        let (more, is_over) = status_bytes(status);
        bytes.extend(more);
        if let Some(failure) = failure_in(&bytes) {
            return Some(failure);
        }
        if is_over || has_ended || Instant::now() >= deadline {
            // Past the gate and without a failure; or it died at its gate.
            let died = Failure { step: Step::Helper, errno: sys::ESRCH };
            return (!bytes.starts_with(&PASSED)).then_some(died);
        }
        let mut wait = Wait::new();
        wait.readable(status);
        wait.exit(new);
        wait.until(Some(deadline));
    }
}

/// Waits for a dying child and reaps it.
fn reap_when_dead(pid: Pid) {
    sys::await_end(pid);
    sys::reap(pid);
}
