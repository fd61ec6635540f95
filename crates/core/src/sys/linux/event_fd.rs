//! A counter that two processes share (eventfd(2)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

/// A counter that processes share. It has no frames to be cut and no buffer to be full, and what a process has added is
/// there after its death.
pub struct Counter(OwnedFd);

impl Counter {
    /// A new one, at zero.
    pub fn new() -> io::Result<Counter> {
        Ok(Counter(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// A counter that another process has shared.
    pub fn from_descriptor(fd: OwnedFd) -> Counter {
        Counter(fd)
    }

    /// A descriptor of the same counter, for another process.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Adds to it.
    pub fn add(&self, count: u64) -> io::Result<()> {
        rustix::io::write(&self.0, &count.to_ne_bytes())?;
        Ok(())
    }

    /// What was added since the last time.
    pub fn take(&self) -> u64 {
        let mut bytes = [0; 8];
        rustix::io::read(&self.0, &mut bytes).map_or(0, |_| u64::from_ne_bytes(bytes))
    }
}

impl AsFd for Counter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
