//! The end of a group that other code has started: it is held by something that is not its number, signalled through
//! that, and shown to be ended by the process table, or by the kernel where it says that the group is empty.
//!
//! Unlike a brood ([`brood`](crate::ends::brood)) a group is not below us: no SIGCHLD comes at a member's end, so each
//! one is waited for through a [`Handle`]. What left the group is found as long as the chain of parents to a member
//! holds. That chain breaks with the first signal, so what was found once is held until it is dead ([`Tracked`]).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdfast_wire::ProcessInfo;

use crate::ends::ladder::REFUSAL_GRACE;
use crate::ends::set_uid::SetUid;
use crate::sys::{self, Delivery, Group, Handle, LedGroup, LiveMembers, Pid, PidCounter, Wait};

/// Polling interval for processes without an event at their end, and for those that refuse the signal.
const AGAIN: Duration = Duration::from_millis(50);
/// Bound on rescans while the tree keeps forking.
const MOST_LOOKS: u32 = 64;
/// Bound on rescans before the first signal, when nothing is stopped yet.
const MOST_LOOKS_BEFORE: u32 = 4;
/// Descriptors that are left for reading the process table.
const RESERVE: u64 = 4;

/// What holds a group, so that only its members are signalled.
pub enum GroupRef {
    /// A pin of ours is a member.
    Pin(Group),
    /// A descriptor of the process that leads it, or led it.
    Leader(LedGroup),
    /// A descriptor of every member that was found.
    Members(HeldMembers),
}

/// How a group ended.
#[derive(Debug, PartialEq, Eq)]
pub enum GroupEnd {
    /// No live member is left: seen twice in a row, or reported by the kernel.
    Ended,
    /// Signals were sent, and what is left is not known.
    Unconfirmed,
    /// These live: the time is up, or they refuse to be signalled.
    Survivors(Vec<Pid>),
    /// Nothing was sent: the group is not held, or we may be a member of it.
    Refused,
}

/// The live members of the group that is held.
#[derive(Debug, PartialEq, Eq)]
pub enum Members {
    /// The live members.
    Live(Vec<Pid>),
    /// The group is empty, and its number may lead to another one by now.
    Empty,
    /// Not known. Must not be taken for an empty group.
    Unknown,
}

/// What a look for processes below has found.
#[derive(Debug, Default)]
pub struct Scan {
    /// Held now and not before, parents first.
    pub new: Vec<Pid>,
    /// There may be more: one cannot be held (no free descriptor), or a list of children cannot be read.
    pub missed: bool,
}

/// Members of a group, each held by a descriptor of its own, for kernels that cannot signal a group through its leader.
///
/// The number of a group is not given out again while a member is unreaped. So a look at the table counts if a process
/// that was held before it is unreaped after it, or if the pid allocator has not reached that number since such a look.
pub struct HeldMembers {
    group: Pid,
    held: BTreeMap<Pid, Rc<Handle>>,
    /// A member could not be held in the last look (no free descriptor).
    missed: bool,
    /// When a look last counted.
    tied: Option<PidCounter>,
    /// A process has the group's number, and could not be held or not be shown to belong to the group.
    stranger: bool,
}

impl HeldMembers {
    /// Held by its leader to begin with, which must be unreaped.
    pub fn new(group: Pid, leader: Handle) -> HeldMembers {
        let held = BTreeMap::from([(group, Rc::new(leader))]);
        HeldMembers { group, held, missed: false, tied: None, stranger: false }
    }

    /// Holds the members that are new.
    fn look(&mut self) -> Members {
        let turn = PidCounter::now();
        let LiveMembers::These(listed) = sys::live_members(self.group) else { return Members::Unknown };
        let unknown: Vec<Pid> = listed.into_iter().filter(|pid| !self.held.contains_key(pid)).collect();
        let (mut new, missed) = hold_each(&unknown);
        // Opened first, looked at again after: the process that has the pid now is the one behind this descriptor.
        new.retain(|&(pid, _)| sys::group_of(pid) == Some(self.group));
        self.missed = missed;
        if self.held.values().any(|handle| handle.is_unreaped()) || self.is_still_its_own() {
            self.held.extend(new.into_iter().map(|(pid, handle)| (pid, Rc::new(handle))));
            self.tied = turn;
            self.stranger = missed;
        } else {
            self.stranger = missed || !new.is_empty();
        }
        self.held.retain(|_, handle| handle.is_unreaped());
        let live: Vec<Pid> =
            self.held.iter().filter(|(_, handle)| !handle.has_ended()).map(|(&pid, _)| pid).collect();
        if live.is_empty() && self.stranger { Members::Unknown } else { Members::Live(live) }
    }

