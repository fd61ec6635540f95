//! The brood: every live descendant of this process, and how it is ended and shown to be ended.
//!
//! This process is a subreaper (prctl(2)): a descendant that loses its parent becomes its child. So it need not know
//! the tree. It kills its children, their children become its own, and when none is left it asks waitid(2), which
//! answers ECHILD: nothing is left below. That answer is the proof.
//!
//! Nothing is reaped during a fork storm. A zombie keeps its process slot, so what forks without pause under a limit
//! runs out of slots. A storm is over when a pass finds no process that had not been sent SIGKILL before: then, and
//! where all that was found is in the group, which one signal ends, the dead are reaped while others still die. Some
//! die only after that: the first process of a pid namespace waits until its members are reaped.
//!
//! Passes are driven by SIGCHLD: a dying process hands over its children before its parent gets SIGCHLD.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdfast_wire::{By, EndFacts, Exit, MAX_NAMED, Mechanism, Outcome, ProcessInfo, Reason, Settle, Usage};

use crate::ends::group::{Scan, hold_listed};
use crate::ends::ladder::{BUDGET, REFUSAL_GRACE};
use crate::ends::set_uid::SetUid;
use crate::sys::{
    self, ChildState, ChildrenFile, Delivery, Group, Handle, Kill, Killed, LimitedUser, Listed, Pid,
};

/// What is below this process.
#[derive(Default)]
pub struct Brood {
    /// The list of our children. A keeper hands it from call to call.
    pub table: RefCell<ChildrenFile>,
    /// Children that are not of the brood: a spawn helper's living keepers.
    pub outsiders: BTreeSet<Pid>,
    /// Counts only children in this session, the lost keeper's. Set when this process may have children that are not
    /// of the brood.
    pub only_session: Option<Pid>,
    /// The call's own processes, which no report names: the command's first one, until it is reaped, and the pin.
    pub own: Vec<Pid>,
    /// The command's first process. What it started has a later number.
    pub first: Option<Pid>,
    /// How the first process ended, once it is reaped.
    pub first_exit: Option<Exit>,
    /// Everything reaped so far.
    pub usage: Usage,
    /// The children that counted in the last pass of its end.
    pub listed: Vec<Pid>,
    /// For a spawn helper: unreaped children that cannot belong to another brood.
    pub certain: BTreeSet<Pid>,
    /// When the ladder's first signal was sent to all, if it was.
    pub first_signal: Option<Instant>,
    /// Whether what is reaped counts as left over.
    pub recording: bool,
    /// Left over, the first [`MAX_NAMED`].
    pub named: Vec<ProcessInfo>,
    /// Left over, all.
    pub counted: BTreeSet<Pid>,
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

    /// The children that count, by the process table or, failing that, by a waitid(2) for every pid.
    fn found(&self, by_number: bool) -> Vec<Pid> {
        let listed = if by_number { None } else { self.children() };
        let mut list = listed.unwrap_or_else(|| sys::children_by_number(&self.outsiders));
        list.retain(|&pid| self.counts(pid));
        list
    }

    fn counts(&self, pid: Pid) -> bool {
        let in_session = |session| self.own.contains(&pid) || sys::session_of(pid) == Some(session);
        !self.outsiders.contains(&pid) && self.only_session.is_none_or(in_session)
    }

    /// The children that count and are alive.
    fn live(&self, by_number: bool) -> Vec<Pid> {
        let mut list = self.found(by_number);
        list.retain(|&pid| sys::child_state(pid) == ChildState::Alive);
        list
    }

    /// The live processes below: children and deeper ones, the command's first one too.
    pub fn survivors(&self) -> Vec<Pid> {
        let mut all = self.live(false);
        // Below a live process there may be zombies that it has not reaped.
        all.extend(sys::descendants(&all).into_iter().map(|(pid, _)| pid).filter(|&pid| sys::is_alive(pid)));
        all
    }

    /// The live children.
    pub fn children_left(&self) -> Vec<Pid> {
        self.live(false)
    }

