//! The end of a group that somebody else started: it is held by something that is not its number, signalled through
//! that, and shown to be ended by the process table, or by the kernel where it says that the group is empty.
//!
//! Unlike a brood ([`brood`](crate::brood)) a group is not below us: nobody tells us of a member's end by SIGCHLD, so
//! each one is waited for through a [`Handle`]. Whoever left the group is reached as long as the chain of parents to a
//! member holds.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use crate::sys::{self, Delivery, Group, Handle, LedGroup, LiveMembers, Pid, Turn};

/// Where an end cannot be polled for, it is looked for so often.
pub const AGAIN: Duration = Duration::from_millis(50);
/// Looks that follow whoever forks while it is being stopped.
const MOST_LOOKS: u32 = 64;

/// What holds a group, so that whoever is signalled is a member of it.
pub enum Hold {
    /// A pin of ours is a member.
    Pin(Group),
    /// A descriptor of the process that leads it, or led it.
    Leader(LedGroup),
    /// A descriptor of every member that was found.
    Members(Members),
}

/// How a group ended.
#[derive(Debug, PartialEq, Eq)]
pub enum GroupEnd {
    /// No live member is left: seen twice in a row, or said by the kernel.
    Ended,
    /// Signals were sent, and it cannot be told who is left.
    Unconfirmed,
    /// The time is up, or whoever lives refuses to be signalled.
    Survivors(Vec<Pid>),
    /// Nothing was sent: the group is not held, or we may be a member of it.
    Refused,
}

/// Who lives in the group that is held.
#[derive(Debug, PartialEq, Eq)]
pub enum Live {
    /// These.
    These(Vec<Pid>),
    /// The group is empty, and its number may lead to another one by now.
    Nobody,
    /// It cannot be told. Never to be taken for nobody.
    Unknown,
}

/// What a look for those who left the group has brought.
#[derive(Debug, Default)]
pub struct Found {
    /// Held now and not before, parents first.
    pub new: Vec<Pid>,
    /// Somebody is there who cannot be held (no free descriptor).
    pub missed: bool,
}

/// SIGKILL to a pinned group until no live member is left.
pub fn end_pinned_group(group: &Group, deadline: Instant) -> GroupEnd {
    Hold::Pin(*group).end(deadline)
}

/// Members of a group, each held by a descriptor of its own, for kernels that cannot signal a group through its leader.
///
/// The number of a group is not given out again while a member is unreaped. So a look at the table counts if somebody
/// who was held before it is unreaped after it; or if the kernel has not come around to that number since such a look.
pub struct Members {
    group: Pid,
    held: BTreeMap<Pid, Handle>,
    /// So many were ever taken hold of.
    found: usize,
    /// When a look last counted.
    tied: Option<Turn>,
    /// Somebody has the group's number and could not be held, or not be tied to the group.
    stranger: bool,
}

impl Members {
    /// Held by its leader to begin with, who must be unreaped.
    pub fn new(group: Pid, leader: Handle) -> Members {
        Members { group, held: BTreeMap::from([(group, leader)]), found: 1, tied: None, stranger: false }
    }

    /// Takes hold of whoever is new.
    fn look(&mut self) -> Live {
        let turn = Turn::now();
        let LiveMembers::These(listed) = sys::live_members(self.group) else { return Live::Unknown };
        let unknown: Vec<Pid> = listed.into_iter().filter(|pid| !self.held.contains_key(pid)).collect();
        let (mut new, missed) = hold_each(&unknown);
        // Opened first, looked at again after: whoever has the number now has it behind this descriptor.
        new.retain(|&(pid, _)| sys::group_of(pid) == Some(self.group));
        if self.held.values().any(Handle::is_unreaped) || self.is_still_its_own() {
            self.found += new.len();
            self.held.extend(new);
            self.tied = turn;
            self.stranger = missed;
        } else {
            self.stranger = missed || !new.is_empty();
        }
        self.held.retain(|_, handle| handle.is_unreaped());
        let live: Vec<Pid> =
            self.held.iter().filter(|(_, handle)| !handle.has_ended()).map(|(&pid, _)| pid).collect();
        if live.is_empty() && self.stranger { Live::Unknown } else { Live::These(live) }
    }

