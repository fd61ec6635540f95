//! The settle time: what a command leaves at its exit may finish what it is at before it gets any signal, as `tee` in
//! `exec > >(tee log)`. It is over when all of it sleeps, and bounded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::sys::{self, Pid, PipeView};

/// Between the first looks; then twice as long each time, up to the second of them. Never less than some times what the
/// last look took, so that looking stays a small part of the work.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
const COSTS: u32 = 4;
/// A list of processes that change hands is not one moment's: one look is not enough.
const QUIET_LOOKS: u32 = 2;
/// At the bound: whoever wrote so short a time ago would have gone on.
const LATELY: Duration = Duration::from_millis(25);

/// See the module.
pub struct Settling {
    until: Instant,
    next: Instant,
    pause: Duration,
    /// At the last look: how often each process had been switched away from.
    switches: BTreeMap<Pid, u64>,
    /// Looks in a row that found nothing at work.
    quiet: u32,
    pipes: Vec<PipeView>,
    levels: Vec<Option<u64>>,
    /// When bytes were last seen to come, or somebody to wait for room.
    wrote: Option<Instant>,
}

/// What a look has shown.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// Something is at work.
    NotYet,
    /// All of it sleeps.
    Quiet,
    /// The time is up. `writing`: something was still writing to the call's pipes.
    TimeUp {
        /// See there.
        writing: bool,
    },
}

impl Settling {
    /// From now, at most `until`.
    pub fn begin(now: Instant, until: Instant, pipes: Vec<PipeView>) -> Settling {
        let levels = pipes.iter().map(PipeView::level).collect();
        Settling {
            until,
            next: now,
            pause: PAUSE,
            switches: BTreeMap::new(),
            quiet: 0,
            pipes,
            levels,
            wrote: None,
        }
    }

    /// When to look again.
    pub fn next_time(&self) -> Instant {
        self.next.min(self.until)
    }

    /// Looks, if it is time to. `list`: what is left, alive.
    pub fn look(&mut self, list: impl FnOnce() -> Vec<Pid>) -> Settled {
        let began = Instant::now();
        if began < self.next_time() {
            return Settled::NotYet;
        }
        let list = list();
        self.look_at_pipes(&list, began);
        if began >= self.until {
            let writing = self.wrote.is_some_and(|wrote| began < wrote + LATELY);
            return Settled::TimeUp { writing };
        }
        let is_at_work = self.is_at_work(&list) || self.wrote == Some(began);
        self.quiet = if is_at_work { 0 } else { self.quiet + 1 };
        if self.quiet == QUIET_LOOKS {
            return Settled::Quiet;
        }
        let now = Instant::now();
        self.next = now + self.pause.max((now - began) * COSTS);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Settled::NotYet
    }

    fn is_at_work(&mut self, list: &[Pid]) -> bool {
        let before = std::mem::take(&mut self.switches);
        let mut is_at_work = false;
        for &pid in list {
            let Some(work) = sys::work_of(pid) else { continue };
            is_at_work |= work.is_busy || before.get(&pid) != Some(&work.switches);
            self.switches.insert(pid, work.switches);
            // What was not looked at counts as new in the next look.
            if work.is_busy {
                break;
            }
        }
        // Who is missing has ended, or changes hands just now.
        is_at_work || before.len() != self.switches.len()
    }

    fn look_at_pipes(&mut self, list: &[Pid], now: Instant) {
        let levels: Vec<Option<u64>> = self.pipes.iter().map(PipeView::level).collect();
        let has_risen = self.levels.iter().zip(&levels).any(|(before, level)| level > before);
        // Whoever waits for room has found none: a pipe that holds nothing keeps nobody waiting.
        let is_any_used = levels.iter().any(|level| level.is_some_and(|level| level > 0));
        if has_risen || is_any_used && list.iter().any(|&pid| sys::is_writing_to(pid, &self.pipes)) {
            self.wrote = Some(now);
        }
        self.levels = levels;
    }
}
