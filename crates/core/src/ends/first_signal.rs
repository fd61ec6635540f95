//! The first signal of the ladder, once to each process where that can be had.
//!
//! Some programs pass on what they are sent (timeout(1), tini, su(1)), and to many a second SIGTERM means "at once". So
//! what is below a process that handles the signal is left to that one first. From here a process gets the signal as
//! soon as it is known not to have got it: it would have died of it, or it has not run since. This is checked when the
//! process above has ended, and once `MOMENT` is over. A process of which it is not known gets the signal after
//! `MOMENT` if the process above has ended, and after `LATEST` in any case.
//!
//! Where this cannot be done for all (one forks without pause, or no descriptor is free), all get the signal at once.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::ends::brood::Brood;
use crate::ends::group::hold_listed;
use crate::sys::{self, Group, Handle, Pid};

/// A process that passes the signal on has done so by then. (Measured: 37 ms at most, 49 beside two busy loops; record
/// 30.)
const MOMENT: Duration = Duration::from_millis(100);
/// The signal has been sent to every process by then, or by half of the grace if that is shorter.
const LATEST: Duration = Duration::from_secs(1);
/// The grace of a starter stands for one that its host decides. From there on all processes get the signal at once.
const UNKNOWN_GRACE: Duration = Duration::from_secs(3600);
/// Polling interval for the processes above: there is no event for the end of a process that is not our child.
const PAUSE: Duration = Duration::from_millis(10);
/// Bound on looks in a row for what was forked meanwhile; more mean a fork storm.
const MOST_LOOKS: u32 = 4;

/// Processes that the first signal is left to reach from one above them.
pub struct FirstSignal {
    signal: i32,
    /// When the signal has been passed on, where it is passed on at all.
    moment: Instant,
    /// When to send it to all that are left.
    until: Instant,
    next: Instant,
    left: Vec<Deferred>,
    /// All that were found, those left included.
    known: BTreeSet<Pid>,
}

struct Deferred {
    pid: Pid,
    handle: Handle,
    above: Rc<Handle>,
    /// Its work when it was found. `None`: it does not handle the signal, so it would have died of it.
    work: Option<sys::Work>,
}

impl Deferred {
    /// Whether it is certain that it has not got the signal, given that it is alive. In doubt false.
    fn has_not_got_it(&self) -> bool {
        self.work.is_none_or(|work| !work.is_busy && sys::work_of(self.pid) == Some(work))
    }
}

/// The signal cannot be sent to each by itself: one forks without pause, or no descriptor is free.
struct Missed;

/// To be sent the signal at once. Without a handle: a child of ours.
type Direct = (Pid, Option<Handle>);

impl FirstSignal {
    /// Sends the signal. `None`: it went to all processes at once, and nothing is left to do.
    pub fn begin(
        brood: &mut Brood,
        group: Option<&Group>,
        signal: i32,
        grace: Duration,
    ) -> Option<Box<FirstSignal>> {
        let now = Instant::now();
        let (moment, until) = (now + MOMENT, now + latest(grace));
        let (left, known) = (Vec::new(), BTreeSet::new());
        let mut first_signal =
            Box::new(FirstSignal { signal, moment, until, next: now + PAUSE, left, known });
        let is_long = until > moment && grace < UNKNOWN_GRACE;
        if is_long && first_signal.send_directly(brood).is_ok() && !first_signal.left.is_empty() {
            return Some(first_signal);
        }
        // It may have taken every free descriptor.
        drop(first_signal);
        brood.signal_all(group, signal);
        None
    }

    /// Sends it to all that are not left to a process above them, after two looks in a row have found the same
    /// processes.
    fn send_directly(&mut self, brood: &mut Brood) -> Result<(), Missed> {
        let mut direct = self.find(brood)?;
        if self.left.is_empty() {
            return Ok(());
        }
        let mut looks = 1;
        loop {
            let known = self.known.len();
            direct.append(&mut self.find(brood)?);
            if self.known.len() == known {
                break;
            }
            looks += 1;
            if looks > MOST_LOOKS {
                return Err(Missed);
            }
        }
        // What was forked before its parent got the signal is found after it.
        for _ in 0..MOST_LOOKS {
            if direct.is_empty() {
                break;
            }
            // The deeper ones first: a process that has lost its parent to the signal is not where it was found.
            for (pid, handle) in direct.iter().rev() {
                match handle {
                    Some(handle) => send(handle, self.signal),
                    None => self.send_to_child(*pid),
                }
            }
            direct = self.find(brood)?;
        }
        Ok(())
    }

