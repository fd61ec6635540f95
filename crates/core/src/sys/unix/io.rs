//! Reading and writing, pipes, and the modes of descriptors.

use std::io;
use std::os::fd::AsRawFd;
pub use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec};

pub use rustix::stdio::{stderr, stdin, stdout};

/// read(2), in whatever mode the descriptor is.
pub fn read(fd: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::read(&fd, &mut *into))?)
}

/// [`read`] without blocking, whatever mode the descriptor is in: `WouldBlock` when nothing is there.
pub fn read_now(fd: impl AsFd, into: &mut [u8]) -> io::Result<usize> {
    if is_readable(&fd) { read(fd, into) } else { Err(io::ErrorKind::WouldBlock.into()) }
}

/// Whether a read would not block: there is something, or the end.
pub fn is_readable(fd: impl AsFd) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut source = [PollFd::new(&fd, PollFlags::IN)];
    matches!(rustix::io::retry_on_intr(|| rustix::event::poll(&mut source, Some(&now))), Ok(1))
}

/// write(2), in whatever mode the descriptor is.
pub fn write(fd: impl AsFd, from: &[u8]) -> io::Result<usize> {
    Ok(rustix::io::retry_on_intr(|| rustix::io::write(&fd, from))?)
}

/// Reads and writes of this open file do not block from now on, in other processes that have it neither.
pub fn set_nonblocking(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::fs::fcntl_setfl(fd, rustix::fs::OFlags::NONBLOCK)?)
}

/// Bytes that are there to be read; 0 where that is not known.
pub fn pending(fd: impl AsFd) -> u32 {
    rustix::io::ioctl_fionread(fd).map_or(0, |bytes| u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// No more writing to a socket; its other end reads to the end. An error: it is no socket.
pub fn end_writing(socket: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, rustix::net::Shutdown::Write)?)
}

/// Neither reading nor writing of a socket, here and in other processes that have it.
pub fn shut(socket: impl AsFd) {
    let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Both);
}

/// The number of a descriptor, for JavaScript and for the new process, where it goes by that.
pub fn number_of(fd: impl AsFd) -> i32 {
    fd.as_fd().as_raw_fd()
}
