//! Descriptors that this process was started with: to take them on, and to let go of them.
#![expect(unsafe_code, reason = "descriptors by number have no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, Mode, OFlags};

/// /dev/null in place of these descriptors, which another process has now.
fn null(numbers: impl Iterator<Item = i32>) {
    let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
        return;
    };
    let null = std::os::fd::AsRawFd::as_raw_fd(&null);
    for fd in numbers {
        // SAFETY: `fd` is a descriptor that no owner in this process knows of.
        unsafe { libc::dup2(null, fd) };
    }
}

/// Closes what the command has now.
fn close_inherited(inherited: &[i32]) {
    for &fd in inherited.iter().filter(|&&fd| fd > 2) {
        // SAFETY: inherited, and no owner in this process knows of it.
        unsafe { libc::close(fd) };
    }
}

/// In a keeper that was forked by `holdfast run`: lets go of what the command has now.
pub fn stand_apart(inherited: &[i32]) {
    close_inherited(inherited);
    null(0..=2);
}

/// Standard input and output are the command's. Standard error stays for our own last message, unless it is to go as
/// well and is a pipe or socket, at whose other end a process may wait for the end.
pub fn let_go_of_stdio(inherited: &[i32], stderr_too: bool) {
    close_inherited(inherited);
    let waited_for = stderr_too && is_stream(rustix::stdio::stderr());
    null(0..=if waited_for { 2 } else { 1 });
}

/// Whether it is a pipe or a socket.
fn is_stream(fd: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstat(fd).map(|status| FileType::from_raw_mode(status.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}

/// The pipe or socket that we were started with under this number, close-on-exec. To be called once for each.
pub fn inherited_stream(number: i32) -> io::Result<OwnedFd> {
    let fd = inherited(number)?;
    if is_stream(fd.as_fd()) { Ok(fd) } else { Err(io::Error::from_raw_os_error(libc::ENOTSOCK)) }
}

/// Replaces standard error by /dev/null, so that no process waits for its end.
pub fn let_go_of_stderr() {
    null(2..=2);
}

/// Writes all of it to standard output, whatever mode that is in; gives up when its reader does not read for `limit`.
pub fn write_out(bytes: &[u8], limit: Duration) {
    // A pipe that takes something takes as much (pipe(7), PIPE_BUF), so that even a blocking one does not block.
    for mut part in bytes.chunks(libc::PIPE_BUF) {
        while !part.is_empty() && await_writable(rustix::stdio::stdout(), limit) {
            match rustix::io::write(rustix::stdio::stdout(), part) {
                Ok(count) => part = &part[count..],
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => (),
                Err(_) => return,
            }
        }
    }
}

/// Whether it takes something, or is broken, within this time.
pub fn await_writable(fd: BorrowedFd<'_>, limit: Duration) -> bool {
    let timeout = rustix::event::Timespec::try_from(limit).ok();
    let mut source = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut source, timeout.as_ref()));
    ready != Ok(0)
}

/// The descriptor that we were started with under this number, close-on-exec from now on. To be called once for each.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD fails on a number that is not open and changes nothing else.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: open, as just shown, and by the contract of this function it has no other owner in this process.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The control socket that the host put on descriptor 3, if it is one. To be called once.
pub fn inherited_control() -> Option<OwnedFd> {
    let control = inherited(3).ok()?;
    rustix::net::sockopt::socket_type(&control)
        .is_ok_and(|kind| kind == rustix::net::SocketType::STREAM)
        .then_some(control)
}

/// A copy of a descriptor that the host names by number, close-on-exec.
pub fn duplicate(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: fails on a number that is not open.
    let copy = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) };
    if copy < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a fresh descriptor without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Whether more than `count` descriptors may be opened beyond the number of this one.
pub fn are_free_beyond(fd: impl AsFd, count: u64) -> bool {
    let most = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    most.is_none_or(|most| (fd.as_fd().as_raw_fd() as u64).saturating_add(count) < most)
}

/// Raises our limit on open files as far as allowed. Only for a process that executes no program, which would inherit
/// it.
pub fn allow_all_descriptors() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, all);
}
