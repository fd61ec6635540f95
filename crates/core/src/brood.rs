//! The brood: every live descendant of this process, and how it is ended and shown to be ended.
//!
//! This process is a subreaper (prctl(2)): whoever loses its parent becomes its child. So it need not know the
//! tree. It kills its children, their children become its own, and when none is left it asks waitid(2), which
//! answers ECHILD: nothing is left below. That answer is the proof.
//!
//! Nothing is reaped while a live child is left. A zombie keeps its process slot, so whoever forks without pause under a
//! limit runs out of slots. Only where all that was found is in the group, which one signal ends, the dead are reaped
//! while others still die.
//!
//! Passes are driven by SIGCHLD: a dying process hands over its children before it tells its parent.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdfast_wire::{Exit, MAX_NAMED, ProcessInfo, Usage};

use crate::group::hold_below;
use crate::sys::{self, ChildrenFile, Delivery, Group, Handle, Kill, Look, Pid};

/// What is below this process.
#[derive(Default)]
pub struct Brood {
    /// The list of our children. A keeper hands it from call to call.
    pub table: RefCell<ChildrenFile>,
    /// We are no subreaper: orphans are not ours, and only the group can be signalled.
    pub only_group: bool,
    /// Children that are not of the brood: a spawn helper's living keepers.
    pub outsiders: BTreeSet<Pid>,
    /// Of our children only those in this session count, that of the brood's first process, where there may be others that
    /// are not of the brood. (None within: no session is known.)
    pub only_session: Option<Option<Pid>>,
    /// The call's own processes, which no report names: the command's first one and the pin.
    pub own: Vec<Pid>,
    /// The first process, once it was reaped with the rest.
    pub first: Option<Exit>,
    /// Everything reaped so far.
    pub usage: Usage,
    /// Whether what is reaped counts as left over.
    pub recording: bool,
    /// Left over and ended, the first [`MAX_NAMED`].
    pub leftovers: Vec<ProcessInfo>,
    /// Left over and ended, all.
    pub leftover_count: u32,
}

/// After a reaping.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// No child: the proof.
    Nothing,
    /// Live children.
    Some,
}

impl Brood {
    /// The children that count, alive or not. `None`: the process table cannot be read.
    fn children(&self) -> Option<Vec<Pid>> {
        let mut list = sys::own_children(&mut self.table.borrow_mut())?;
        list.retain(|&pid| self.counts(pid));
        Some(list)
    }

    /// The children that count, by the table or, failing that, by asking every number.
    fn found(&self, by_number: bool) -> Vec<Pid> {
        let listed = if by_number { None } else { self.children() };
        let mut list = listed.unwrap_or_else(|| sys::children_by_number(&self.outsiders));
        list.retain(|&pid| self.counts(pid));
        list
    }

    fn counts(&self, pid: Pid) -> bool {
        let in_session = |first: Option<Pid>| {
            self.own.contains(&pid) || first.is_some_and(|first| sys::session_of(pid) == Some(first))
        };
        !self.outsiders.contains(&pid) && self.only_session.is_none_or(in_session)
    }

    /// Those that are alive.
    fn live(&self, by_number: bool) -> Vec<Pid> {
        let mut list = self.found(by_number);
        list.retain(|&pid| sys::look(pid) == Look::Live);
        list
    }

    /// The live processes below, for a report: children and deeper ones.
    pub fn names(&self) -> Vec<ProcessInfo> {
        let children = self.live(false);
        let deeper = sys::descendants(&children).into_iter().map(|(pid, _)| pid);
        let all = children.iter().copied().chain(deeper).filter(|pid| !self.own.contains(pid));
        all.take(MAX_NAMED).map(sys::shown).collect()
    }