    /// The leader was reaped. Whether no process has its pid now, and none can have had it in between. False where that
    /// is not known. (Wrong only if root sets ns_last_pid back, and a process takes the pid and leaves it within the
    /// second since the last look.)
    fn is_still_its_own(&self) -> bool {
        let (Some(then), Some(now)) = (self.tied, PidCounter::now()) else { return false };
        sys::group_of(self.group).is_none() && now.has_not_come_around_to(self.group, &then)
    }

    /// Each one by itself, so that there is no group that we could be in.
    fn signal(&self, signal: i32) -> Delivery {
        let live = self.held.values().filter(|handle| !handle.has_ended());
        let sent = live.filter(|handle| handle.signal(signal).is_ok()).count();
        if sent > 0 { Delivery::Sent } else { Delivery::Empty }
    }
}

impl GroupRef {
    /// The name in the guard's `ready` line.
    pub fn as_str(&self) -> &'static str {
        match self {
            GroupRef::Pin(_) => "pin",
            GroupRef::Leader(_) => "pidfd",
            GroupRef::Members(_) => "members",
        }
    }

    /// The group's number.
    pub fn group(&self) -> Pid {
        match self {
            GroupRef::Pin(group) => group.id(),
            GroupRef::Leader(led) => led.id(),
            GroupRef::Members(members) => members.group,
        }
    }

    /// Signals every member.
    pub fn signal(&self, signal: i32) -> Delivery {
        match self {
            GroupRef::Pin(group) => group.signal(signal),
            GroupRef::Leader(led) => led.signal(signal),
            GroupRef::Members(members) => members.signal(signal),
        }
    }

    /// The live members. That the group is still held, and so its number still its own, is shown after the look.
    pub fn live(&mut self) -> Members {
        if let GroupRef::Members(members) = self {
            return members.look();
        }
        let listed = sys::live_members(self.group());
        match (self.signal(0), listed) {
            (Delivery::Empty, _) => Members::Empty,
            (Delivery::Sent | Delivery::Denied, LiveMembers::These(list)) => Members::Live(list),
            _ => Members::Unknown,
        }
    }

    /// Holds these, which were listed as live members. True: one of them could not be held.
    fn hold_each(&self, list: &[Pid]) -> (Vec<(Pid, Rc<Handle>)>, bool) {
        if let GroupRef::Members(members) = self {
            let held = |&pid| Some((pid, Rc::clone(members.held.get(&pid)?)));
            return (list.iter().filter_map(held).collect(), members.missed);
        }
        let (mut held, missed) = hold_each(list);
        // Unreaped after the look at its number, so it was its number; and the group is still held after that.
        held.retain(|(pid, handle)| sys::group_of(*pid) == Some(self.group()) && handle.is_unreaped());
        if !matches!(self.signal(0), Delivery::Sent | Delivery::Denied) {
            held.clear();
        }
        (held.into_iter().map(|(pid, handle)| (pid, Rc::new(handle))).collect(), missed)
    }
}

/// A group, and all live processes of it that were found: its members, and what left it and was below one of them. What
/// was found once is held until it is dead, whatever becomes of its group and of its parent.
pub struct Tracked {
    hold: GroupRef,
    /// Found as members. They may have left the group since.
    members: BTreeMap<Pid, Rc<Handle>>,
    /// Found outside the group.
    left: BTreeMap<Pid, Handle>,
    /// What was there when the end began, except the leader.
    at_begin: BTreeMap<Pid, ProcessInfo>,
    /// Those that accepted SIGKILL.
    killed: BTreeSet<Pid>,
    /// Since the end began something may have been there that was not found, or could not be held.
    missed: bool,
    /// Set-uid programs have been sent SIGTERM.
    has_asked: bool,
}

impl Tracked {
    /// Nothing is found yet.
    pub fn new(hold: GroupRef) -> Tracked {
        let (members, left) = (BTreeMap::new(), BTreeMap::new());
        let (at_begin, killed) = (BTreeMap::new(), BTreeSet::new());
        Tracked { hold, members, left, at_begin, killed, missed: false, has_asked: false }
    }

