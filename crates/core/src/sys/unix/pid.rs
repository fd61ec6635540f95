//! Process ids, and what the kernel answers by them: session and group.
#![expect(unsafe_code, reason = "rustix takes no answer that is 0, which means outside of our pid namespace")]

/// A process id that can name a process other than init: never 1, 0 or negative, so that no signal sent to it
/// can turn into a broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid(i32);

impl Pid {
    /// The id, unless it is 1 or less.
    pub fn new(raw: i32) -> Option<Pid> {
        (raw > 1).then_some(Pid(raw))
    }

    /// Our own. `None` as process 1 of a pid namespace, since a `Pid` is one that may be signalled.
    pub fn own() -> Option<Pid> {
        Pid::new(std::process::id() as i32)
    }

    /// The number, for the system.
    pub fn raw(self) -> i32 {
        self.0
    }

    pub(in crate::sys) fn rustix(self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(self.0)
    }
}

/// Whether the pid is in use, if only by a zombie.
pub fn exists(pid: Pid) -> bool {
    // SAFETY: no memory is involved, and nothing is signalled.
    let group = unsafe { libc::getpgid(pid.0) };
    group != -1
}

/// The session of a process; None where that is outside of our pid namespace.
pub fn session_of(pid: Pid) -> Option<Pid> {
    // SAFETY: no memory is involved, and nothing is signalled.
    Pid::new(unsafe { libc::getsid(pid.0) })
}

/// Whether a process is in our session. Wrong where both sessions are from outside of our pid namespace: they show as
/// 0.
pub fn is_in_our_session(pid: Pid) -> bool {
    // SAFETY: no memory is involved, and nothing is signalled.
    let own = unsafe { libc::getsid(0) };
    // SAFETY: as above.
    own >= 0 && own == unsafe { libc::getsid(pid.0) }
}

/// Whether we lead a session: the kernel sends SIGHUP at the terminal's hang-up to its leader alone.
pub fn leads_session() -> bool {
    // SAFETY: cannot fail, and no memory is involved.
    let session = unsafe { libc::getsid(0) };
    session == std::process::id() as i32
}

/// Moves to a session of our own, out of the terminal's. With a parent in the terminal's session the command's group
/// would not count as orphaned when its shell is gone: ^Z would stop it for ever (setpgid(2), tty_ioctl(2)).
pub fn leave_session() {
    let _ = rustix::process::setsid();
}

/// The process group of a process, zombies included. It does not allow a signal: the group has to be pinned first.
pub fn group_of(pid: Pid) -> Option<Pid> {
    // SAFETY: no memory is involved, and nothing is signalled.
    let group = unsafe { libc::getpgid(pid.0) };
    Pid::new(group)
}

/// Our own process group; None where it is outside of our pid namespace.
pub fn own_group() -> Option<Pid> {
    // SAFETY: cannot fail, and no memory is involved.
    Pid::new(unsafe { libc::getpgrp() })
}

/// Whether we lead a group of our own, and so are in no other.
pub fn leads_own_group() -> bool {
    own_group().is_some() && own_group() == Pid::own()
}

/// Moves to a group of our own. Whether we are in it.
pub fn leave_group() -> bool {
    let _ = rustix::process::setpgid(None, None);
    leads_own_group()
}

/// Makes a child that has not executed a program yet the leader of a group of its own (setpgid(2)).
pub fn give_group(pid: Pid) {
    let _ = rustix::process::setpgid(pid.rustix(), pid.rustix());
}