    /// Counts these as left over, unless they are the call's own: what is not our child we shall not reap.
    pub fn note(&mut self, list: impl Iterator<Item = Pid>) {
        for pid in list.filter(|pid| !self.own.contains(pid)).collect::<Vec<_>>() {
            self.leftover_count += 1;
            if self.leftovers.len() < MAX_NAMED {
                self.leftovers.push(sys::shown(pid));
            }
        }
    }

    /// Signals everything once: the group by its pin, the rest one by one, and wakes whoever is stopped, so that it can
    /// take the signal. The deeper ones first: they must be where they were found, and whoever has lost its parent to
    /// the signal is not.
    pub fn signal_all(&self, group: Option<&Group>, signal: i32) {
        let signals = [signal, libc::SIGCONT];
        let children = self.live(false);
        let in_group = |pid: Pid| group.is_some_and(|group| sys::group_of(pid) == Some(group.id()));
        let is_root = |pid: Pid| sys::look(pid) != Look::NotOurs || in_group(pid);
        let mut held = BTreeMap::new();
        let found = hold_below(&children, &mut held, is_root, in_group, |_| ());
        let mut signalled = BTreeSet::new();
        for pid in found.new.into_iter().rev() {
            // Every one of the signals, whatever became of the one before.
            if signals.iter().filter(|&&signal| held[&pid].signal(signal).is_ok()).count() > 0 {
                signalled.insert(pid);
            }
        }
        let members: Vec<Pid> = children.iter().copied().filter(|&pid| in_group(pid)).collect();
        let mut signal_children = |list: Vec<Pid>| {
            for pid in list {
                if signalled.insert(pid) {
                    for signal in signals {
                        sys::kill_child(pid, signal);
                    }
                }
            }
        };
        signal_children(children.into_iter().filter(|pid| !members.contains(pid)).collect());
        let reached = signals.map(|signal| group.is_some_and(|group| group.signal(signal) == Delivery::Sent));
        if reached.contains(&false) {
            signal_children(members);
        }
        // Whoever has changed hands in the middle of this is our child by now.
        let late = self.live(false).into_iter().filter(|&pid| reached.contains(&false) || !in_group(pid));
        signal_children(late.collect());
    }

    /// Whether nothing is alive below. Takes nothing away.
    pub fn is_settled(&self) -> bool {
        // Without a subreaper what lives on may be anywhere.
        !self.only_group && self.live(false).is_empty()
    }

    /// Reaps the zombies that are not the call's own, while the call goes on. Whether nothing is alive below.
    pub fn reap_adopted(&mut self) -> bool {
        let mut settled = true;
        let Some(list) = self.children() else {
            // Without a table the first zombie hides the others until the end.
            while let Ok(Some(pid)) = sys::peek_any()
                && !self.own.contains(&pid)
            {
                self.reap_one(pid);
            }
            return false;
        };
        for pid in list {
            match sys::look(pid) {
                Look::Live => settled = false,
                Look::Dead(_) if !self.own.contains(&pid) => self.reap_one(pid),
                _ => (),
            }
        }
        settled && !self.only_group
    }

    /// Reaps every zombie.
    pub fn reap(&mut self) -> Left {
        let is_all = self.outsiders.is_empty() && self.only_session.is_none();
        if is_all { self.reap_everything() } else { self.reap_listed() }
    }

    fn reap_everything(&mut self) -> Left {
        loop {
            if self.recording && self.leftovers.len() < MAX_NAMED {
                match sys::peek_any() {
                    Ok(Some(pid)) => self.reap_one(pid),
                    Ok(None) => return Left::Some,
                    Err(_) => return Left::Nothing,
                }
                continue;
            }
            match sys::reap_any() {
                Ok(Some(reaped)) => self.count(reaped, None),
                Ok(None) => return Left::Some,
                Err(_) => return Left::Nothing,
            }
        }
    }

    /// With outsiders among our children nothing but the table tells who is left.
    fn reap_listed(&mut self) -> Left {
        for pid in self.found(false) {
            if let Look::Dead(_) = sys::look(pid) {
                self.reap_one(pid);
            }
        }
        if self.found(false).is_empty() { Left::Nothing } else { Left::Some }
    }