    /// Left over and ended: everything that was counted and is not among the survivors. Names of the first
    /// [`MAX_NAMED`], and how many there are.
    pub fn leftovers(&self, survivors: &[Pid]) -> (Vec<ProcessInfo>, u32) {
        let lives = |raw: i32| survivors.iter().any(|pid| pid.raw() == raw);
        let named = self.named.iter().filter(|process| !lives(process.pid)).cloned().collect();
        let count = self.counted.iter().filter(|pid| !lives(pid.raw())).count();
        (named, count as u32)
    }

    /// Counts these as left over, unless they are the call's own. For processes that are not our children: each may be
    /// reaped by its own parent, or by the first process of a pid namespace.
    pub fn note(&mut self, list: impl IntoIterator<Item = Pid>) {
        for pid in list {
            if !self.recording || self.own.contains(&pid) || self.counted.contains(&pid) {
                continue;
            }
            let process = (self.named.len() < MAX_NAMED).then(|| sys::process_info(pid));
            // Its own parent has reaped it since it was found: it had left by itself, and its name could not be read.
            if !sys::exists(pid) {
                continue;
            }
            self.counted.insert(pid);
            self.named.extend(process);
        }
    }

    /// Holds those of the list, processes below our children each with its parent, that are outside the group. Counts
    /// them and the members of the group as left over.
    pub fn hold(&mut self, listed: &[(Pid, Pid)], group: Option<&Group>) -> (Scan, BTreeMap<Pid, Handle>) {
        let in_group = |pid: Pid| group.is_some_and(|group| group.has(pid));
        let is_root = |pid: Pid| sys::child_state(pid) != ChildState::NotOurs || in_group(pid);
        let mut held = BTreeMap::new();
        let found = hold_listed(listed, &mut held, is_root, in_group, |_| ());
        // The list itself is not to be trusted: of another pid namespace it names other processes.
        self.note(listed.iter().map(|&(pid, _)| pid).filter(|pid| held.contains_key(pid) || in_group(*pid)));
        (found, held)
    }

    /// Holds everything below these children that is outside the group. `None`: not all of it was listed.
    fn hold_few(&mut self, listed: &Listed, group: Option<&Group>) -> Option<BTreeMap<Pid, Handle>> {
        listed.is_complete.then(|| self.hold(listed, group).1)
    }

    /// Holds those of these processes that are set-uid programs in the group.
    fn shared_members(
        &self,
        user: &LimitedUser,
        group: &Group,
        among: impl IntoIterator<Item = Pid>,
    ) -> Vec<(Pid, Handle)> {
        let is_member = |&pid: &Pid| group.has(pid);
        let shared = among.into_iter().filter(is_member).filter(|&pid| user.shares(pid, None));
        let held = shared.filter_map(|pid| Some((pid, Handle::open(pid).ok()?)));
        // Still a member once it is held: so it is that process.
        held.filter(|(pid, _)| is_member(pid)).collect()
    }

    /// Signals everything once: the group by its pin, the rest one by one, with a SIGCONT after it, so that a stopped
    /// process can act on the signal. The deeper ones first: a process that has lost its parent to the signal is not
    /// where it was found.
    ///
    /// SIGKILL is kept from set-uid programs outside the group: the killing that follows sends them SIGTERM first.
    pub fn signal_all(&mut self, group: Option<&Group>, signal: i32) {
        let user = if signal == sys::SIGKILL { LimitedUser::now() } else { None };
        self.signal_others(group, signal, |pid| user.as_ref().is_some_and(|user| user.shares(pid, None)));
    }

