//! What the end of a call reaches. Chosen once, where the call starts: the code that ends it uses its reach, whichever
//! kind that is.
//!
//! Where orphans come to us (we are a subreaper) all that the command started is below us, and that no child is left is
//! the proof. Where they do not, only the group can be found and shown to be empty; our children are ended as well.

use std::time::{Duration, Instant};

use holdfast_wire::{EndFacts, MAX_NAMED, Mechanism, Outcome, Reason};

use crate::ends::brood::{Brood, Killing, Left, Progress, facts};
use crate::ends::first_signal::FirstSignal;
use crate::ends::group::{GroupEnd, GroupRef, Members, Tracked};
use crate::sys::{self, Group, Pid};

/// Polling interval for processes that are not our children, during the end: their end brings no SIGCHLD.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What the end of one call reaches.
pub struct Reach {
    /// What is below us.
    pub brood: Brood,
    /// The command's, held by its pin, or by the first process where that leads it.
    group: Option<Group>,
    kind: Kind,
    /// Processes that have not been sent the first signal yet.
    first_signal: Option<Box<FirstSignal>>,
}

enum Kind {
    Tree,
    /// Once the end has begun: the group, and what of it was found.
    Group(Option<Box<Tracked>>),
}

/// What is left in the grace.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// Something lives.
    Alive,
    /// Nothing is alive below.
    Settled,
    /// Nothing of the group is alive, which is still to be shown.
    Gone,
}

impl Reach {
    /// The reach of a command that was started. `orphans_are_ours`: we are a subreaper.
    pub fn new(orphans_are_ours: bool, brood: Brood, group: Option<Group>) -> Reach {
        let kind = if orphans_are_ours { Kind::Tree } else { Kind::Group(None) };
        Reach { brood, group, kind, first_signal: None }
    }

    /// What holds it together.
    pub fn mechanism(&self) -> Mechanism {
        match self.kind {
            Kind::Tree => Mechanism::Subreaper,
            Kind::Group(_) => Mechanism::Group,
        }
    }

    /// The command's group.
    pub fn group(&self) -> Option<&Group> {
        self.group.as_ref()
    }

    /// When to look again at the latest, as long as its end is awaited.
    pub fn look_again(&self, now: Instant) -> Option<Instant> {
        matches!(self.kind, Kind::Group(_)).then(|| now + LOOK_AGAIN)
    }

    /// What is left, alive.
    pub fn left(&self) -> Vec<Pid> {
        match (&self.kind, self.group) {
            (Kind::Group(_), Some(group)) => match GroupRef::Pin(group).live() {
                Members::Live(list) => list,
                Members::Empty | Members::Unknown => Vec::new(),
            },
            _ => self.brood.survivors(),
        }
    }

    /// Reaps what is not the call's own, while the call goes on. Whether nothing is alive below, and nothing can be
    /// anywhere else.
    pub fn reap_adopted(&mut self) -> bool {
        self.brood.reap_adopted() && matches!(self.kind, Kind::Tree)
    }

    /// The command has exited, and its end was not asked for: whether what it left, if anything, has left by itself.
    /// `is_settled`: what [`reap_adopted`](Reach::reap_adopted) has returned.
    pub fn has_left(&mut self, is_settled: bool) -> bool {
        (is_settled || self.is_group_empty()) && self.brood.reap() == Left::Nothing
    }

    /// Seen twice in a row, as at every end of a group.
    fn is_group_empty(&self) -> bool {
        let look = |group| GroupRef::Pin(group).live() == Members::Live(Vec::new());
        let is_group = matches!(self.kind, Kind::Group(_));
        is_group && self.group.is_some_and(|group| look(group) && look(group))
    }

    /// The end begins: what is there now is left over. Returns what [`reap_adopted`](Reach::reap_adopted) returns.
    pub fn begin(&mut self) -> bool {
        // What died before that is not left over.
        let is_settled = self.reap_adopted();
        self.brood.recording = true;
        if let (Kind::Group(tracked), Some(group)) = (&mut self.kind, self.group) {
            let tracked = tracked.insert(Box::new(Tracked::new(GroupRef::Pin(group))));
            tracked.begin();
            self.brood.note(tracked.pids());
        }
        is_settled
    }