    /// Reaps this zombie, unless it is the call's own: those hold the group's number.
    fn reap_if_left_over(&mut self, pid: Pid) {
        if !self.own.contains(&pid) {
            self.reap_one(pid);
        }
    }

    /// Reaps this zombie.
    pub fn reap_one(&mut self, pid: Pid) {
        let named = self.recording && self.leftovers.len() < MAX_NAMED && !self.own.contains(&pid);
        let name = named.then(|| sys::name(pid));
        if let Some(reaped) = sys::reap(pid) {
            self.count(reaped, name);
        }
    }

    fn count(&mut self, reaped: sys::Reaped, name: Option<Vec<u8>>) {
        self.usage.add(reaped.usage);
        if self.own.contains(&reaped.pid) {
            if self.own.first() == Some(&reaped.pid) {
                self.first = Some(reaped.exit);
            }
            self.own.retain(|&pid| pid != reaped.pid);
            return;
        }
        if self.recording {
            self.leftover_count += 1;
            if let Some(name) = name {
                self.leftovers.push(ProcessInfo { pid: reaped.pid.raw(), name });
            }
        }
    }
}

/// How far the killing is.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Go on at the next SIGCHLD.
    Waiting,
    /// Nothing is left: the proof.
    Done,
    /// Every live child refuses to be signalled.
    Denied,
}

/// SIGKILL to everything until nothing is left.
pub struct Killing {
    /// The first SIGKILL.
    pub since: Instant,
    /// When to stop waiting.
    pub deadline: Instant,
    /// Signalled and not seen dead.
    awaited: VecDeque<Pid>,
    /// Zombies that were seen: until they are reaped they stay that.
    dead: HashSet<Pid>,
    /// To be signalled.
    below: VecDeque<Deeper>,
    passes: u32,
    last_pass: Instant,
    /// See CALM_PASSES.
    storm: bool,
}

/// A process below a child of ours.
struct Deeper {
    pid: Pid,
    parent: Pid,
    /// The parent, unless that is our child.
    held: Option<Rc<Handle>>,
}

/// A storm is what is not over after so many passes, and whoever was found alive outside of the group. Then nothing is
/// reaped any more, and what is born meanwhile is not left alone until the last one is dead.
const CALM_PASSES: u32 = 2;
/// Deeper processes in one pass, where the process table has to be read for each.
const DESCENTS: u32 = 128;
/// From one pass to the next in a storm.
const STORM_PAUSE: Duration = Duration::from_millis(2);

impl Killing {
    /// Begins; nothing is signalled before [`advance`](Killing::advance).
    pub fn new(deadline: Instant) -> Killing {
        let since = Instant::now();
        Killing {
            since,
            deadline,
            awaited: VecDeque::new(),
            dead: HashSet::new(),
            below: VecDeque::new(),
            passes: 0,
            last_pass: since,
            storm: false,
        }
    }

    /// Goes as far as it gets without waiting. When it waits, somebody it has signalled is alive, whose end brings a
    /// SIGCHLD.
    pub fn advance(&mut self, brood: &mut Brood, group: Option<&Group>) -> Progress {
        let mut by_number = false;
        let mut passed = false;
        loop {
            if self.is_somebody_awaited(brood) {
                let again = self.storm && !passed && self.last_pass.elapsed() >= STORM_PAUSE;
                if !again {
                    return Progress::Waiting;
                }
            }
            // One pass at each call even then: survivors are reported at the deadline, and pursued after it.
            if passed && Instant::now() >= self.deadline {
                return Progress::Waiting;
            }
            passed = true;
            self.passes += 1;
            self.storm |= self.passes > CALM_PASSES;
            let Found { listed, denied } = self.pass(brood, group, by_number);
            self.last_pass = Instant::now();
            if !self.awaited.is_empty() {
                continue;
            }
            if denied {
                return Progress::Denied;
            }
            self.dead.clear();
            if brood.reap() == Left::Nothing {
                return Progress::Done;
            }
            // Someone lives whom the table did not show.
            by_number = listed == 0 && brood.live(false).is_empty();
        }
    }

