//! The first signal of the ladder, once to each process where that can be had.
//!
//! Some programs pass on what they are sent (timeout(1), tini, su(1)), and to many a second SIGTERM means "at once". So
//! what is below a process that handles the signal is left to that one first. It is sent the signal from here as soon as
//! it is known that it has not got it: it would have died of it, or it has not run since. That is asked when the process
//! above has ended, and a moment after the end began. Of whom it is not known is sent it after that moment if the process
//! above has ended, and some time later in any case.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::ends::brood::Brood;
use crate::sys::{self, Group, Handle, Pid};

/// Whoever passes a signal on has done so by then. (Measured: 37 ms at most, 49 beside two busy loops; record 30.)
const MOMENT: Duration = Duration::from_millis(100);
/// Everybody is asked by then, or after half of a grace that is shorter.
const LATEST: Duration = Duration::from_secs(1);
/// A starter's: how long it really is, its host decides. Then all are asked at once.
const UNKNOWN_GRACE: Duration = Duration::from_secs(3600);
/// Between two looks at those above: nothing tells of the end of a process that is not our child.
const PAUSE: Duration = Duration::from_millis(10);

/// Processes that are left to one above them.
pub struct Asking {
    signal: i32,
    /// A moment after the end began: those have it that were to get it from above.
    moment: Instant,
    /// When to ask all.
    until: Instant,
    next: Instant,
    left: Vec<Deferred>,
}

struct Deferred {
    pid: Pid,
    handle: Handle,
    above: Handle,
    /// When the end began; of those that handle the signal. The others die of it.
    work: Option<sys::Work>,
}

impl Deferred {
    /// Whether it has certainly not got the signal. (It is alive.)
    fn has_not_got_it(&self) -> bool {
        self.work.is_none_or(|work| !work.is_busy && sys::work_of(self.pid) == Some(work))
    }
}

impl Asking {
    /// Sends the signal. `None`: to all.
    pub fn begin(
        brood: &mut Brood,
        group: Option<&Group>,
        signal: i32,
        grace: Duration,
    ) -> Option<Box<Asking>> {
        let left = if grace < UNKNOWN_GRACE { left_to_others(brood, signal) } else { Vec::new() };
        if left.is_empty() {
            brood.signal_all(group, signal);
            return None;
        }
        let pids: BTreeSet<Pid> = left.iter().map(|left| left.pid).collect();
        brood.signal_others(None, signal, |pid| pids.contains(&pid));
        let now = Instant::now();
        let until = now + LATEST.min(grace / 2);
        Some(Box::new(Asking { signal, moment: now + MOMENT, until, next: now + PAUSE, left }))
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
        let (is_moment, is_over) = (now >= self.moment, now >= self.until);
        let signal = self.signal;
        let mut has_asked = false;
        self.left.retain(|left| {
            if left.handle.has_ended() {
                return false;
            }
            let is_alone = left.above.has_ended();
            let is_due = is_over || is_moment && is_alone || (is_moment || is_alone) && left.has_not_got_it();
            if is_due {
                let _ = left.handle.signal(signal);
                has_asked = true;
            }
            !is_due
        });
        has_asked
    }
}

/// What is below a process that handles the signal.
fn left_to_others(brood: &mut Brood, signal: i32) -> Vec<Deferred> {
    let listed = sys::descendants(&brood.children_left());
    let parents: BTreeSet<Pid> = listed.iter().map(|&(_, parent)| parent).collect();
    let handling: BTreeSet<Pid> = parents.into_iter().filter(|&pid| sys::handles(pid, signal)).collect();
    if handling.is_empty() {
        return Vec::new();
    }
    // Each is shown to hang on a process of the call.
    let (_, mut held) = brood.hold(&listed, None);
    // The nearest one above, for those that have one. Parents come first.
    let mut above: BTreeMap<Pid, Pid> = BTreeMap::new();
    let mut left = Vec::new();
    for &(pid, parent) in listed.iter() {
        let Some(nearest) = handling.get(&parent).or_else(|| above.get(&parent)).copied() else { continue };
        above.insert(pid, if handling.contains(&pid) { pid } else { nearest });
        // What cannot be held is sent the signal with the others. The one above is never signalled by this handle.
        if let Some(handle) = held.remove(&pid)
            && let Ok(above) = Handle::open(nearest)
        {
            let handles = handling.contains(&pid) || sys::handles(pid, signal);
            // What cannot be told counts as busy.
            let unknown = sys::Work { is_busy: true, switches: 0 };
            let work = handles.then(|| sys::work_of(pid).unwrap_or(unknown));
            left.push(Deferred { pid, handle, above, work });
        }
    }
    left
}