    /// The leader was reaped. Nobody has its number, and nobody can have had it in between. (Who sets the kernel's count
    /// back, as root may in ns_last_pid, and lets that process go again within the second since the last look, could
    /// deceive us.)
    fn is_still_its_own(&self) -> bool {
        let (Some(then), Some(now)) = (self.tied, Turn::now()) else { return false };
        sys::group_of(self.group).is_none() && now.has_not_come_around_to(self.group, &then)
    }

    /// Each one by itself, so that there is no group that we could be in.
    fn signal(&self, signal: i32) -> Delivery {
        let live = self.held.values().filter(|handle| !handle.has_ended());
        let sent = live.filter(|handle| handle.signal(signal).is_ok()).count();
        if sent > 0 { Delivery::Sent } else { Delivery::Nobody }
    }
}

impl Hold {
    /// In a word.
    pub fn as_str(&self) -> &'static str {
        match self {
            Hold::Pin(_) => "pin",
            Hold::Leader(_) => "pidfd",
            Hold::Members(_) => "members",
        }
    }

    /// The group's number.
    pub fn group(&self) -> Pid {
        match self {
            Hold::Pin(group) => group.id(),
            Hold::Leader(led) => led.id(),
            Hold::Members(members) => members.group,
        }
    }

    /// How many members were found one by one; a group that is held as a whole needs none to be found.
    fn found(&self) -> usize {
        if let Hold::Members(members) = self { members.found } else { 0 }
    }

    /// Signals every member.
    pub fn signal(&self, signal: i32) -> Delivery {
        match self {
            Hold::Pin(group) => group.signal(signal),
            Hold::Leader(led) => led.signal(signal),
            Hold::Members(members) => members.signal(signal),
        }
    }

    /// Who lives. That the group is still held, and so the number still its own, is shown after the look.
    pub fn live(&mut self) -> Live {
        if let Hold::Members(members) = self {
            return members.look();
        }
        let listed = sys::live_members(self.group());
        match (self.signal(0), listed) {
            (Delivery::Nobody, _) => Live::Nobody,
            (Delivery::Sent | Delivery::Denied, LiveMembers::These(list)) => Live::These(list),
            _ => Live::Unknown,
        }
    }

    /// Whoever is below a live member and not in the group, each held. `follow` is called for each one.
    pub fn left(&mut self, held: &mut BTreeMap<Pid, Handle>, follow: impl Fn(&Handle)) -> Found {
        let Live::These(members) = self.live() else { return Found::default() };
        let roots: Vec<Pid> = members.iter().chain(held.keys()).copied().collect();
        let in_group = |pid| sys::group_of(pid) == Some(self.group());
        // The group is held still, after the look at the number.
        let is_root = |pid| in_group(pid) && self.signal(0) != Delivery::Nobody;
        hold_below(&roots, held, is_root, in_group, follow)
    }

    /// SIGKILL to every member, and to whoever left the group and hangs on one, until none of them lives.
    ///
    /// First all are stopped, so that nobody forks or changes hands while it is looked for.
    pub fn end(&mut self, deadline: Instant) -> GroupEnd {
        let mut left = BTreeMap::new();
        let mut looks = 0;
        let mut sent = false;
        let missed = loop {
            let known = self.found();
            sent |= self.signal(libc::SIGSTOP) == Delivery::Sent;
            looks += 1;
            let found = self.left(&mut left, |handle| drop(handle.signal(libc::SIGSTOP)));
            let is_late = looks == MOST_LOOKS || Instant::now() >= deadline;
            if found.new.is_empty() && self.found() == known || is_late {
                break found.missed || !found.new.is_empty();
            }
        };
        for handle in left.values() {
            let _ = handle.signal(libc::SIGKILL);
        }
        let end = self.end_members(sent, deadline);
        await_ends(left.values().filter(|handle| !handle.is_denied()), deadline);
        left.retain(|_, handle| !handle.has_ended());
        match end {
            GroupEnd::Survivors(members) => {
                GroupEnd::Survivors(members.into_iter().chain(left.into_keys()).collect())
            }
            GroupEnd::Ended if !left.is_empty() => GroupEnd::Survivors(left.into_keys().collect()),
            GroupEnd::Ended if missed => GroupEnd::Unconfirmed,
            other => other,
        }
    }

    fn end_members(&mut self, mut sent: bool, deadline: Instant) -> GroupEnd {
        let mut seen_empty = 0;
        loop {
            match self.signal(libc::SIGKILL) {
                Delivery::Sent => sent = true,
                Delivery::Nobody | Delivery::Denied => (),
                Delivery::Refused if sent => return GroupEnd::Unconfirmed,
                Delivery::Refused => return GroupEnd::Refused,
            }
            let over = Instant::now() >= deadline;
            match self.live() {
                Live::Nobody => return GroupEnd::Ended,
                Live::These(list) if list.is_empty() && seen_empty == 1 => return GroupEnd::Ended,
                Live::These(list) if list.is_empty() => seen_empty = 1,
                Live::These(list) => {
                    seen_empty = 0;
                    let (held, missed) = hold_each(&list);
                    let handles = || held.iter().map(|(_, handle)| handle);
                    if over || !held.is_empty() && handles().all(Handle::is_denied) {
                        return GroupEnd::Survivors(list);
                    }
                    if let Hold::Members(members) = self {
                        // Whoever was found just now may not wait for us to come back.
                        members.signal(libc::SIGKILL);
                    }
                    await_ends(handles().filter(|handle| !handle.is_denied()), deadline);
                    if missed {
                        await_one(&[], Some(Instant::now() + AGAIN));
                    }
                }
                // Without a table the kernel still says, through a leader's descriptor, when the last one was reaped.
                Live::Unknown if matches!(self, Hold::Leader(_)) && sent && !over => {
                    await_one(&[], Some(Instant::now() + AGAIN));
                }
                Live::Unknown if sent => return GroupEnd::Unconfirmed,
                Live::Unknown => return GroupEnd::Refused,
            }
        }
    }
}