    /// How the group is held.
    pub fn hold(&self) -> &GroupRef {
        &self.hold
    }

    /// The live processes that were found, as of the last look.
    pub fn handles(&self) -> impl Iterator<Item = &Handle> {
        self.members.values().map(Rc::as_ref).chain(self.left.values())
    }

    /// Their pids.
    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        self.members.keys().chain(self.left.keys()).copied()
    }

    /// Whether a process that was found is alive. Lets go of the dead.
    pub fn is_any_alive(&mut self) -> bool {
        self.members.retain(|_, handle| !handle.has_ended());
        self.left.retain(|_, handle| !handle.has_ended());
        self.killed.retain(|pid| self.members.contains_key(pid) || self.left.contains_key(pid));
        !(self.members.is_empty() && self.left.is_empty())
    }

    /// Looks for members and for what left the group, and holds what is new.
    pub fn look(&mut self) -> Members {
        self.find(|_| ()).0
    }

    /// [`look`](Tracked::look), with `follow` called for each new process outside the group. Returns the live members,
    /// and how many processes are new.
    fn find(&mut self, follow: impl Fn(&Handle)) -> (Members, usize) {
        // A dead process's number may be another one's by now.
        self.is_any_alive();
        let live = self.hold.live();
        let listed = match &live {
            Members::Live(list) => list.clone(),
            Members::Empty => Vec::new(),
            Members::Unknown => {
                self.missed = true;
                return (live, 0);
            }
        };
        let is_new = |pid: &Pid| !self.members.contains_key(pid) && !self.left.contains_key(pid);
        let unknown: Vec<Pid> = listed.iter().copied().filter(is_new).collect();
        let (new, missed) = self.hold.hold_each(&unknown);
        let count = new.len();
        self.members.extend(new);
        let roots: BTreeSet<Pid> = listed.into_iter().chain(self.pids()).collect();
        let (hold, members) = (&self.hold, &self.members);
        let in_group = |pid| sys::group_of(pid) == Some(hold.group());
        let is_root = |pid| match members.get(&pid) {
            Some(handle) => handle.is_unreaped(),
            // The group is held still, after the look at the number.
            None => in_group(pid) && hold.signal(0) != Delivery::Empty,
        };
        let is_member = |pid| members.contains_key(&pid) || in_group(pid);
        let roots: Vec<Pid> = roots.into_iter().collect();
        let found = hold_below(&roots, &mut self.left, is_root, is_member, follow);
        self.missed |= missed || found.missed;
        // A zombie that its parent does not reap would be new in every look.
        let left_before = self.left.len() - found.new.len();
        for pid in found.new {
            if self.left.get(&pid).is_some_and(Handle::has_ended) {
                self.left.remove(&pid);
            }
        }
        (live, count + self.left.len() - left_before)
    }

    /// The end begins: what is there now is left over.
    pub fn begin(&mut self) {
        self.missed = false;
        let live = self.look();
        let listed = if let Members::Live(list) = live { list } else { Vec::new() };
        let leader = self.hold.group();
        let others = listed.into_iter().chain(self.pids()).filter(|&pid| pid != leader);
        self.at_begin = others.map(|pid| (pid, sys::process_info(pid))).collect();
    }

    /// What was there when the end began, except the leader and what is still alive.
    pub fn leftovers(&self) -> impl Iterator<Item = &ProcessInfo> {
        let is_alive = |pid: &Pid| self.members.contains_key(pid) || self.left.contains_key(pid);
        self.at_begin.iter().filter(move |(pid, _)| !is_alive(pid)).map(|(_, process)| process)
    }

    /// The first signal, once to each, and SIGCONT, so that what is stopped can take it.
    pub fn ask_to_end(&mut self, signal: i32) {
        let mut looks = 1;
        while self.find(|_| ()).1 > 0 && looks < MOST_LOOKS_BEFORE {
            looks += 1;
        }
        for signal in [signal, sys::SIGCONT] {
            self.outside().for_each(|handle| drop(handle.signal(signal)));
            self.hold.signal(signal);
        }
    }

    /// Those that a signal to the group does not reach.
    fn outside(&self) -> impl Iterator<Item = &Handle> {
        let reaches_all = matches!(self.hold, GroupRef::Members(_));
        let has_left = move |pid: &Pid| !reaches_all && sys::group_of(*pid) != Some(self.hold.group());
        let moved =
            self.members.iter().filter(move |(pid, _)| has_left(pid)).map(|(_, handle)| handle.as_ref());
        moved.chain(self.left.values())
    }

    /// SIGKILL to all that is found, until none of it lives. `first_signal`: when the ladder's first one was sent to
    /// all, if it was.
    ///
    /// First all are stopped, so that nothing forks or changes hands while it is looked for.
    pub fn end(&mut self, deadline: Instant, first_signal: Option<Instant>) -> GroupEnd {
        if !std::mem::replace(&mut self.has_asked, true)
            && let Some(set_uid) = SetUid::begin(first_signal)
        {
            self.ask_first(set_uid);
        }
        let mut sent = self.stop(deadline);
        let mut seen_empty = 0;
        let mut refusal_until = Instant::now() + REFUSAL_GRACE;
        loop {
            sent |= self.kill();
            let is_late = Instant::now() >= deadline;
            let (live, new) = self.find(|handle| drop(handle.signal(sys::SIGKILL)));
            if self.is_any_alive() {
                seen_empty = 0;
                if new > 0 && !is_late {
                    continue;
                }
                let awaited: Vec<&Handle> = self.awaited().collect();
                if is_late || awaited.is_empty() && Instant::now() >= refusal_until {
                    return self.survivors(live);
                }
                if awaited.is_empty() {
                    let mut wait = Wait::new();
                    for handle in self.handles() {
                        wait.exit(handle);
                    }
                    wait.until(Some(refusal_until.min(Instant::now() + AGAIN)));
                } else {
                    await_ends(awaited, deadline);
                    refusal_until = Instant::now() + REFUSAL_GRACE;
                }
                continue;
            }
            match live {
                Members::Empty => return self.shown(),
                Members::Live(list) if list.is_empty() && seen_empty == 1 => return self.shown(),
                Members::Live(list) if list.is_empty() => seen_empty = 1,
                // It was listed, and has died since or cannot be held.
                Members::Live(_) => {
                    seen_empty = 0;
                    if is_late {
                        return self.survivors(live);
                    }
                    if self.missed {
                        Wait::new().until(Some(Instant::now() + AGAIN));
                    }
                }
                // Without a table the kernel still says, through a leader's descriptor, when the last one was reaped.
                Members::Unknown if matches!(self.hold, GroupRef::Leader(_)) && sent && !is_late => {
                    Wait::new().until(Some(Instant::now() + AGAIN));
                }
                Members::Unknown if sent => return GroupEnd::Unconfirmed,
                Members::Unknown => return GroupEnd::Refused,
            }
        }
    }

    /// Sends SIGTERM to set-uid programs and gives them time to end, while the others are stopped.
    fn ask_first(&mut self, mut set_uid: SetUid) {
        self.look();
        let is_shared = |(pid, handle): (Pid, &Handle)| set_uid.user.shares(pid, Some(handle));
        if !self.pids().zip(self.handles()).any(is_shared) {
            return;
        }
        for look in 1.. {
            // Each by itself: a signal to the group would stop these, too.
            for (pid, handle) in self.pids().zip(self.handles()) {
                if !set_uid.spares(pid, handle) {
                    let _ = handle.signal(sys::SIGSTOP);
                }
            }
            if self.find(|_| ()).1 == 0 || look == MOST_LOOKS {
                break;
            }
        }
        while set_uid.is_waiting() {
            set_uid.wait();
        }
    }

    /// Stops all, until a look finds nothing new. Whether a signal was sent.
    fn stop(&mut self, deadline: Instant) -> bool {
        let mut sent = false;
        for look in 1.. {
            sent |= self.hold.signal(sys::SIGSTOP) == Delivery::Sent;
            sent |= self.outside().filter(|handle| handle.signal(sys::SIGSTOP).is_ok()).count() > 0;
            let (_, new) = self.find(|handle| drop(handle.signal(sys::SIGSTOP)));
            if new == 0 {
                break;
            }
            if look == MOST_LOOKS || Instant::now() >= deadline {
                self.missed = true;
                break;
            }
        }
        sent
    }

    /// SIGKILL to what left the group, to the group, and to each member, to see which accept it. Whether one was sent.
    fn kill(&mut self) -> bool {
        let accepts = |handle: &Handle| handle.signal(sys::SIGKILL).is_ok();
        let left = self.left.iter().filter(|(_, handle)| accepts(handle)).map(|(&pid, _)| pid);
        self.killed.extend(left);
        let sent = self.hold.signal(sys::SIGKILL) == Delivery::Sent;
        let members = self.members.iter().filter(|(_, handle)| accepts(handle)).map(|(&pid, _)| pid);
        self.killed.extend(members);
        sent || !self.killed.is_empty()
    }

    /// Processes that will die: they accepted SIGKILL once, or it is not known that they refuse it.
    fn awaited(&self) -> impl Iterator<Item = &Handle> {
        let all = self.pids().zip(self.handles());
        all.filter(|(pid, handle)| self.killed.contains(pid) || !handle.is_denied()).map(|(_, handle)| handle)
    }

    /// Nothing that was found lives.
    fn shown(&self) -> GroupEnd {
        if self.missed { GroupEnd::Unconfirmed } else { GroupEnd::Ended }
    }

    fn survivors(&self, live: Members) -> GroupEnd {
        let listed = if let Members::Live(list) = live { list } else { Vec::new() };
        let all: BTreeSet<Pid> = listed.into_iter().chain(self.pids()).collect();
        GroupEnd::Survivors(all.into_iter().collect())
    }
}

