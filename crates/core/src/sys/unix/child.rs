//! Our children: looking at them, signalling them. The first of the two rules (docs/design) is kept here.
//!
//! Rule 1, pinned: [`kill_child`] signals a pid only after waitid(2) has shown, at that moment, that it is our
//! unreaped child. Helper and keepers have one thread and SIGCHLD at its default, so it cannot be reaped between
//! that answer and the signal. [`Group::signal`](super::group::Group::signal) does the same for the group's pin.
//! Everything else goes through a descriptor.
#![expect(unsafe_code, reason = "waitid with WNOWAIT and __WALL, and kill, have no safe wrapper")]

use std::io;
use std::mem::MaybeUninit;

use holdfast_wire::Exit;

use super::pid::Pid;

/// What waitid(2) reports of a pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChildState {
    /// Our child, alive.
    Alive,
    /// Our child, a zombie all of whose threads have ended.
    Exited(Exit),
    /// Not our child, or reaped.
    NotOurs,
}

/// What became of a signal to one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// Sent.
    Sent,
    /// It is a zombie; nothing was sent.
    Dead,
    /// It is not our child; nothing was sent.
    NotOurs,
    /// The system refused (a setuid program).
    Denied,
}

/// What waitid(2) reports of a child.
pub(in crate::sys) struct Waited {
    pub pid: Pid,
    pub exit: Exit,
    /// Such as `CLD_STOPPED`.
    pub code: i32,
}

/// What this call of waitid(2) reports. `Ok(None)`: children, but none in the state asked for.
pub(in crate::sys) fn waited(
    waitid: impl Fn(*mut libc::siginfo_t) -> libc::c_long,
) -> io::Result<Option<Waited>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    while waitid(info.as_mut_ptr()) != 0 {
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroed, which is a valid siginfo_t, and then written by the kernel.
    let info = unsafe { info.assume_init() };
    // SAFETY: waitid filled in the fields of a child's siginfo, or left the zeroes.
    let pid = unsafe { info.si_pid() };
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let Some(pid) = Pid::new(pid) else { return Ok(None) };
    let exit = if info.si_code == libc::CLD_EXITED { Exit::Code(status) } else { Exit::Signal(status) };
    Ok(Some(Waited { pid, exit, code: info.si_code }))
}

/// Without rusage, which is the greater part of what a look costs where the system call has it.
pub(in crate::sys) fn waitid(kind: libc::idtype_t, id: u32, options: i32) -> io::Result<Option<Waited>> {
    waited(|info| {
        // SAFETY: `info` is valid for writes for the length of the call.
        libc::c_long::from(unsafe { libc::waitid(kind, id, info, options) })
    })
}

/// Children of every kind, those that threads of ours have cloned among them.
#[cfg(target_os = "linux")]
pub(in crate::sys) const EVERY_CHILD: i32 = libc::__WALL;
#[cfg(not(target_os = "linux"))]
pub(in crate::sys) const EVERY_CHILD: i32 = 0;

pub(in crate::sys) const LOOK: i32 = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | EVERY_CHILD;

/// Whether the number is our unreaped child, and whether that lives. Takes nothing away.
pub fn child_state(pid: Pid) -> ChildState {
    state_of(waitid(libc::P_PID, pid.raw() as u32, LOOK))
}

pub(in crate::sys) fn state_of(answer: io::Result<Option<Waited>>) -> ChildState {
    match answer {
        Ok(None) => ChildState::Alive,
        Ok(Some(dead)) => ChildState::Exited(dead.exit),
        Err(_) => ChildState::NotOurs,
    }
}

/// Signals our live child (rule 1).
pub fn kill_child(pid: Pid, signal: i32) -> Kill {
    match child_state(pid) {
        ChildState::Alive => {
            // SAFETY: no memory is involved. Rule 1: `look` has just shown that `pid` is our unreaped child.
            let result = unsafe { libc::kill(pid.raw(), signal) };
            if result == 0 { Kill::Sent } else { Kill::Denied }
        }
        ChildState::Exited(_) => Kill::Dead,
        ChildState::NotOurs => Kill::NotOurs,
    }
}

/// Waits for the end of this child, and leaves it unreaped.
pub fn await_end(pid: Pid) -> bool {
    waitid(libc::P_PID, pid.raw() as u32, libc::WEXITED | libc::WNOWAIT | EVERY_CHILD).is_ok()
}

/// Shows a zombie child and leaves it.
pub fn peek_any() -> io::Result<Option<Pid>> {
    Ok(waitid(libc::P_ALL, 0, LOOK)?.map(|dead| dead.pid))
}

/// [`peek_any`], but not a pin, which has no exit signal (wait(2), `__WALL`) unless it had to be forked.
pub fn peek_adopted() -> io::Result<Option<Pid>> {
    Ok(waitid(libc::P_ALL, 0, LOOK & !EVERY_CHILD)?.map(|dead| dead.pid))
}

/// Consumes a pending stop notification of any child.
pub fn take_any_stop() -> Option<Pid> {
    let options = libc::WSTOPPED | libc::WNOHANG | EVERY_CHILD;
    waitid(libc::P_ALL, 0, options).ok().flatten().map(|stopped| stopped.pid)
}

/// Consumes a pending stop notification; true if there was one.
pub fn take_stop(pid: Pid) -> bool {
    let options = libc::WSTOPPED | libc::WNOHANG | EVERY_CHILD;
    matches!(waitid(libc::P_PID, pid.raw() as u32, options), Ok(Some(child)) if child.code == libc::CLD_STOPPED)
}

/// Consumes a pending continue notification; true if there was one.
pub fn take_continue(pid: Pid) -> bool {
    let options = libc::WCONTINUED | libc::WNOHANG | EVERY_CHILD;
    matches!(waitid(libc::P_PID, pid.raw() as u32, options), Ok(Some(child)) if child.code == libc::CLD_CONTINUED)
}
