//! Forking.
#![expect(unsafe_code, reason = "fork has no safe wrapper")]

use std::io;

use super::pid::Pid;

/// The two sides of a fork.
pub enum Forked {
    /// We are the new process.
    Child,
    /// We are the old one.
    Parent(Pid),
}

/// fork(2). A failure never becomes a number.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: the helper has one thread, so the child may go on running any code.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => Ok(Forked::Child),
        _ => Pid::new(pid).map(Forked::Parent).ok_or_else(io::Error::last_os_error),
    }
}
