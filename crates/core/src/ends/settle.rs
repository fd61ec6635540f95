//! The settle time: what a command leaves at its exit may finish what it is at before it gets any signal, as `tee` in
//! `exec > >(tee log)`. It is over when all of it sleeps, and bounded.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::sys::{self, Level, Pid, PipeId, PipeView};

/// Interval between the first looks; it doubles with each, up to the longest. Never less than `COSTS` times what the
/// last look took, so that looking stays a small part of the work.
const PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
const COSTS: u32 = 4;
/// Quiet looks in a row that end the settle time. One is not enough: a process that is re-parented meanwhile may be
/// missed.
const QUIET_LOOKS: u32 = 2;
/// At the bound a process that has written within this time counts as still writing, although it sleeps.
const LATELY: Duration = Duration::from_millis(25);

/// A settle time that has begun.
pub struct Settling {
    until: Instant,
    next: Instant,
    pause: Duration,
    /// At the last look: how often each process had been switched away from.
    switches: BTreeMap<Pid, u64>,
    /// Looks in a row that found nothing at work.
    quiet: u32,
    /// The call's output pipes that no process was found to have open.
    outputs: Vec<PipeId>,
    /// The call's output pipes that a process has open.
    pipes: Vec<PipeView>,
    levels: Vec<Level>,
    /// When one of those left was last seen to write, or to wait for room.
    wrote: Option<Instant>,
}

/// What a look has shown.
#[derive(Debug, PartialEq, Eq)]
pub enum Settled {
    /// Something is at work.
    NotYet,
    /// All of it sleeps.
    Quiet,
    /// The time is up.
    TimeUp {
        /// Something was still writing to the call's pipes.
        writing: bool,
    },
}

impl Settling {
    /// Begins `now`, and lasts until `until` at most. `outputs`: the call's pipes for output.
    pub fn begin(now: Instant, until: Instant, outputs: Vec<PipeId>) -> Settling {
        Settling {
            until,
            next: now,
            pause: PAUSE,
            switches: BTreeMap::new(),
            quiet: 0,
            outputs,
            pipes: Vec::new(),
            levels: Vec::new(),
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
        self.find_pipes(&list);
        let (at_work, has_changed) = self.at_work(list.iter().copied());
        let is_writing = self.is_writing(&list, &at_work);
        if is_writing {
            self.wrote = Some(began);
        }
        if began >= self.until {
            // A busy machine may not have let it write lately.
            let goes_on = |wrote| began < wrote + LATELY || self.is_any_open_in(&at_work);
            return Settled::TimeUp { writing: self.wrote.is_some_and(goes_on) };
        }
        self.quiet = if has_changed || is_writing || !at_work.is_empty() { 0 } else { self.quiet + 1 };
        if self.quiet == QUIET_LOOKS {
            return Settled::Quiet;
        }
        let now = Instant::now();
        self.next = now + self.pause.max((now - began) * COSTS);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        Settled::NotYet
    }

    /// Looks for the call's pipes in the processes that are new since the last look.
    fn find_pipes(&mut self, list: &[Pid]) {
        let is_new = |pid: &Pid| !self.switches.contains_key(pid);
        let new: Vec<Pid> = list.iter().copied().filter(is_new).collect();
        for view in PipeView::of_any(&self.outputs, &new) {
            self.outputs.retain(|&id| id != view.id());
            self.levels.push(view.level().unwrap_or_default());
            self.pipes.push(view);
        }
    }

    /// The processes that are busy, or were since the last look. True: some are missing or new since that look; one
    /// that is missing has ended, or is being re-parented.
    fn at_work(&mut self, list: impl Iterator<Item = Pid>) -> (Vec<Pid>, bool) {
        let before = std::mem::take(&mut self.switches);
        let mut at_work = Vec::new();
        for pid in list {
            let Some(work) = sys::work_of(pid) else { continue };
            if work.is_busy || before.get(&pid) != Some(&work.switches) {
                at_work.push(pid);
            }
            self.switches.insert(pid, work.switches);
        }
        let has_changed = before.len() != self.switches.len();
        (at_work, has_changed)
    }

    /// Whether one of them is known to have written to a pipe since the last look, or waits for room.
    fn is_writing(&mut self, list: &[Pid], at_work: &[Pid]) -> bool {
        let now = levels(&self.pipes);
        let before = std::mem::replace(&mut self.levels, now);
        let mut pipes = self.pipes.iter().zip(before).zip(&self.levels);
        pipes.any(|((pipe, before), &now)| {
            // Processes that are not of this call may write to it as well.
            let is_from_here = || at_work.iter().any(|&pid| pipe.is_open_in(pid));
            // A writer waits for room only if the pipe is full: in front of an empty pipe no process waits.
            let is_awaited = || list.iter().any(|&pid| pipe.is_awaited_by(pid, now));
            now.bytes > before.bytes && is_from_here() || now.bytes > 0 && is_awaited()
        })
    }

    fn is_any_open_in(&self, list: &[Pid]) -> bool {
        self.pipes.iter().any(|pipe| list.iter().any(|&pid| pipe.is_open_in(pid)))
    }
}

/// What each pipe holds; zero where that is not known.
fn levels(pipes: &[PipeView]) -> Vec<Level> {
    pipes.iter().map(|pipe| pipe.level().unwrap_or_default()).collect()
}