/// A handle of each process that exists. True: one of them cannot be held (no free descriptor).
fn hold_each(list: &[Pid]) -> (Vec<(Pid, Handle)>, bool) {
    let mut missed = false;
    let mut held = Vec::with_capacity(list.len());
    for &pid in list {
        match Handle::open(pid) {
            Ok(handle) if is_spare(&handle) => held.push((pid, handle)),
            Ok(_) => missed = true,
            Err(error) => missed |= error.raw_os_error() != Some(sys::ESRCH),
        }
    }
    (held, missed)
}

/// Whether enough descriptors are free beside this one for reading the process table.
fn is_spare(handle: &Handle) -> bool {
    sys::are_free_beyond(handle, RESERVE)
}

/// Holds all processes below these, parents first, except those that are `reached` otherwise. Each is held before it is
/// shown to be a child of its parent, and the parent after that to be still a process of the call: by `is_root`, or
/// held and unreaped, so that neither number can be another's.
pub fn hold_below(
    roots: &[Pid],
    held: &mut BTreeMap<Pid, Handle>,
    is_root: impl Fn(Pid) -> bool,
    reached: impl Fn(Pid) -> bool,
    follow: impl Fn(&Handle),
) -> Scan {
    let listed = sys::descendants(roots);
    let found = hold_listed(&listed, held, is_root, reached, follow);
    Scan { missed: found.missed || !listed.is_complete, ..found }
}

