//! SIGKILL for all that is below our children, in one look at the numbers that were given out since they were started.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::process::PidfdFlags;

use super::handle::Handle;
use super::pid_counter::numbers_since;
use super::pidfd_info::{ask, info, numbers_in, uids_in};
use super::user::LimitedUser;
use crate::sys::unix::child::{ChildState, child_state};
use crate::sys::unix::group::Group;
use crate::sys::unix::pid::{Pid, group_of};

/// Why a pid belongs to a process of the call; it can be checked whether that is still so.
enum Evidence {
    /// Our unreaped child.
    Child,
    /// In the pinned group.
    Member,
    /// Below another process of the call; the pidfd was open before that was shown.
    Below(OwnedFd),
}

impl Evidence {
    fn holds(&self, pid: Pid, group: Option<&Group>) -> bool {
        match self {
            Evidence::Child => child_state(pid) != ChildState::NotOurs,
            Evidence::Member => group.is_some_and(|group| group.has(pid)),
            // Until it is reaped no other process gets its pid.
            Evidence::Below(fd) => info(fd).is_some_and(|(own, _)| own == pid.raw()),
        }
    }
}

/// What [`kill_below`] has found.
#[derive(Default)]
pub struct Killed {
    /// Processes that were sent SIGKILL.
    pub signalled: Vec<Pid>,
    /// Set-uid programs, which were left alone.
    pub shared: Vec<(Pid, Handle)>,
}

/// Sends SIGKILL to everything below `children` that is not in the group, by a look at every number given out since
/// `first`, which is about a tenth of what the process table costs for each. What is not this `user`'s alone is left to
/// the caller, members of the group as well.
///
/// A process is signalled through a pidfd whose parent, by the kernel's answer, has a pid that is already known to be
/// one of the call, and only if that pid then still belongs to the same process. Parents mostly have the lower pid; a
/// process that is missed is found in a later pass. `None` where the kernel has no such answer, or there are too many
/// pids.
pub fn kill_below(
    children: impl Iterator<Item = Pid>,
    first: Pid,
    group: Option<&Group>,
    user: Option<&LimitedUser>,
) -> Option<Killed> {
    let numbers = numbers_since(first)?;
    let mut family: HashMap<Pid, Evidence> = children.map(|pid| (pid, Evidence::Child)).collect();
    let mut found = Killed::default();
    for pid in numbers {
        let Some(in_group) = group_of(pid) else { continue };
        if family.contains_key(&pid) {
            continue;
        }
        if group.is_some_and(|group| group.id() == in_group) {
            family.insert(pid, Evidence::Member);
            // Held first, and a member after that: so it is that process.
            if user.is_some_and(|user| user.shares(pid, None))
                && let Ok(handle) = Handle::open(pid)
                && group.is_some_and(|group| group.has(pid))
            {
                found.shared.push((pid, handle));
            }
            continue;
        }
        let fd = match rustix::process::pidfd_open(pid.rustix()?, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => return Some(found),
            Err(_) => continue,
        };
        let Some(answer) = ask(&fd) else {
            // It has died in between, or the kernel does not know the question.
            if io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
                continue;
            }
            return None;
        };
        let (own, parent) = numbers_in(&answer);
        let evidence = Pid::new(parent).and_then(|parent| Some((parent, family.get(&parent)?)));
        if own == pid.raw()
            && let Some((parent, evidence)) = evidence
            && evidence.holds(parent, group)
        {
            if user.is_some_and(|user| uids_in(&answer).is_some_and(|uids| user.is_shared(uids))) {
                found.shared.extend(fd.try_clone().map(|fd| (pid, Handle::from_pidfd(fd))));
            } else if rustix::process::pidfd_send_signal(fd.as_fd(), rustix::process::Signal::KILL).is_ok() {
                found.signalled.push(pid);
            }
            family.insert(pid, Evidence::Below(fd));
        }
    }
    Some(found)
}