    /// The first signal, once to each.
    pub fn ask_to_end(&mut self, signal: i32, grace: Duration) {
        match &mut self.kind {
            Kind::Group(Some(tracked)) => tracked.ask_to_end(signal),
            _ => self.first_signal = FirstSignal::begin(&mut self.brood, self.group.as_ref(), signal, grace),
        }
    }

    /// SIGKILL once to each, the deepest first.
    pub fn kill_once(&mut self) {
        self.brood.signal_all(self.group.as_ref(), sys::SIGKILL);
    }

    /// The grace is shorter than it was.
    pub fn shorten(&mut self, grace: Duration) {
        if let Some(first_signal) = &mut self.first_signal {
            first_signal.shorten(grace);
        }
    }

    /// When the first signal is due for a process that has not got it. `None`: all have it.
    pub fn next_time(&self) -> Option<Instant> {
        self.first_signal.as_ref().and_then(|first_signal| first_signal.next_time())
    }

    /// In the grace: sends the first signal to those that are due, and looks at what is left.
    pub fn await_answers(&mut self) -> Answer {
        let brood = &self.brood;
        if self.first_signal.iter_mut().any(|first_signal| first_signal.advance(brood)) {
            self.brood.first_signal = Some(Instant::now());
        }
        // Some wait for that before they end, as the first process of a pid namespace for its members.
        let is_settled = self.reap_adopted();
        let (is_settled, is_gone) = match &mut self.kind {
            Kind::Tree => (is_settled || self.brood.is_settled(), false),
            Kind::Group(tracked) => (false, tracked.as_mut().is_some_and(|tracked| is_gone(tracked))),
        };
        match (is_settled, is_gone) {
            (true, _) => Answer::Settled,
            (_, true) => Answer::Gone,
            _ => Answer::Alive,
        }
    }

    /// The grace is over, and something lives. It may have been shortened, so that not all got the first signal.
    pub fn end_grace(&mut self) {
        if self.next_time().is_some() {
            self.brood.first_signal = None;
        }
    }

    /// Makes the argument of [`kill`](Reach::kill). Nothing is signalled yet.
    pub fn begin_killing(&self) -> Killing {
        match self.kind {
            Kind::Tree => Killing::begin(),
            Kind::Group(_) => Killing::beside_group_end(),
        }
    }

    /// Goes as far as possible without waiting. How it has turned out, once it has, and what survives of the group.
    pub fn kill(&mut self, killing: &mut Killing) -> Option<(Outcome, Vec<Pid>)> {
        // The group's end decides, before the group loses its pin: that no child is left shows nothing about orphans.
        let group_end = match (&mut self.kind, self.group) {
            (Kind::Tree, _) => None,
            (Kind::Group(_), None) => Some(GroupEnd::Unconfirmed),
            (Kind::Group(tracked), Some(group)) => {
                let tracked = tracked.get_or_insert_with(|| Box::new(Tracked::new(GroupRef::Pin(group))));
                Some(tracked.end(killing.deadline(), self.brood.first_signal))
            }
        };
        let progress = killing.advance(&mut self.brood, self.group.as_ref());
        let outcome = match (group_end, progress) {
            (Some(GroupEnd::Survivors(list)), _) => return Some((Outcome::Survivors, list)),
            (None | Some(GroupEnd::Ended), Progress::Done) => Outcome::Ended,
            (Some(_), Progress::Done) => Outcome::Unconfirmed,
            (_, Progress::Waiting) => return None,
            (_, Progress::Survivors) => Outcome::Survivors,
        };
        Some((outcome, Vec::new()))
    }

    /// What is reported of the end. `survivors`: what [`kill`](Reach::kill) has named.
    pub fn facts(&self, outcome: Outcome, reason: Reason, proof_time: u64, survivors: &[Pid]) -> EndFacts {
        let mut facts = facts(&self.brood, self.mechanism(), outcome, reason, proof_time);
        if !survivors.is_empty() {
            facts.survivors = survivors.iter().take(MAX_NAMED).map(|&pid| sys::process_info(pid)).collect();
        }
        facts
    }
}

/// Whether nothing that was found is alive, and no member is left.
fn is_gone(tracked: &mut Tracked) -> bool {
    let mut look = || tracked.look() == Members::Live(Vec::new());
    look() && look() && !tracked.is_any_alive()
}
