//! Waiting for one of several things (poll(2)).

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

use super::handle::Handle;
use super::parent::Parent;
use super::signal_fd::SignalSource;

/// Polling interval for a process without a pidfd.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// Polling interval for our parent, where it has no pidfd.
const LOOK_AT_PARENT: Duration = Duration::from_millis(200);

/// What is waited for.
#[derive(Default)]
pub struct Wait<'a> {
    sources: Vec<PollFd<'a>>,
    /// The shortest polling interval of what has no event.
    again: Option<Duration>,
}

/// Stands for one of the things that are waited for.
#[derive(Debug, Clone, Copy)]
pub struct Token(Option<usize>);

/// What the wait ended with.
#[derive(Default)]
pub struct Ready(Vec<bool>);

impl<'a> Wait<'a> {
    /// A wait for nothing yet.
    pub fn new() -> Wait<'a> {
        Wait { sources: Vec::with_capacity(4), again: None }
    }

    fn add(&mut self, fd: BorrowedFd<'a>, flags: PollFlags) -> Token {
        self.sources.push(PollFd::from_borrowed_fd(fd, flags));
        Token(Some(self.sources.len() - 1))
    }

    /// There is something to read, or the end.
    pub fn readable(&mut self, fd: &'a impl AsFd) -> Token {
        self.add(fd.as_fd(), PollFlags::IN)
    }

    /// There is room to write, or no reader.
    pub fn writable(&mut self, fd: &'a impl AsFd) -> Token {
        self.add(fd.as_fd(), PollFlags::OUT)
    }

    /// There is something to read or the end, or there is room to write or no reader.
    pub fn either(&mut self, fd: &'a impl AsFd) -> Token {
        self.add(fd.as_fd(), PollFlags::IN | PollFlags::OUT)
    }

    /// One of these signals was sent.
    pub fn signal(&mut self, signals: &'a SignalSource) -> Token {
        self.readable(signals)
    }

    /// All threads of a process have ended. Where there is no event for that, the wait is cut short, and the caller has
    /// to look.
    pub fn exit(&mut self, process: &'a Handle) -> Token {
        match process.pidfd() {
            Some(fd) => self.add(fd, PollFlags::IN),
            None => self.look_again(LOOK_AGAIN),
        }
    }

    /// Our parent is gone. Likewise.
    pub fn parent(&mut self, parent: &'a Parent) -> Token {
        match parent.pidfd() {
            Some(fd) => self.readable(fd),
            None => self.look_again(LOOK_AT_PARENT),
        }
    }

    fn look_again(&mut self, after: Duration) -> Token {
        self.again = Some(self.again.map_or(after, |again| again.min(after)));
        Token(None)
    }

    /// Waits until one of them has happened, or the time has come, if there is one.
    pub fn until(mut self, time: Option<Instant>) -> Ready {
        let again = self.again.map(|after| Instant::now() + after);
        let time = time.into_iter().chain(again).min();
        loop {
            let left = time.map(|time| time.saturating_duration_since(Instant::now()));
            let timeout = left.and_then(|left| Timespec::try_from(left).ok());
            match rustix::event::poll(&mut self.sources, timeout.as_ref()) {
                // SIGSTOP and SIGCONT, which cannot be blocked; in the host, a handler of its own.
                Err(rustix::io::Errno::INTR) => (),
                Err(_) => return Ready::default(),
                Ok(_) => break,
            }
        }
        Ready(self.sources.iter().map(|source| !source.revents().is_empty()).collect())
    }
}

impl Ready {
    /// Whether this one has happened.
    pub fn has(&self, token: Token) -> bool {
        token.0.is_some_and(|at| self.0.get(at).copied().unwrap_or(false))
    }

    /// Whether one of them has.
    pub fn has_any(&self) -> bool {
        self.0.contains(&true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::linux::descriptors::pipe;
    use crate::sys::unix::io::write;

    #[test]
    fn each_token_stands_for_its_own_source() {
        let ((first, _first), (second, into)) = (pipe().unwrap(), pipe().unwrap());
        write(&into, b"x").unwrap();
        let mut wait = Wait::new();
        let tokens = [wait.readable(&first), wait.readable(&second), wait.writable(&into)];
        let ready = wait.until(None);
        assert_eq!(tokens.map(|token| ready.has(token)), [false, true, true]);
        assert!(ready.has_any());
    }

    #[test]
    fn when_the_time_has_come_nothing_has_happened() {
        let (read, _write) = pipe().unwrap();
        let time = Instant::now() + Duration::from_millis(20);
        let mut wait = Wait::new();
        let token = wait.readable(&read);
        let ready = wait.until(Some(time));
        assert!(Instant::now() >= time);
        assert!(!ready.has(token) && !ready.has_any());
    }

    #[test]
    fn who_is_to_be_looked_at_again_cuts_the_wait_short() {
        let began = Instant::now();
        let mut wait = Wait::new();
        let tokens = [wait.look_again(LOOK_AT_PARENT), wait.look_again(LOOK_AGAIN)];
        assert_eq!(wait.again, Some(LOOK_AGAIN));
        let ready = wait.until(None);
        assert!(began.elapsed() >= LOOK_AGAIN);
        assert_eq!(tokens.map(|token| ready.has(token)), [false; 2]);
    }
}
