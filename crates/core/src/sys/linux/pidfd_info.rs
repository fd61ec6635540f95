//! What the kernel reports of the process behind a pidfd.
#![expect(unsafe_code, reason = "the ioctl has no safe wrapper")]

use std::os::fd::{AsFd, AsRawFd};

/// What the kernel reports of the process behind a pidfd (PIDFD_GET_INFO, Linux 6.13): struct pidfd_info in its first
/// size, which is mask and cgroup id (64 bits each), pid, tgid, ppid, then real, effective and saved ids, of user and
/// group in turn, and more.
pub(super) fn ask(fd: impl AsFd) -> Option<[u32; 16]> {
    const GET_INFO: libc::Ioctl = 0xC040_FF0B_u32 as libc::Ioctl;
    let mut info = [0u32; 16];
    info[0] = OF_PIDS | OF_IDS;
    // SAFETY: the request's number has a size of 64 bytes, and as many are valid for writes.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), GET_INFO, info.as_mut_ptr()) };
    (result == 0).then_some(info)
}

/// PIDFD_INFO_PID and PIDFD_INFO_CREDS: what is asked for, and what the answer holds.
const OF_PIDS: u32 = 1;
const OF_IDS: u32 = 2;

/// Pid and parent of the process behind a pidfd. `None` where the kernel does not report them.
pub(super) fn info(fd: impl AsFd) -> Option<(i32, i32)> {
    ask(fd).as_ref().map(numbers_in)
}

pub(super) fn numbers_in(info: &[u32; 16]) -> (i32, i32) {
    (info[5] as i32, info[6] as i32)
}

/// Real, effective and saved user id of the process behind a pidfd. `None` where the kernel does not report them.
pub(super) fn uids_behind(fd: impl AsFd) -> Option<[u32; 3]> {
    uids_in(&ask(fd)?)
}

pub(super) fn uids_in(info: &[u32; 16]) -> Option<[u32; 3]> {
    (info[0] & OF_IDS != 0).then_some([info[7], info[9], info[11]])
}