/// [`hold_below`] for a list of processes, each with its parent, parents first.
pub fn hold_listed(
    listed: &[(Pid, Pid)],
    held: &mut BTreeMap<Pid, Handle>,
    is_root: impl Fn(Pid) -> bool,
    reached: impl Fn(Pid) -> bool,
    follow: impl Fn(&Handle),
) -> Scan {
    let mut found = Scan::default();
    for &(pid, parent) in listed {
        // One of them may have started us.
        if reached(pid) || held.contains_key(&pid) || Pid::own() == Some(pid) {
            continue;
        }
        match sys::handle_of_descendant(pid, parent) {
            Ok(Some(handle)) if !is_spare(&handle) => found.missed = true,
            Ok(Some(handle)) if is_root(parent) || held.get(&parent).is_some_and(Handle::is_unreaped) => {
                follow(&handle);
                held.insert(pid, handle);
                found.new.push(pid);
            }
            Ok(_) => (),
            Err(_) => found.missed = true,
        }
    }
    found
}

/// Waits until all of them have ended, or the time is up.
fn await_ends<'a>(handles: impl IntoIterator<Item = &'a Handle>, deadline: Instant) {
    for handle in handles {
        while !handle.has_ended() && Instant::now() < deadline {
            let mut wait = Wait::new();
            wait.exit(handle);
            wait.until(Some(deadline));
        }
    }
}
