//! Guards: the host's side of [`guard`](crate::roles::guard). Checks that a child can be held, names it by a descriptor
//! before anything is waited for, and starts a guard for it. The guard's lines are read by the environment that started
//! it, as from a pipe.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex};

use super::super::lock::lock;
use super::super::reactor::{EnvId, Reactor};
use super::pool::{Pool, is_descriptor_limit};
pub use crate::roles::guard::GuardOptions;
use crate::roles::guard::start_guard;
use crate::sys::{self, ChildState, Handle, Pid, Placement};

/// Why a child is not guarded. Nothing was signalled.
#[derive(Debug)]
pub enum Unguarded {
    /// It has exited.
    Dead,
    /// It is no child of this process, or was waited for already.
    NotAChild,
    /// It is in the host's own group.
    OwnGroup,
    /// It is in the group of another process.
    NotALeader,
    /// No guard could be started.
    Helper(io::Error),
}

impl Unguarded {
    /// The name that the API's error has.
    pub fn as_str(&self) -> &'static str {
        match self {
            Unguarded::Dead => "dead",
            Unguarded::NotAChild => "not-a-child",
            Unguarded::OwnGroup => "own-group",
            Unguarded::NotALeader => "not-a-leader",
            Unguarded::Helper(_) => "helper",
        }
    }
}

/// A child that leads a group, named by a descriptor.
pub struct Leader {
    env: EnvId,
    handle: Handle,
    group: Pid,
    same_session: bool,
}

/// A guard on its way.
#[derive(Debug)]
pub struct Guarded {
    /// Stands for the leader in [`Guards::start_again`].
    pub leader: u32,
    /// The group's number.
    pub group: i32,
    /// The pipe for the lines to the guard and from it.
    pub pipe: u32,
    /// Stands for the guard in [`Guards::wake`].
    pub guard: u32,
}

impl Leader {
    /// A child of this process that is unreaped and alive, and leads a group that is not ours.
    ///
    /// The number is looked at between two looks at the child through its descriptor, and so it is the child's.
    fn of(env: EnvId, pid: Pid) -> Result<Leader, Unguarded> {
        let handle = Handle::open(pid).map_err(|error| match error.raw_os_error() {
            Some(sys::ESRCH) => Unguarded::NotAChild,
            _ => Unguarded::Helper(error),
        })?;
        let group = sys::group_of(pid);
        let same_session = sys::is_in_our_session(pid);
        match sys::child_state_behind(&handle, pid) {
            ChildState::Alive => (),
            ChildState::Exited(_) => return Err(Unguarded::Dead),
            ChildState::NotOurs => return Err(Unguarded::NotAChild),
        }
        if group == sys::own_group() {
            return Err(Unguarded::OwnGroup);
        }
        if group != Some(pid) {
            return Err(Unguarded::NotALeader);
        }
        Ok(Leader { env, handle, group: pid, same_session })
    }
}

/// The guards of this process.
pub struct Guards {
    reactor: Arc<Reactor>,
    pool: Arc<Mutex<Pool>>,
    leaders: Mutex<Leaders>,
}

/// The leaders of guarded groups.
#[derive(Default)]
struct Leaders {
    known: HashMap<u32, Arc<Leader>>,
    last: u32,
}

impl Guards {
    pub(in crate::host) fn new(reactor: Arc<Reactor>, pool: Arc<Mutex<Pool>>) -> Guards {
        Guards { reactor, pool, leaders: Mutex::default() }
    }

    /// Starts a guard for a child of this process.
    pub fn start(&self, env: EnvId, pid: i32, options: &GuardOptions<'_>) -> Result<Guarded, Unguarded> {
        let pid = Pid::new(pid).ok_or(Unguarded::NotAChild)?;
        let leader = match Leader::of(env, pid) {
            Err(Unguarded::Helper(error)) if self.gives_descriptors_for(&error) => Leader::of(env, pid),
            other => other,
        };
        let leader = Arc::new(leader?);
        let (guard, pipe) = self.start_guard(env, &leader, options, false).map_err(Unguarded::Helper)?;
        let mut leaders = lock(&self.leaders);
        leaders.last += 1;
        let number = leaders.last;
        let group = leader.group.raw();
        leaders.known.insert(number, leader);
        Ok(Guarded { leader: number, group, pipe, guard })
    }

    /// Starts another guard in the place of one that died.
    pub fn start_again(
        &self,
        env: EnvId,
        leader: u32,
        options: &GuardOptions<'_>,
    ) -> Result<Guarded, Unguarded> {
        let known = lock(&self.leaders).known.get(&leader).cloned().ok_or(Unguarded::NotAChild)?;
        let (guard, pipe) = self.start_guard(env, &known, options, true).map_err(Unguarded::Helper)?;
        Ok(Guarded { leader, group: known.group.raw(), pipe, guard })
    }

    /// Sends SIGCONT to a guard that is about to get a line: it may have been stopped.
    pub fn wake(&self, guard: u32) {
        lock(&self.pool).signal_child(guard.into(), sys::SIGCONT);
    }

    /// Reaps a guard that has written its last line. False: it has not ended yet, and its end will not be reported,
    /// since there are no pidfds: to be called again.
    pub fn reap(&self, guard: u32) -> bool {
        let mut pool = lock(&self.pool);
        pool.is_watched(guard.into()) || pool.reap(guard.into())
    }

    /// Its descriptor is given up.
    pub fn forget_leader(&self, leader: u32) {
        lock(&self.leaders).known.remove(&leader);
    }

    pub(in crate::host) fn forget_all_of(&self, env: EnvId) {
        lock(&self.leaders).known.retain(|_, leader| leader.env != env);
    }

    fn start_guard(
        &self,
        env: EnvId,
        leader: &Leader,
        options: &GuardOptions<'_>,
        again: bool,
    ) -> io::Result<(u32, u32)> {
        match self.try_to_start_guard(env, leader, options, again) {
            Err(error) if self.gives_descriptors_for(&error) => {
                self.try_to_start_guard(env, leader, options, again)
            }
            other => other,
        }
    }

    /// Whether it is worth another try: none was free, and the idle keepers have given up theirs.
    fn gives_descriptors_for(&self, error: &io::Error) -> bool {
        is_descriptor_limit(error) && lock(&self.pool).dismiss_idle()
    }

    fn try_to_start_guard(
        &self,
        env: EnvId,
        leader: &Leader,
        options: &GuardOptions<'_>,
        again: bool,
    ) -> io::Result<(u32, u32)> {
        let start = |placement| start_guard(options, leader.group, &leader.handle, placement, again);
        // The guard can hold the group by a pin only while the number is the leader's.
        let (pid, control) = match leader.same_session && leader.handle.is_unreaped() {
            // It may have moved to a session of its own since.
            true => start(Placement::Group(leader.group)).or_else(|_| start(Placement::Session)),
            false => start(Placement::Session),
        }?;
        let guard = lock(&self.pool).watch_exit(pid);
        sys::set_nonblocking(&control)?;
        Ok((guard as u32, self.reactor.add(env, Some(Arc::new(control)))))
    }
}