    /// [`signal_all`](Brood::signal_all), where a process that has received the signal already gets SIGCONT alone.
    pub fn signal_others(&mut self, group: Option<&Group>, signal: i32, has_it: impl Fn(Pid) -> bool) {
        let signals = [signal, sys::SIGCONT];
        let signals_for = |pid: Pid| if has_it(pid) { &signals[1..] } else { &signals[..] };
        let children = self.live(false);
        let in_group = |pid: Pid| group.is_some_and(|group| group.has(pid));
        let (below, held) = self.hold(&sys::descendants(&children), group);
        let mut signalled = BTreeSet::new();
        for pid in below.new.into_iter().rev() {
            // Each of the signals, also when the one before was refused.
            if signals_for(pid).iter().filter(|&&signal| held[&pid].signal(signal).is_ok()).count() > 0 {
                signalled.insert(pid);
            }
        }
        let members: Vec<Pid> = children.iter().copied().filter(|&pid| in_group(pid)).collect();
        let mut signal_children = |list: Vec<Pid>| {
            for pid in list {
                if signalled.insert(pid) {
                    for &signal in signals_for(pid) {
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
        // A process that was re-parented in the middle of this is our child by now.
        let late = self.live(false).into_iter().filter(|&pid| reached.contains(&false) || !in_group(pid));
        signal_children(late.collect());
    }

    /// Whether nothing is alive below. Reaps nothing.
    pub fn is_settled(&self) -> bool {
        self.live(false).is_empty()
    }

    /// Reaps the zombies that are not the call's own, while the call goes on. Whether nothing is alive below.
    pub fn reap_adopted(&mut self) -> bool {
        let mut settled = true;
        let Some(list) = self.children() else {
            // Without a table the first zombie hides the others: what holds the group, if that is the first process.
            while let Ok(Some(pid)) = sys::peek_adopted()
                && !self.own.contains(&pid)
            {
                self.reap_one(pid);
            }
            return self.is_settled();
        };
        for pid in list {
            match sys::child_state(pid) {
                ChildState::Alive => settled = false,
                ChildState::Exited(_) if !self.own.contains(&pid) => self.reap_one(pid),
                _ => (),
            }
        }
        settled
    }

    /// Reaps every zombie.
    pub fn reap(&mut self) -> Left {
        let is_all = self.outsiders.is_empty() && self.only_session.is_none();
        if is_all { self.reap_everything() } else { self.reap_listed() }
    }

    fn reap_everything(&mut self) -> Left {
        loop {
            if self.recording && self.named.len() < MAX_NAMED {
                match sys::peek_any() {
                    Ok(Some(pid)) => self.reap_one(pid),
                    Ok(None) => return Left::Some,
                    Err(_) => return Left::Nothing,
                }
                continue;
            }
            match sys::reap_any() {
                Ok(Some(reaped)) => self.count(reaped),
                Ok(None) => return Left::Some,
                Err(_) => return Left::Nothing,
            }
        }
    }

    /// With outsiders among our children only the process table shows what is left.
    fn reap_listed(&mut self) -> Left {
        for pid in self.found(false) {
            if let ChildState::Exited(_) = sys::child_state(pid) {
                self.reap_one(pid);
            }
        }
        if self.found(false).is_empty() { Left::Nothing } else { Left::Some }
    }

    /// Reaps this zombie, unless it is one of the call's own, which hold the group's number.
    fn reap_if_left_over(&mut self, pid: Pid) {
        if !self.own.contains(&pid) {
            self.reap_one(pid);
        }
    }

    /// Reaps this zombie.
    pub fn reap_one(&mut self, pid: Pid) {
        self.note([pid]);
        if let Some(reaped) = sys::reap(pid) {
            self.count(reaped);
        }
    }

    fn count(&mut self, reaped: sys::Reaped) {
        self.usage.add(reaped.usage);
        self.certain.remove(&reaped.pid);
        if self.own.contains(&reaped.pid) {
            if self.first == Some(reaped.pid) {
                self.first_exit = Some(reaped.exit);
            }
            self.own.retain(|&pid| pid != reaped.pid);
            return;
        }
        if self.recording {
            self.counted.insert(reaped.pid);
        }
    }
}

/// What a keeper reports of an end; `proof_time` in microseconds.
pub fn facts(
    brood: &Brood,
    mechanism: Mechanism,
    outcome: Outcome,
    reason: Reason,
    proof_time: u64,
) -> EndFacts {
    let survivors = if outcome == Outcome::Survivors { brood.survivors() } else { Vec::new() };
    let (leftovers, leftover_count) = brood.leftovers(&survivors);
    EndFacts {
        outcome,
        mechanism,
        by: By::Keeper,
        reason,
        proof_time,
        usage: brood.usage,
        leftover_count,
        leftovers,
        survivors: survivors.into_iter().take(MAX_NAMED).map(sys::process_info).collect(),
        settle: Settle::Quiet,
    }
}

/// How far the killing is.
#[derive(Debug, PartialEq, Eq)]
pub enum Progress {
    /// Go on at the next SIGCHLD, or at [`Killing::next_time`].
    Waiting,
    /// Nothing is left: the proof.
    Done,
    /// The time is up, or every live child refuses to be signalled. [`Killing::advance`] may still be called.
    Survivors,
}

/// SIGKILL to everything until nothing is left: the one way in which keeper, spawn helper and runner end a brood.
pub struct Killing {
    /// The first SIGKILL.
    pub since: Instant,
    /// When what lives is a survivor.
    deadline: Instant,
    /// Children that accepted SIGKILL and were not seen dead.
    awaited: VecDeque<Pid>,
    /// Everything that accepted SIGKILL and was not reaped: it forks no more.
    hit: HashSet<Pid>,
    /// Zombies that were seen and are not reaped.
    dead: HashSet<Pid>,
    /// Processes below our children that are still to be signalled.
    below: VecDeque<Deeper>,
    /// Passes that found a process for the first time.
    generations: u32,
    is_first_pass: bool,
    last_pass: Instant,
    /// Interval between two passes.
    pause: Duration,
    /// When to look again although no SIGCHLD may come.
    look_again: Option<Instant>,
    /// The last SIGKILL that was accepted, or the last death.
    last_success: Option<Instant>,
    /// Children that refused the signal in the last pass.
    denied: Vec<Pid>,
    /// There is a fork storm, see CALM_GENERATIONS.
    storm: bool,
    /// Set-uid programs, where they have to be sent SIGTERM first.
    set_uid: Option<SetUid>,
    /// Set-uid programs among our children that were left alone in the last pass.
    spared: Vec<Pid>,
    /// The group was sent SIGKILL as a whole.
    group_has_it: bool,
    /// The group has an end of its own beside this one ([`Tracked::end`](crate::ends::group::Tracked::end)), which
    /// signals it as often as necessary.
    is_beside_group_end: bool,
}

/// Everything below these children, if it is little.
fn list_few(children: &[Pid]) -> Listed {
    if children.len() > SMALL_FAMILY {
        return Listed::default();
    }
    let live: Vec<Pid> =
        children.iter().copied().filter(|&pid| sys::child_state(pid) == ChildState::Alive).collect();
    sys::few_descendants(&live, SMALL_FAMILY)
}

/// A process below a child of ours.
struct Deeper {
    pid: Pid,
    parent: Pid,
    /// The parent, unless that is our child.
    held: Option<Rc<Handle>>,
}

/// More passes than these that find a new process, or a live process outside the group, mean a fork storm. Then nothing
/// is reaped before a pass finds no new process, and such a pass does not wait for the last death.
const CALM_GENERATIONS: u32 = 2;
/// A family of at most this many is found through the lists of children, before anything is signalled.
const SMALL_FAMILY: usize = 32;
/// Deeper processes in one pass, where the process table has to be read for each.
const DESCENTS: u32 = 128;
/// Shortest interval between passes.
const PAUSE: Duration = Duration::from_millis(2);
/// Without a storm the interval is `CALM_PAUSES` times what the last pass took, so that passes stay a small part of the
/// work, and at most `CALM_PAUSE`.
const CALM_PAUSES: u32 = 8;
const CALM_PAUSE: Duration = Duration::from_millis(50);
/// Polling interval for processes below a child that refuses signals: their end brings no SIGCHLD.
const REFUSAL_PAUSE: Duration = Duration::from_millis(20);
/// A process that accepted SIGKILL and only waits for a processor is no survivor. The deadline is moved by this much,
/// and at most `STARVED_AT_MOST` times.
const STARVED: Duration = Duration::from_secs(1);
const STARVED_AT_MOST: u32 = 30;

impl Killing {
    /// Begins; nothing is signalled before [`advance`](Killing::advance).
    pub fn begin() -> Killing {
        let since = Instant::now();
        Killing {
            since,
            deadline: since + BUDGET,
            awaited: VecDeque::new(),
            hit: HashSet::new(),
            dead: HashSet::new(),
            below: VecDeque::new(),
            generations: 0,
            is_first_pass: true,
            last_pass: since,
            pause: PAUSE,
            look_again: None,
            last_success: None,
            denied: Vec::new(),
            storm: false,
            set_uid: None,
            spared: Vec::new(),
            group_has_it: false,
            is_beside_group_end: false,
        }
    }

    /// [`begin`](Killing::begin) where orphans are not ours: the group's own end finds set-uid programs by itself.
    pub fn beside_group_end() -> Killing {
        Killing { is_beside_group_end: true, ..Killing::begin() }
    }

    /// When what lives is a survivor.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// When to call [`advance`](Killing::advance) again if no SIGCHLD comes before.
    pub fn next_time(&self) -> Instant {
        self.look_again.map_or(self.deadline, |time| time.min(self.deadline))
    }

    /// Goes as far as possible without waiting.
    pub fn advance(&mut self, brood: &mut Brood, group: Option<&Group>) -> Progress {
        self.look_again = None;
        let mut by_number = false;
        let mut passed = false;
        loop {
            if self.is_awaiting(brood) && (passed || self.last_pass.elapsed() < self.pause) {
                // What has died may have left us children, or hold up others until it is reaped.
                let again = (self.storm || !passed).then_some(self.last_pass + self.pause);
                self.look_again = again.into_iter().chain(self.asked_until()).min();
                return self.waiting();
            }
            // One pass at each call even then: survivors are reported at the deadline, and pursued after it.
            if passed && Instant::now() >= self.deadline {
                return self.waiting();
            }
            passed = true;
            let listed = self.pass(brood, group, by_number);
            if !self.awaited.is_empty() {
                continue;
            }
            if let Some(until) = self.asked_until() {
                // A set-uid program may wait for the dead to be reaped.
                self.calm_down(brood);
                self.look_again = Some(until);
                return self.waiting();
            }
            if !self.denied.is_empty() {
                return self.refused(brood, group);
            }
            self.dead.clear();
            if brood.reap() == Left::Nothing {
                return Progress::Done;
            }
            // A live child that the table does not show.
            by_number = listed == 0 && brood.live(false).is_empty();
        }
    }

    /// When to look again at set-uid programs that are left alone.
    fn asked_until(&self) -> Option<Instant> {
        self.set_uid.as_ref().filter(|set_uid| set_uid.is_waiting()).map(SetUid::next_time)
    }

    /// Before the deadline, or as long as what accepted SIGKILL only waits for a processor.
    fn waiting(&mut self) -> Progress {
        let now = Instant::now();
        if now < self.deadline {
            return Progress::Waiting;
        }
        let is_starved = !self.awaited.is_empty() && self.awaited.iter().all(|&pid| sys::is_runnable(pid));
        let is_quiet = self.generations <= CALM_GENERATIONS && !self.storm && self.denied.is_empty();
        if is_starved && is_quiet && now < self.since + BUDGET + STARVED * STARVED_AT_MOST {
            self.deadline = now + STARVED;
            return Progress::Waiting;
        }
        Progress::Survivors
    }

    /// Every live child refuses the signal. There is some time left for descendants that accept it, and for processes
    /// that exit by themselves once others are gone.
    fn refused(&mut self, brood: &mut Brood, group: Option<&Group>) -> Progress {
        let (_, held) = brood.hold(&sys::descendants(&self.denied), group);
        let mut is_accepted = false;
        for (&pid, handle) in &held {
            // A zombie always accepts it.
            is_accepted |=
                self.spares(pid, handle) || !handle.has_ended() && handle.signal(sys::SIGKILL).is_ok();
        }
        let now = Instant::now();
        if is_accepted {
            self.last_success = Some(now);
        }
        let has_grace = self.last_success.is_some_and(|last| now < last + REFUSAL_GRACE);
        if !has_grace || now >= self.deadline {
            return Progress::Survivors;
        }
        self.look_again = Some(now + REFUSAL_PAUSE);
        Progress::Waiting
    }

    /// Takes the dead off the list; without a storm they are reaped on the way, while others still die. One look for
    /// each wake-up and not one for each process.
    fn is_awaiting(&mut self, brood: &mut Brood) -> bool {
        while let Some(&pid) = if self.storm { self.awaited.back() } else { self.awaited.front() } {
            if sys::child_state(pid) == ChildState::Alive {
                return true;
            }
            self.last_success = Some(Instant::now());
            if self.storm {
                self.awaited.pop_back();
            } else {
                self.awaited.pop_front();
                self.hit.remove(&pid);
                brood.reap_if_left_over(pid);
            }
        }
        false
    }

    /// Signals every process that is found. Returns how many live children there were.
    fn pass(&mut self, brood: &mut Brood, group: Option<&Group>, by_number: bool) -> usize {
        let began = Instant::now();
        let is_first = std::mem::take(&mut self.is_first_pass);
        if self.set_uid.as_mut().is_some_and(SetUid::take_ended) {
            self.last_success = Some(began);
        }
        // The group's own end does this by itself.
        if is_first && !self.is_beside_group_end {
            self.set_uid = SetUid::begin(brood.first_signal);
        }
        let children = brood.found(by_number);
        brood.listed.clone_from(&children);
        // Before anything is signalled: chains of parents hold until then. Not in a storm, which leaves no time for it.
        let is_early = self.generations <= CALM_GENERATIONS;
        let below = if is_early { list_few(&children) } else { Listed::default() };
        // A signal to the whole group would hit set-uid programs that have to get SIGTERM first.
        let asks_members = is_first && group.is_some() && self.set_uid.is_some();
        let mut shared = Vec::new();
        if let (Some(set_uid), Some(group)) = (&self.set_uid, group)
            && asks_members
            && below.is_complete
        {
            let all = children.iter().copied().chain(below.iter().map(|&(pid, _)| pid));
            shared = brood.shared_members(&set_uid.user, group, all);
        }
        let is_split = !shared.is_empty() || !self.group_has_it && self.is_waiting_in(group);
        let group = group.filter(|_| !is_split);
        let few = brood.hold_few(&below, group);
        self.kill_held(shared);
        // The members of a large group are looked at together with what is below, after the children have the signal.
        let is_deferred = asks_members && !below.is_complete;
        if !is_deferred {
            self.kill_group(group);
        }
        let (mut listed, mut new) = (0, 0);
        self.denied.clear();
        self.awaited.clear();
        self.spared.clear();
        for pid in children {
            if self.dead.contains(&pid) {
                continue;
            }
            if let Some(set_uid) = &mut self.set_uid
                && !self.hit.contains(&pid)
                && set_uid.spares_child(pid)
            {
                self.spared.push(pid);
                listed += 1;
                continue;
            }
            match sys::kill_child(pid, sys::SIGKILL) {
                Kill::Sent => {
                    self.awaited.push_back(pid);
                    if self.hit.insert(pid) {
                        new += 1;
                        self.storm |= group.is_none_or(|group| !group.has(pid));
                    }
                }
                Kill::Denied => self.denied.push(pid),
                Kill::Dead => {
                    self.hit.remove(&pid);
                    let is_own = brood.own.contains(&pid);
                    // The group's signal may have been quicker. The pin was dead before.
                    if !is_own || brood.first == Some(pid) {
                        self.last_success = Some(began);
                    }
                    if self.storm || is_own {
                        self.dead.insert(pid);
                    } else {
                        brood.reap_if_left_over(pid);
                    }
                    continue;
                }
                Kill::NotOurs => continue,
            }
            listed += 1;
        }
        // Descendants become our children as their parents die. For many of them that takes too long.
        let must_descend = if is_first { few.is_none() } else { self.storm };
        new += self.kill_held(few.unwrap_or_default());
        if must_descend {
            let known = self.hit.len();
            self.descend(brood, group, is_first);
            if is_deferred && self.is_waiting_in(group) {
                // The others in it are killed one by one.
                self.storm = true;
                self.descend(brood, None, false);
            } else if is_deferred {
                self.kill_group(group);
            }
            new += self.hit.len() - known;
        }
        if new > 0 {
            self.generations += 1;
            self.storm |= self.generations > CALM_GENERATIONS;
            self.last_success = Some(began);
        } else if self.storm {
            self.calm_down(brood);
        }
        self.last_pass = Instant::now();
        self.pause = if self.storm {
            PAUSE
        } else {
            ((self.last_pass - began) * CALM_PAUSES).clamp(PAUSE, CALM_PAUSE)
        };
        listed
    }

    /// No process was found that had not been sent SIGKILL before: the storm is over. The dead are reaped although
    /// others are still dying, since these may wait for just that: the first process of a pid namespace does not end
    /// before its members are reaped, which are our children where their parents were outside of it
    /// (pid_namespaces(7)).
    fn calm_down(&mut self, brood: &mut Brood) {
        self.storm = false;
        for pid in std::mem::take(&mut self.dead) {
            self.hit.remove(&pid);
            brood.reap_if_left_over(pid);
        }
    }

    /// Returns how many of them had not been sent SIGKILL before.
    fn kill_held(&mut self, held: impl IntoIterator<Item = (Pid, Handle)>) -> usize {
        let mut new = 0;
        for (pid, handle) in held {
            if !self.spares(pid, &handle) && handle.signal(sys::SIGKILL).is_ok() && self.hit.insert(pid) {
                new += 1;
                self.storm = true;
            }
        }
        new
    }

    /// Once is enough: a process that forks in a group that was sent SIGKILL has the signal before its child exists.
    fn kill_group(&mut self, group: Option<&Group>) {
        if let Some(group) = group
            && (!std::mem::replace(&mut self.group_has_it, true) || self.is_beside_group_end)
        {
            group.signal(sys::SIGKILL);
        }
    }

    /// Whether a set-uid program in this group is left alone for now.
    fn is_waiting_in(&self, group: Option<&Group>) -> bool {
        let set_uid = self.set_uid.as_ref();
        group.is_some_and(|group| set_uid.is_some_and(|set_uid| set_uid.is_waiting_in(group)))
    }

    fn spares(&mut self, pid: Pid, handle: &Handle) -> bool {
        self.set_uid.as_mut().is_some_and(|set_uid| set_uid.spares(pid, handle))
    }

    /// Signals deeper ones, each as soon as it is found: a fork storm leaves little time.
    fn descend(&mut self, brood: &Brood, group: Option<&Group>, is_first: bool) {
        let roots = self.awaited.iter().chain(&self.denied).chain(&self.spared).chain(&self.dead);
        let user = self.set_uid.as_ref().map(|set_uid| &set_uid.user);
        if let Some(first) = brood.first
            && let Some(Killed { signalled, shared }) = sys::kill_below(roots.copied(), first, group, user)
        {
            self.storm |= !signalled.is_empty();
            self.hit.extend(signalled);
            self.kill_held(shared);
            return;
        }
        if is_first {
            if let (Some(set_uid), Some(group), Some(first)) = (&self.set_uid, group, brood.first) {
                let members = sys::found_members(group.id(), first);
                let shared = brood.shared_members(&set_uid.user, group, members);
                self.kill_held(shared);
            }
            return;
        }
        // Through the process table, which is slower: not for long, and on from where it stopped, since what was
        // signalled may take its time to die.
        if self.below.is_empty() {
            let parents: Vec<Pid> =
                self.awaited.iter().chain(&self.denied).chain(&self.spared).copied().collect();
            let found = sys::children_of(&parents, false);
            self.below = found.into_iter().map(|(pid, parent)| Deeper { pid, parent, held: None }).collect();
        }
        let mut left = DESCENTS;
        while left > 0
            && let Some(Deeper { pid, parent, held }) = self.below.pop_front()
        {
            left -= 1;
            let Ok(Some(handle)) = sys::handle_of_descendant(pid, parent) else { continue };
            // The parent's pid must still be the parent's.
            if !held
                .map_or_else(|| sys::child_state(parent) != ChildState::NotOurs, |held| held.is_unreaped())
            {
                continue;
            }
            // Its children are listed first: once it is gone they have another parent.
            let children = sys::children_of(&[pid], false);
            let is_spared = self.spares(pid, &handle);
            if is_spared || handle.signal(sys::SIGKILL).is_ok() {
                if !is_spared {
                    self.hit.insert(pid);
                }
                let handle = Rc::new(handle);
                let deeper = |(pid, parent)| Deeper { pid, parent, held: Some(Rc::clone(&handle)) };
                self.below.extend(children.into_iter().map(deeper));
            }
        }
    }
}
