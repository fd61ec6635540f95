//! Waiting for many descriptors and one time, on a thread that others add to meanwhile (epoll(7), timerfd_create(2)).

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::handle::Handle;

/// The clock's; no other key is this.
const CLOCK: u64 = u64::MAX;

/// What has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occurrence {
    /// The time that was set has come.
    Time,
    /// A descriptor is ready.
    Ready {
        /// What it was added with.
        key: u64,
        /// There is something to read, or the end.
        readable: bool,
        /// There is room to write, or no reader.
        writable: bool,
    },
}

/// Waits for many descriptors and a time (epoll(7), timerfd_create(2)).
pub struct Poller {
    epoll: OwnedFd,
    /// Set to the next time: a new one need not wake the thread.
    clock: OwnedFd,
}

impl Poller {
    /// A poller that waits for nothing yet.
    pub fn new() -> io::Result<Poller> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let clock =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &clock, EventData::new_u64(CLOCK), EventFlags::IN)?;
        Ok(Poller { epoll, clock })
    }

    /// Waits until something happens, and reports each occurrence.
    pub fn wait(&self, mut report: impl FnMut(Occurrence)) {
        let mut space = [MaybeUninit::uninit(); 64];
        let Ok((events, _)) = epoll::wait(&self.epoll, &mut space, None) else { return };
        for event in events.iter() {
            let (key, flags) = (event.data.u64(), event.flags);
            if key == CLOCK {
                let _ = rustix::io::read(&self.clock, &mut [0; 8]);
                report(Occurrence::Time);
                continue;
            }
            let is_closed = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            report(Occurrence::Ready {
                key,
                readable: is_closed || flags.intersects(EventFlags::IN | EventFlags::RDHUP),
                writable: is_closed || flags.contains(EventFlags::OUT),
            });
        }
    }

    /// Reports once when a descriptor is ready; replaces what it was armed with before. `is_known`: it was added
    /// before, and not removed. Returns whether it is known now.
    pub fn arm(&self, fd: impl AsFd, key: u64, (readable, writable): (bool, bool), is_known: bool) -> bool {
        let mut flags = EventFlags::ONESHOT;
        if readable {
            flags |= EventFlags::IN | EventFlags::RDHUP;
        }
        if writable {
            flags |= EventFlags::OUT;
        }
        let data = EventData::new_u64(key);
        let done = if is_known {
            epoll::modify(&self.epoll, fd, data, flags)
        } else {
            epoll::add(&self.epoll, fd, data, flags)
        };
        done.is_ok() || is_known
    }

    /// Reports whenever there is something new to be read.
    pub fn watch(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, fd, EventData::new_u64(key), EventFlags::IN | EventFlags::ET)?)
    }

    /// Reports the end of a process, once: a child that is traced stays ready when it has ended, and cannot be reaped
    /// before its tracer detaches. False: its end will not be reported.
    pub fn watch_exit(&self, process: &Handle, key: u64) -> bool {
        process.pidfd().is_some_and(|fd| self.watch(fd, key).is_ok())
    }

    /// Forgets a descriptor. Explicitly: a copy of it in another process would keep it known.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Forgets a process.
    pub fn remove_exit(&self, process: &Handle) {
        if let Some(fd) = process.pidfd() {
            self.remove(fd);
        }
    }

    /// Reports when this time has come. It replaces the one before.
    pub fn set_time(&self, time: Instant) {
        let wait = time.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        if let Ok(it_value) = Timespec::try_from(wait) {
            let once = Timespec { tv_sec: 0, tv_nsec: 0 };
            let setting = Itimerspec { it_interval: once, it_value };
            let _ = timerfd_settime(&self.clock, TimerfdTimerFlags::empty(), &setting);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::linux::descriptors::pipe;
    use crate::sys::unix::io::write;

    fn next(poller: &Poller) -> Vec<Occurrence> {
        let mut list = Vec::new();
        poller.wait(|occurrence| list.push(occurrence));
        list
    }

    fn is_readable(key: u64) -> Occurrence {
        Occurrence::Ready { key, readable: true, writable: false }
    }

    #[test]
    fn what_was_armed_is_reported_once_and_what_is_watched_each_time() {
        let poller = Poller::new().unwrap();
        let ((armed, into_armed), (watched, into_watched)) = (pipe().unwrap(), pipe().unwrap());
        assert!(poller.arm(&armed, 7, (true, false), false));
        poller.watch(&watched, 8).unwrap();
        write(&into_armed, b"x").unwrap();
        assert_eq!(next(&poller), [is_readable(7)]);
        // It is readable still.
        write(&into_watched, b"x").unwrap();
        assert_eq!(next(&poller), [is_readable(8)]);
        write(&into_watched, b"x").unwrap();
        assert_eq!(next(&poller), [is_readable(8)]);
        assert!(poller.arm(&armed, 9, (true, false), true));
        assert_eq!(next(&poller), [is_readable(9)]);
    }

    #[test]
    fn the_end_is_both_and_what_was_removed_is_not_told() {
        let poller = Poller::new().unwrap();
        let ((read, write), (other, into_other)) = (pipe().unwrap(), pipe().unwrap());
        poller.arm(&write, 1, (false, true), false);
        poller.arm(&other, 2, (true, false), false);
        drop((read, into_other));
        poller.remove(&other);
        assert_eq!(next(&poller), [Occurrence::Ready { key: 1, readable: true, writable: true }]);
    }

    #[test]
    fn a_time_is_reported_when_it_has_come_and_an_earlier_one_takes_its_place() {
        let poller = Poller::new().unwrap();
        let began = Instant::now();
        poller.set_time(began + Duration::from_secs(60));
        poller.set_time(began + Duration::from_millis(20));
        assert_eq!(next(&poller), [Occurrence::Time]);
        assert!((Duration::from_millis(20)..Duration::from_secs(60)).contains(&began.elapsed()));
    }
}
