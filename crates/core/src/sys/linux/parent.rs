//! Our parent, and its end.

use std::os::fd::OwnedFd;

use rustix::process::PidfdFlags;

use super::handle::Handle;

/// A handle of our parent. `None`: it is gone, or the kernel has no pidfds.
pub fn handle_of_parent() -> Option<Handle> {
    Parent::watch()?.pidfd.map(Handle::from_pidfd)
}

/// Our parent, and how its end is seen: by a pidfd, or where that is refused by a look at its number now and then. Not
/// by the parent-death signal, which fires when the *thread* that started us ends (prctl(2)), and not by the number 1,
/// which a parent may have.
pub struct Parent {
    number: i32,
    pidfd: Option<OwnedFd>,
}

impl Parent {
    /// Its number now; 0 where it is outside of our pid namespace.
    pub fn number() -> i32 {
        rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get())
    }

    /// None if the parent is gone, or outside our pid namespace.
    pub fn watch() -> Option<Parent> {
        let parent = rustix::process::getppid()?;
        let pidfd = rustix::process::pidfd_open(parent, PidfdFlags::empty()).ok();
        // Only now is it known to be a pidfd of our parent, and not of a process that has got its pid since.
        let number = parent.as_raw_nonzero().get();
        (Parent::number() == number).then_some(Parent { number, pidfd })
    }

    /// To be polled: readable when it is gone.
    pub(super) fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }

    /// True once we have been re-parented.
    pub fn is_gone(&self) -> bool {
        Parent::number() != self.number
    }
}
