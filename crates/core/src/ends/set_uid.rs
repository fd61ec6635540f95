//! Set-uid programs, which are sent SIGTERM before they are killed.
//!
//! Such a program, as sudo(8), accepts our SIGKILL, and what it has started as another user refuses it. SIGKILL removes
//! the only process that could have ended that; SIGTERM is passed on. So a process that runs with another identity is
//! sent SIGTERM first and left alone for `REFUSAL_GRACE`, also where the ladder gives no grace.
//!
//! Where every process may be signalled (CAP_KILL) none of this is needed, and it costs nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::ends::ladder::{BUDGET, REFUSAL_GRACE};
use crate::sys::{self, ChildState, Group, Handle, LimitedUser, Pid, Wait};

/// Polling interval for processes that are not our children: their end brings no SIGCHLD.
const ASKED_PAUSE: Duration = Duration::from_millis(20);

/// The set-uid programs of one end.
pub struct SetUid {
    /// This process's user.
    pub user: LimitedUser,
    /// When the ladder's first signal was sent to all, if it was.
    first_signal: Option<Instant>,
    /// No process is left alone after that, so that the end stays within its budget.
    last: Instant,
    asked: BTreeMap<Pid, Asked>,
}

struct Asked {
    handle: Handle,
    until: Instant,
}

impl Asked {
    fn is_waited_for(&self) -> bool {
        Instant::now() < self.until && !self.handle.has_ended()
    }
}

impl SetUid {
    /// Begins with the SIGKILLs of an end. `first_signal`: when all were sent the ladder's first one, if they were;
    /// the time counts from there, and none is sent again. `None` where no process is to be left alone.
    pub fn begin(first_signal: Option<Instant>) -> Option<SetUid> {
        let now = Instant::now();
        if first_signal.is_some_and(|first| now >= first + REFUSAL_GRACE) {
            return None;
        }
        let last = now + BUDGET - 2 * REFUSAL_GRACE;
        Some(SetUid { user: LimitedUser::now()?, first_signal, last, asked: BTreeMap::new() })
    }

    /// Whether this process must not be sent SIGKILL for now. When it is seen for the first time it is sent SIGTERM
    /// through this handle, which the caller has shown to be that of a process of the call.
    pub fn spares(&mut self, pid: Pid, handle: &Handle) -> bool {
        self.known(pid).unwrap_or_else(|| self.user.shares(pid, Some(handle)) && self.ask(pid, handle))
    }

    /// [`spares`](SetUid::spares) for a pid that may be that of a child of ours.
    pub fn spares_child(&mut self, pid: Pid) -> bool {
        // Held first, and our child after that: so it is that process.
        let hold = || Handle::open(pid).ok().filter(|_| sys::child_state(pid) == ChildState::Alive);
        match self.known(pid) {
            Some(is_spared) => is_spared,
            None => self.user.shares(pid, None) && hold().is_some_and(|handle| self.ask(pid, &handle)),
        }
    }

    fn known(&self, pid: Pid) -> Option<bool> {
        let asked = self.asked.get(&pid).filter(|asked| asked.handle.is_unreaped())?;
        Some(asked.is_waited_for())
    }

    fn ask(&mut self, pid: Pid, handle: &Handle) -> bool {
        let now = Instant::now();
        let until = self.first_signal.unwrap_or(now) + REFUSAL_GRACE;
        let Ok(handle) = handle.try_clone() else { return false };
        if now >= self.last || handle.has_ended() {
            return false;
        }
        if self.first_signal.is_none() {
            if handle.signal(sys::SIGTERM).is_err() {
                return false;
            }
            let _ = handle.signal(sys::SIGCONT);
        }
        let asked = Asked { handle, until };
        let is_spared = asked.is_waited_for();
        self.asked.insert(pid, asked);
        is_spared
    }

    /// Whether one of them has ended since the last call.
    pub fn take_ended(&mut self) -> bool {
        let before = self.asked.len();
        self.asked.retain(|_, asked| !asked.handle.has_ended());
        self.asked.len() < before
    }

    /// Whether one of them is still being waited for.
    pub fn is_waiting(&self) -> bool {
        self.asked.values().any(Asked::is_waited_for)
    }

    /// Whether one of them that is a member of this group is still being waited for.
    pub fn is_waiting_in(&self, group: &Group) -> bool {
        self.asked.iter().any(|(&pid, asked)| asked.is_waited_for() && group.has(pid))
    }

    /// When to look at them again at the latest.
    pub fn next_time(&self) -> Instant {
        let again = Instant::now() + ASKED_PAUSE;
        self.waited_for().map(|asked| asked.until).min().map_or(again, |until| until.min(again))
    }

    /// Waits until one of them has ended, or it is time to look.
    pub fn wait(&self) {
        let mut wait = Wait::new();
        for asked in self.waited_for() {
            wait.exit(&asked.handle);
        }
        wait.until(Some(self.next_time()));
    }

    fn waited_for(&self) -> impl Iterator<Item = &Asked> {
        self.asked.values().filter(|asked| asked.is_waited_for())
    }
}
