//! The descriptors of this process, all of them.
#![expect(unsafe_code, reason = "close_range, and descriptors by number, have no safe wrapper")]

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use rustix::pipe::PipeFlags;

/// A pipe, close-on-exec: its end to read from, and its end to write to.
pub fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?)
}

/// Every descriptor that is open now. Called before this process has opened any.
pub fn open_descriptors() -> Vec<i32> {
    let listed: Vec<i32> = match fs::read_dir("/proc/self/fd") {
        Ok(entries) => {
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        }
        Err(_) => (0..256).collect(),
    };
    // The listing's own descriptor is closed by now.
    // SAFETY: F_GETFD changes nothing and fails on a number that is not open.
    listed.into_iter().filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).collect()
}

pub(super) fn close_from(first: u32) {
    // SAFETY: called before this process has made any descriptor of its own from `first` on.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9, or a filter that refuses close_range.
    let highest =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(65_536).min(65_536);
    for fd in first..highest as u32 {
        // SAFETY: as above.
        unsafe { libc::close(fd as i32) };
    }
}
