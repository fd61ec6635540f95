//! The commitment: a counter to which a keeper adds that it is about to start the command, and the new process its
//! pid, when its group exists.
//!
//! It is apart from the control socket so that it does not wake the host, which looks when the pid is asked for, and
//! when the socket has ended. A counter has no frames to be cut and no buffer to be full, and what was added before the
//! keeper died is there after. The host takes the count at the end of every call.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::sys::Counter;

const COMMITTED: u64 = 1 << 32;

/// One end of it, the keeper's or the host's.
pub struct Commitment(Counter);

/// What the count shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StartProgress {
    /// The clone was about to be made: from here on it is not known that nothing ran.
    pub committed: bool,
    /// The command's pid.
    pub pid: Option<i32>,
}

impl Commitment {
    /// A new one, at zero.
    pub fn new() -> io::Result<Commitment> {
        Ok(Commitment(Counter::new()?))
    }

    /// The host's end, as received.
    pub fn from_descriptor(fd: OwnedFd) -> Commitment {
        Commitment(Counter::from_descriptor(fd))
    }

    /// A descriptor of the same counter, for the host.
    pub fn share(&self) -> io::Result<OwnedFd> {
        self.0.share()
    }

    /// The keeper calls this before the clone. If it fails, nothing is started.
    pub fn commit(&self) -> io::Result<()> {
        self.0.add(COMMITTED)
    }

    /// The host calls this: what was added since the last time.
    pub fn take(&self) -> StartProgress {
        let count = self.0.take();
        let pid = (count & (COMMITTED - 1)) as i32;
        StartProgress { committed: count >= COMMITTED, pid: (pid > 0).then_some(pid) }
    }
}

impl AsFd for Commitment {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the new process does without libc.
    fn add_pid(commitment: &Commitment, pid: i32) {
        commitment.0.add(u64::try_from(pid).unwrap()).unwrap();
    }

    #[test]
    fn reports_both_parts_once_and_in_any_split() {
        let ours = Commitment::new().unwrap();
        let theirs = Commitment::from_descriptor(ours.share().unwrap());
        assert_eq!(theirs.take(), StartProgress::default());
        ours.commit().unwrap();
        assert_eq!(theirs.take(), StartProgress { committed: true, pid: None });
        add_pid(&ours, 4321);
        assert_eq!(theirs.take(), StartProgress { committed: false, pid: Some(4321) });
        ours.commit().unwrap();
        add_pid(&ours, i32::MAX);
        assert_eq!(theirs.take(), StartProgress { committed: true, pid: Some(i32::MAX) });
        assert_eq!(theirs.take(), StartProgress::default());
    }
}