/// A descriptor of each that is there. Whether there is one who cannot be held (no free descriptor).
pub fn hold_each(list: &[Pid]) -> (Vec<(Pid, Handle)>, bool) {
    let mut missed = false;
    let mut held = Vec::with_capacity(list.len());
    for &pid in list {
        match Handle::open(pid) {
            Ok(handle) => held.push((pid, handle)),
            Err(error) => missed |= error.raw_os_error() != Some(libc::ESRCH),
        }
    }
    (held, missed)
}

/// Takes hold of everybody below these, parents first, but for those who are `reached` otherwise. Each is held before it
/// is shown to be a child of its parent, and the parent after that to be one of the family still: by `is_root`, or held
/// and unreaped, so that neither number can be another's.
pub fn hold_below(
    roots: &[Pid],
    held: &mut BTreeMap<Pid, Handle>,
    is_root: impl Fn(Pid) -> bool,
    reached: impl Fn(Pid) -> bool,
    follow: impl Fn(&Handle),
) -> Found {
    hold_listed(&sys::descendants(roots), held, is_root, reached, follow)
}

/// The same for a list of processes, each with its parent, parents first.
pub fn hold_listed(
    listed: &[(Pid, Pid)],
    held: &mut BTreeMap<Pid, Handle>,
    is_root: impl Fn(Pid) -> bool,
    reached: impl Fn(Pid) -> bool,
    follow: impl Fn(&Handle),
) -> Found {
    let mut found = Found::default();
    for &(pid, parent) in listed {
        // One of them may have started us.
        if reached(pid) || held.contains_key(&pid) || Pid::own() == Some(pid) {
            continue;
        }
        match sys::handle_of_descendant(pid, parent) {
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
            let again = handle.pidfd().is_none().then(|| Instant::now() + AGAIN);
            let pidfd: Vec<_> = handle.pidfd().into_iter().collect();
            await_one(&pidfd, Some(again.map_or(deadline, |again| again.min(deadline))));
        }
    }
}

/// Waits until one of these is ready, or the time has come.
pub fn await_one(descriptors: &[BorrowedFd<'_>], until: Option<Instant>) {
    let mut sources: Vec<_> =
        descriptors.iter().map(|&fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let wait = until.map(|until| until.saturating_duration_since(Instant::now()));
    let timeout = wait.and_then(|wait| rustix::event::Timespec::try_from(wait).ok());
    let _ = rustix::event::poll(&mut sources, timeout.as_ref());
}
