//! Which processes our user id lets us signal, where that matters.
//!
//! kill(2): the real or effective user id of the sender must be the real or saved one of the receiver. A set-uid
//! program keeps the real one of the process that executed it, and so accepts our signals; what it starts may have none
//! of our ids, and does not. With CAP_KILL, and in a user namespace that we have made, no process refuses.
#![expect(unsafe_code, reason = "prlimit that only asks has no safe wrapper")]

use std::fs;

use rustix::thread::CapabilitySet;

use super::handle::Handle;
use super::identity::own_uids;
use super::pidfd_info::uids_behind;
use super::proc_fs;
use crate::sys::unix::pid::Pid;

/// Our user, where that limits which processes we may signal.
#[derive(Debug)]
pub struct LimitedUser {
    /// Real, effective and saved.
    own: [u32; 3],
    /// We may ask for the limits of processes with other ids, too.
    sees_all_limits: bool,
}

impl LimitedUser {
    /// `None` where every process may be signalled (CAP_KILL).
    pub fn now() -> Option<LimitedUser> {
        let capabilities =
            rustix::thread::capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        let sees_all_limits = capabilities.contains(CapabilitySet::SYS_RESOURCE);
        let is_limited = !capabilities.contains(CapabilitySet::KILL);
        is_limited.then(|| LimitedUser { own: own_uids(), sees_all_limits })
    }

    /// Whether a process of ours also runs with the identity of another user: a set-uid program. False where that is
    /// not known. `handle`: if there is one, it is that of the process with this pid.
    ///
    /// Nearly always one prlimit(2), which is answered where all ids of the process, of user and group, are our real
    /// ones.
    pub fn shares(&self, pid: Pid, handle: Option<&Handle>) -> bool {
        if !self.sees_all_limits && may_ask_for_limits(pid) {
            return false;
        }
        let opened = if handle.is_none() { Handle::open(pid).ok() } else { None };
        let Some(handle) = handle.or(opened.as_ref()) else { return false };
        match uids_behind(handle).or_else(|| uids_by_table(pid)) {
            Some(uids) => self.is_shared(uids),
            // /proc does not show its ids (hidepid). It may be a set-gid program.
            None => {
                !self.sees_all_limits
                    && handle.signal(0).is_ok()
                    && Pid::own().is_some_and(may_ask_for_limits)
            }
        }
    }

    pub(super) fn is_shared(&self, [real, effective, saved]: [u32; 3]) -> bool {
        let is_ours = |uid| self.own.contains(&uid);
        (is_ours(real) || is_ours(saved)) && !(is_ours(real) && is_ours(effective) && is_ours(saved))
    }
}

/// An answer and no more, of a process that may have ended.
fn may_ask_for_limits(pid: Pid) -> bool {
    let mut limits = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: nothing is set, and `limits` is valid for writes.
    unsafe { libc::prlimit(pid.raw(), libc::RLIMIT_CORE, std::ptr::null(), &raw mut limits) == 0 }
}

fn uids_by_table(pid: Pid) -> Option<[u32; 3]> {
    if !proc_fs::is_ours() {
        return None;
    }
    uids_in(&fs::read_to_string(format!("/proc/{}/status", pid.raw())).ok()?)
}

/// Real, effective and saved user id, of /proc/pid/status.
fn uids_in(status: &str) -> Option<[u32; 3]> {
    let mut ids = proc_fs::in_status(status, "Uid")?.split_ascii_whitespace().map(|id| id.parse().ok());
    Some([ids.next()??, ids.next()??, ids.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_shared_if_it_accepts_our_signals_with_an_id_that_is_not_ours() {
        let user = LimitedUser { own: [1000; 3], sees_all_limits: false };
        assert!(user.is_shared([1000, 0, 0]));
        assert!(user.is_shared([1000, 1000, 0]));
        assert!(user.is_shared([0, 0, 1000]));
        assert!(!user.is_shared([1000, 1000, 1000]));
        // It refuses, or is in a user namespace of ours: what is below it is as it is itself.
        assert!(!user.is_shared([0, 0, 0]));
        assert!(!user.is_shared([0, 1000, 0]));
        let host = LimitedUser { own: [1000, 1001, 1001], sees_all_limits: false };
        assert!(!host.is_shared([1000, 1001, 1000]));
    }

    #[test]
    fn the_ids_are_the_first_three() {
        assert_eq!(uids_in("Name:\tUid: 7\nUid:\t1000\t0\t1\t2\nGid:\t5\t5\t5\t5\n"), Some([1000, 0, 1]));
        assert_eq!(uids_in("Name:\tx\n"), None);
        assert_eq!(uids_in("Uid:\t1000\n"), None);
    }
}
