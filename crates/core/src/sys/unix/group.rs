//! Process groups: the one that a pin of ours holds, and that of a terminal.
//!
//! Rule 2, outside (docs/design): [`Group::signal`] compares the group with our own before it signals.
#![expect(
    unsafe_code,
    reason = "kill with a group's number, and groups with the number 0, have no safe wrapper"
)]

use std::io;

use super::child::{ChildState, child_state};
use super::pid::{Pid, group_of, own_group};

/// A process group whose number is held by a pin.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    id: Pid,
    pin: Pid,
}

impl Group {
    /// The group `id`, held by `pin`, an unreaped child of ours that is (or is about to become) a member.
    pub fn new(id: Pid, pin: Pid) -> Group {
        Group { id, pin }
    }

    /// The group's number.
    pub fn id(&self) -> Pid {
        self.id
    }

    /// Whether the number is the group's: the pin is an unreaped child of ours and a member.
    fn is_held(&self) -> bool {
        child_state(self.pin) != ChildState::NotOurs && group_of(self.pin) == Some(self.id)
    }

    /// Whether a process is a member. That the number is the group's is shown after the look at the process.
    pub fn has(&self, pid: Pid) -> bool {
        group_of(pid) == Some(self.id) && self.is_held()
    }

    /// Signals the group, if at this moment the pin is an unreaped child of ours and a member (rule 1), and we are not
    /// (rule 2).
    pub fn signal(&self, signal: i32) -> Delivery {
        if !self.is_held() || own_group() == Some(self.id) {
            return Delivery::Refused;
        }
        // SAFETY: no memory is involved. Rules 1 and 2 have just been checked; `id` is 2 or more, so the minus
        // sign names one group.
        let result = unsafe { libc::kill(-self.id.raw(), signal) };
        Delivery::from_result(if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) })
    }
}

/// What became of a signal to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// To one at least (zombies count).
    Sent,
    /// The group has no member.
    Empty,
    /// The system refused it for every member.
    Denied,
    /// Nothing was sent: the group is not held, or we are in it.
    Refused,
}

impl Delivery {
    pub(in crate::sys) fn from_result(result: io::Result<()>) -> Delivery {
        match result.map_err(|error| error.raw_os_error()) {
            Ok(()) => Delivery::Sent,
            Err(Some(libc::ESRCH)) => Delivery::Empty,
            Err(Some(libc::EPERM)) => Delivery::Denied,
            Err(_) => Delivery::Refused,
        }
    }
}

/// The group that a command shares with the process that was started in the terminal. Nothing is signalled by it, so it
/// may be 1, as in a container, and 0 if its leader is outside of our pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalGroup(pub(super) i32);

impl TerminalGroup {
    /// Our own group.
    pub fn own() -> TerminalGroup {
        // SAFETY: cannot fail, and no memory is involved.
        TerminalGroup(unsafe { libc::getpgrp() })
    }

    /// Whether a process is in it, zombies included.
    pub fn has(self, pid: Pid) -> bool {
        // SAFETY: no memory is involved, and nothing is signalled.
        self.0 == unsafe { libc::getpgid(pid.raw()) }
    }
}