    /// Takes those who have died off the list; in the calm they are reaped on the way, while others still die. One look
    /// per wake-up and not one per process.
    fn is_somebody_awaited(&mut self, brood: &mut Brood) -> bool {
        while let Some(&pid) = if self.storm { self.awaited.back() } else { self.awaited.front() } {
            if sys::look(pid) == Look::Live {
                return true;
            }
            if self.storm {
                self.awaited.pop_back();
            } else {
                self.awaited.pop_front();
                brood.reap_if_left_over(pid);
            }
        }
        false
    }

    /// Signals everyone who is found.
    fn pass(&mut self, brood: &mut Brood, group: Option<&Group>, by_number: bool) -> Found {
        // Once: whoever forks in a group that is sent SIGKILL has the signal before the child exists.
        if let Some(group) = group
            && (self.passes == 1 || brood.only_group)
        {
            group.signal(libc::SIGKILL);
        }
        let mut result = Found { listed: 0, denied: false };
        self.awaited.clear();
        for pid in brood.found(by_number) {
            if self.dead.contains(&pid) {
                continue;
            }
            match sys::kill_child(pid, libc::SIGKILL) {
                Kill::Sent => {
                    self.awaited.push_back(pid);
                    self.storm |= group.is_none_or(|group| sys::group_of(pid) != Some(group.id()));
                }
                Kill::Denied => result.denied = true,
                Kill::Dead if self.storm => {
                    self.dead.insert(pid);
                    continue;
                }
                Kill::Dead => {
                    brood.reap_if_left_over(pid);
                    continue;
                }
                Kill::NotOurs => continue,
            }
            result.listed += 1;
        }
        // Whoever is deeper moves up. Where there are many that takes too long.
        if self.passes == 1 || self.storm {
            self.descend(brood, group);
        }
        result
    }
}

impl Killing {
    /// Signals deeper ones, each as soon as it is found: whoever forks without pause leaves us little time.
    fn descend(&mut self, brood: &Brood, group: Option<&Group>) {
        if let Some(&first) = brood.own.first()
            && let Some(signalled) =
                sys::kill_family(self.awaited.iter().chain(&self.dead).copied(), first, group)
        {
            self.storm |= signalled > 0;
            return;
        }
        if self.passes == 1 {
            return;
        }
        // Through the process table, which is slower: not for long, and on from where it stopped, since whoever was
        // signalled may take its time to die.
        if self.below.is_empty() {
            let found = sys::below(self.awaited.make_contiguous(), false);
            self.below = found.into_iter().map(|(pid, parent)| Deeper { pid, parent, held: None }).collect();
        }
        let mut left = DESCENTS;
        while left > 0
            && let Some(Deeper { pid, parent, held }) = self.below.pop_front()
        {
            left -= 1;
            let Ok(Some(handle)) = sys::handle_of_descendant(pid, parent) else { continue };
            // The parent's number is still the parent's.
            if !held.map_or_else(|| sys::look(parent) != Look::NotOurs, |held| held.is_unreaped()) {
                continue;
            }
            // Its children first: once it is gone they are elsewhere.
            let children = sys::below(&[pid], false);
            if handle.signal(libc::SIGKILL).is_ok() {
                let handle = Rc::new(handle);
                let deeper = |(pid, parent)| Deeper { pid, parent, held: Some(Rc::clone(&handle)) };
                self.below.extend(children.into_iter().map(deeper));
            }
        }
    }
}

/// What a pass found alive.
struct Found {
    listed: usize,
    denied: bool,
}
