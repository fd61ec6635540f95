//! The first signal of the ladder, once to each process where that can be had.
//!
//! Some programs pass on what they are sent (timeout(1), tini, su(1)), and to many a second SIGTERM means "at once". So a
//! process that handles the signal, and is below another one that does, is left to that one first. It is sent the signal
//! from here when that one has ended, when it has not run for a moment, since then nothing was passed on to it, and in
//! any case before the grace is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::brood::Brood;
use crate::sys::{self, Group, Handle, Pid};

/// Whoever passes a signal on has done so by then, and whoever was sent it has run.
const MOMENT: Duration = Duration::from_millis(100);
/// What was asked by nobody has this much of the grace left, or half of it if that is shorter.
const AT_LEAST: Duration = Duration::from_millis(500);
/// Between two looks at those above: nothing tells of the end of a process that is not our child.
const PAUSE: Duration = Duration::from_millis(10);

/// Processes that are left to one above them.
pub struct Asking {
    signal: i32,
    /// When to ask those that have not run; then they are asked no more.
    moment: Option<Instant>,
    /// When to ask all.
    until: Instant,
    next: Instant,
    left: Vec<Left>,
}

struct Left {
    pid: Pid,
    handle: Handle,
    above: Handle,
    work: Option<sys::Work>,
}

impl Asking {
    /// Sends the signal. `None`: to all.
    pub fn begin(
        brood: &mut Brood,
        group: Option<&Group>,
        signal: i32,
        grace: Duration,
    ) -> Option<Box<Asking>> {
        let left = left_to_others(brood, signal);
        if left.is_empty() {
            brood.signal_all(group, signal);
            return None;
        }
        let pids: BTreeSet<Pid> = left.iter().map(|left| left.pid).collect();
        brood.signal_others(None, signal, |pid| pids.contains(&pid));
        let now = Instant::now();
        let until = now + grace - AT_LEAST.min(grace / 2);
        Some(Box::new(Asking { signal, moment: Some(now + MOMENT), until, next: now + PAUSE, left }))
    }

    /// When to look again. `None`: all were asked.
    pub fn next_time(&self) -> Option<Instant> {
        (!self.left.is_empty()).then_some(self.next)
    }

    /// Asks those whose time has come. Whether there were any.
    pub fn advance(&mut self) -> bool {
        let now = Instant::now();
        if now < self.next {
            return false;
        }
        self.next = now + PAUSE;
        let is_over = now >= self.until;
        let is_moment = self.moment.take_if(|moment| now >= *moment).is_some();
        let signal = self.signal;
        let mut has_asked = false;
        self.left.retain(|Left { pid, handle, above, work }| {
            if handle.has_ended() {
                return false;
            }
            let has_not_run = || work.is_some_and(|work| !work.is_busy) && sys::work_of(*pid) == *work;
            let is_due = is_over || above.has_ended() || is_moment && has_not_run();
            if is_due {
                let _ = handle.signal(signal);
                has_asked = true;
            }
            !is_due
        });
        has_asked
    }
}

/// Those that handle the signal and are below a process that does.
fn left_to_others(brood: &Brood, signal: i32) -> Vec<Left> {
    let listed = sys::descendants(&brood.children_left());
    let parents: BTreeSet<Pid> = listed.iter().map(|&(_, parent)| parent).collect();
    let handling: BTreeSet<Pid> = parents.into_iter().filter(|&pid| sys::handles(pid, signal)).collect();
    if handling.is_empty() {
        return Vec::new();
    }
    // The nearest one above, for those that have one. Parents come first.
    let mut above: BTreeMap<Pid, Pid> = BTreeMap::new();
    let mut left = Vec::new();
    for &(pid, parent) in listed.iter() {
        let Some(nearest) = handling.get(&parent).or_else(|| above.get(&parent)).copied() else { continue };
        above.insert(pid, nearest);
        if !sys::handles(pid, signal) {
            continue;
        }
        // Who cannot be held is sent the signal with the others.
        if let Ok(Some(handle)) = sys::handle_of_descendant(pid, parent)
            && let Ok(above) = Handle::open(nearest)
        {
            left.push(Left { pid, handle, above, work: sys::work_of(pid) });
        }
    }
    left
}