    /// Looks for processes that are not known yet. Those below a process that handles the signal are left to it, the
    /// others are returned, parents first.
    fn find(&mut self, brood: &mut Brood) -> Result<Vec<Direct>, Missed> {
        let children = brood.children_left();
        let listed = sys::descendants(&children);
        let parents: BTreeSet<Pid> = listed.iter().map(|&(_, parent)| parent).collect();
        let handling: BTreeSet<Pid> =
            parents.into_iter().filter(|&pid| sys::handles(pid, self.signal)).collect();
        // The usual case: no process has to be held.
        if handling.is_empty() && self.left.is_empty() {
            return Ok(Vec::new());
        }
        let mut direct: Vec<Direct> =
            children.into_iter().filter(|&pid| self.known.insert(pid)).map(|pid| (pid, None)).collect();
        // Each is shown to be a descendant of a process of the call.
        let (found, mut held) = brood.hold(&listed, None);
        if found.missed || !listed.is_complete {
            return Err(Missed);
        }
        // The nearest one above, for those that have one. Parents come first.
        let mut above: BTreeMap<Pid, Pid> = BTreeMap::new();
        let mut handlers: BTreeMap<Pid, Rc<Handle>> = BTreeMap::new();
        for &(pid, parent) in listed.iter() {
            let nearest = if handling.contains(&parent) { Some(parent) } else { above.get(&parent).copied() };
            above.extend(nearest.map(|nearest| (pid, nearest)));
            let Some(handle) = held.remove(&pid) else { continue };
            if !self.known.insert(pid) {
                continue;
            }
            let Some(nearest) = nearest else {
                direct.push((pid, Some(handle)));
                continue;
            };
            let above = match handlers.get(&nearest) {
                Some(handler) => Rc::clone(handler),
                // Never signalled by this handle: only the end of the process is waited for, whichever has the pid.
                None => Rc::new(Handle::open(nearest).map_err(|_| Missed)?),
            };
            handlers.insert(nearest, Rc::clone(&above));
            self.left.push(Deferred { pid, handle, above, work: self.work_of(pid) });
        }
        Ok(direct)
    }

    /// The work of a process that handles the signal, `None` for another one. What is not known counts as busy.
    fn work_of(&self, pid: Pid) -> Option<sys::Work> {
        let unknown = sys::Work { is_busy: true, switches: 0 };
        sys::handles(pid, self.signal).then(|| sys::work_of(pid).unwrap_or(unknown))
    }

    /// The grace is shorter than it was: `grace` from now on.
    pub fn shorten(&mut self, grace: Duration) {
        self.until = self.until.min(Instant::now() + latest(grace));
        self.next = self.next.min(self.until);
    }

    /// When to look again. `None`: all have been sent the signal.
    pub fn next_time(&self) -> Option<Instant> {
        (!self.left.is_empty()).then_some(self.next)
    }

    /// Sends the signal to those that are due. Whether there were any.
    pub fn advance(&mut self, brood: &Brood) -> bool {
        let now = Instant::now();
        if now < self.next || self.left.is_empty() {
            return false;
        }
        self.next = now + PAUSE;
        let (is_moment, is_over) = (now >= self.moment, now >= self.until);
        self.left.retain(|left| !left.handle.has_ended());
        let due: Vec<Deferred> = self
            .left
            .extract_if(.., |left| {
                let is_alone = left.above.has_ended();
                is_over || is_moment && is_alone || (is_moment || is_alone) && left.has_not_got_it()
            })
            .collect();
        // What they have forked by now must not be left out.
        let below = self.new_below(&due);
        for handle in below.values().chain(due.iter().map(|left| &left.handle)) {
            send(handle, self.signal);
        }
        // Forked by a process that was left to one above it, and has ended before it was sent the signal.
        let orphans: Vec<Pid> =
            brood.children_left().into_iter().filter(|&pid| self.known.insert(pid)).collect();
        orphans.iter().for_each(|&pid| self.send_to_child(pid));
        !(due.is_empty() && orphans.is_empty())
    }

    fn send_to_child(&self, pid: Pid) {
        for signal in [self.signal, sys::SIGCONT] {
            sys::kill_child(pid, signal);
        }
    }

    fn new_below(&mut self, due: &[Deferred]) -> BTreeMap<Pid, Handle> {
        let mut held = BTreeMap::new();
        let pids: Vec<Pid> = due.iter().map(|left| left.pid).collect();
        let is_root = |pid| due.iter().any(|left| left.pid == pid && left.handle.is_unreaped());
        hold_listed(&sys::descendants(&pids), &mut held, is_root, |_| false, |_| ());
        held.retain(|&pid, _| self.known.insert(pid));
        held
    }
}

/// How long after the beginning of the grace all have been sent the signal.
fn latest(grace: Duration) -> Duration {
    LATEST.min(grace / 2)
}

/// Sends SIGCONT as well: a stopped process cannot act on the signal.
fn send(handle: &Handle, signal: i32) {
    let _ = handle.signal(signal);
    let _ = handle.signal(sys::SIGCONT);
}
