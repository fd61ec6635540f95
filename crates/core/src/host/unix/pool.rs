//! The spawn helper and the idle keepers.
//!
//! The helper is started when the first call needs it, and again when it is gone, when the host's identity has changed,
//! or when `resetHelper()` was called. A keeper of an old helper is used to the end of its call and no further.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_wire::{EndFacts, FromHelper, Mechanism, ToHelper, VERSION};

use super::super::reactor::Reactor;
use crate::channel::commitment::Commitment;
use crate::channel::connection::{Connection, Missing};
use crate::sys::{self, ChildState, Handle, Identity, Pid, Placement, Wait};

/// Time limit for the helper's first message, and for a keeper when none is idle.
const ANSWER: Duration = Duration::from_secs(2);
/// A helper that has not answered by then may be stopped, and is sent SIGCONT.
const STOPPED: Duration = Duration::from_millis(50);
/// At the end of this process: how long its helper has to leave, when it has nothing to do, and when there may be calls
/// or guards that go on to their end.
const LEAVING: Duration = Duration::from_millis(500);
const LEAVING_BUSY: Duration = Duration::from_millis(20);
/// Idle keepers that are always welcome, and the most that are kept.
const FEW: usize = 2;
const MANY: usize = 16;

/// Names a keeper: the helper's generation, and the pid among that helper's children.
pub type KeeperId = (u32, i32);

/// The host's end of a keeper.
pub struct KeeperEnd {
    pub connection: Connection<Arc<OwnedFd>, Arc<OwnedFd>>,
    pub commitment: Commitment,
    pub id: KeeperId,
    /// In the reactor's set since an earlier call.
    pub watched: bool,
}

/// Why no keeper could be had. Nothing ran.
#[derive(Debug, Clone)]
pub enum Refusal {
    /// This process is at its limit on open files (EMFILE), or the system is at its own (ENFILE). The helper is as good
    /// as before.
    Descriptors(i32),
    /// Something is wrong with the helper.
    Helper { errno: i32, tried: String },
}

impl Refusal {
    fn helper(errno: i32, tried: impl Into<String>) -> Refusal {
        Refusal::Helper { errno, tried: tried.into() }
    }

    /// The refusal for an error of a system call of this process.
    fn of(error: &io::Error, what: &str) -> Refusal {
        match error.raw_os_error() {
            Some(errno) if is_descriptor_limit(error) => Refusal::Descriptors(errno),
            errno => Refusal::helper(errno.unwrap_or(0), format!("{what}: {error}")),
        }
    }
}

/// Whether the error is a limit on open files.
pub fn is_descriptor_limit(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(sys::EMFILE | sys::ENFILE))
}

struct Helper {
    control: Connection,
    /// The helper's key among the children.
    child: u64,
    identity: Identity,
    greeted: bool,
    mechanism: Mechanism,
    alive: bool,
    /// Keepers that were requested and have not arrived.
    pending: usize,
    /// Why a requested keeper did not come.
    refused: Option<Refusal>,
}

/// A child of ours that is waited for through its descriptor.
struct Child {
    pid: Pid,
    handle: Handle,
    /// The reactor reports its end.
    is_watched: bool,
}

/// The helper and the idle keepers.
pub struct Pool {
    reactor: Arc<Reactor>,
    helper: Option<Helper>,
    generation: u32,
    idle: Vec<KeeperEnd>,
    /// Keepers with a call.
    busy: HashSet<KeeperId>,
    /// Recent peak of calls at once; decays with every call.
    demand: usize,
    /// Ends reported for lost keepers, and the calls that wait for one.
    reports: HashMap<KeeperId, EndFacts>,
    waiting: HashMap<KeeperId, u32>,
    /// Children of ours that are waited for: helpers, the present one too, and guards.
    children: HashMap<u64, Child>,
    last_child: u64,
    /// A keeper may still be at the end of a call that is no longer waited for here.
    has_left_calls: bool,
}

impl Pool {
    pub fn new(reactor: Arc<Reactor>) -> Pool {
        Pool {
            reactor,
            helper: None,
            generation: 0,
            idle: Vec::new(),
            busy: HashSet::new(),
            demand: 0,
            reports: HashMap::new(),
            waiting: HashMap::new(),
            children: HashMap::new(),
            last_child: 0,
            has_left_calls: false,
        }
    }

    /// A keeper for one call.
    pub fn acquire(&mut self, path: &Path) -> Result<KeeperEnd, Refusal> {
        match self.acquire_from(path) {
            // One that does not answer any more is as good as dead. (One that never did was started twice already.)
            Err(Refusal::Helper { errno: sys::ETIMEDOUT, .. }) if self.helper.is_some() => {
                self.retire();
                self.acquire_from(path)
            }
            other => other,
        }
    }

    fn acquire_from(&mut self, path: &Path) -> Result<KeeperEnd, Refusal> {
        // An earlier refusal is no answer to this request; the refusal of a new helper is one.
        self.drain();
        if let Some(helper) = &mut self.helper {
            helper.refused = None;
        }
        self.ensure_helper(path)?;
        let deadline = Instant::now() + ANSWER;
        loop {
            if self.idle.is_empty()
                && let Some(refusal) = self.helper.as_mut().and_then(|helper| helper.refused.take())
            {
                return Err(refusal);
            }
            self.ask_ahead();
            if let Some(keeper) = self.idle.pop() {
                self.busy.insert(keeper.id);
                self.demand = self.busy.len().max(self.demand.saturating_sub(self.demand.div_ceil(8)));
                return Ok(keeper);
            }
            self.await_helper(deadline).map_err(|(errno, tried)| Refusal::helper(errno, tried))?;
        }
    }

    /// Keeps a few keepers ahead of need, more where many calls run at once.
    fn ask_ahead(&mut self) {
        let Some(helper) = &mut self.helper else { return };
        let spare = if self.idle.is_empty() && self.busy.len() >= FEW {
            (self.busy.len() / 2).clamp(FEW, MANY)
        } else {
            FEW
        };
        let there = self.idle.len() + helper.pending;
        if there < FEW || self.idle.is_empty() && there < spare {
            let want = spare - there;
            let mut bytes = Vec::new();
            ToHelper::Want(want as u32).put(&mut bytes);
            helper.control.send(bytes, Vec::new());
            helper.pending += want;
        }
    }

    /// A keeper whose call is over.
    pub fn put_back(&mut self, keeper: KeeperEnd) {
        self.busy.remove(&keeper.id);
        self.reports.remove(&keeper.id);
        let current =
            keeper.id.0 == self.generation && self.helper.as_ref().is_some_and(|helper| helper.alive);
        // The others leave when their socket closes.
        if current && keeper.connection.is_empty() && self.idle.len() < self.demand.clamp(FEW, MANY) {
            self.idle.push(keeper);
        }
    }

    /// A keeper that is not to be used again.
    pub fn discard(&mut self, keeper: &KeeperEnd) {
        self.busy.remove(&keeper.id);
        self.waiting.remove(&keeper.id);
        self.reports.remove(&keeper.id);
    }

    /// Whether a helper of this generation may still report.
    pub fn may_report(&self, id: KeeperId) -> bool {
        self.is_current(id) && self.helper.as_ref().is_some_and(|helper| helper.alive)
    }

    /// Whether its helper is the one that serves the next call.
    pub fn is_current(&self, id: KeeperId) -> bool {
        id.0 == self.generation && self.helper.is_some()
    }

    /// The end of a lost keeper's call, as the helper reported it.
    pub fn report(&mut self, id: KeeperId) -> Option<EndFacts> {
        self.reports.remove(&id)
    }

    /// Wakes `number` when the helper reports, or is gone.
    pub fn notify_when_ended(&mut self, id: KeeperId, number: u32) {
        if self.reports.contains_key(&id) || !self.may_report(id) {
            self.reactor.notify(number);
        } else {
            self.waiting.insert(id, number);
        }
    }

    /// Gives up the idle keepers, and the two descriptors that each costs. Whether there were any.
    pub fn dismiss_idle(&mut self) -> bool {
        let were = !self.idle.is_empty();
        self.idle.clear();
        were
    }

    /// The helper gets no further call. Its keepers go on to the end of theirs, then it leaves.
    pub fn retire(&mut self) {
        self.idle.clear();
        if let Some(helper) = self.helper.take() {
            self.reactor.unwatch(helper.control.socket());
        }
        for number in std::mem::take(&mut self.waiting).into_values() {
            self.reactor.notify(number);
        }
    }

    /// A call is given up before its end: its keeper goes on by itself.
    pub fn leave_to_itself(&mut self) {
        self.has_left_calls = true;
    }

    /// This process exits: gives up what it holds, and reaps what leaves soon for that.
    pub fn leave(&mut self) {
        let helper = self.helper.as_ref().map(|helper| helper.child);
        let children: Vec<u64> = self.children.keys().copied().collect();
        for &child in &children {
            self.reap(child);
        }
        let is_busy = self.has_left_calls || !self.busy.is_empty() || self.children.len() > 1;
        let deadline = Instant::now() + if is_busy { LEAVING_BUSY } else { LEAVING };
        self.retire();
        if let Some(helper) = helper {
            // It may have been stopped.
            self.signal_child(helper, sys::SIGCONT);
        }
        for child in children {
            if let Some(Child { handle, is_watched: true, .. }) = self.children.get(&child) {
                let mut wait = Wait::new();
                wait.exit(handle);
                wait.until(Some(deadline));
            }
            self.reap(child);
        }
    }

    /// Starts the helper if it does not run. What its keepers hold their broods by, or why there is none: an errno of
    /// this process, and what was tried.
    pub fn probe(&mut self, path: &Path) -> Result<Mechanism, (i32, String)> {
        match self.ensure_helper(path) {
            Ok(()) => Ok(self.mechanism()),
            Err(Refusal::Descriptors(errno)) => Err((errno, String::new())),
            Err(Refusal::Helper { tried, .. }) => Err((0, tried)),
        }
    }

    /// What the helper's keepers hold their broods by.
    fn mechanism(&self) -> Mechanism {
        self.helper.as_ref().map_or(Mechanism::None, |helper| helper.mechanism)
    }

    /// Starts the helper unless one of our identity is there; once more where that fails.
    fn ensure_helper(&mut self, path: &Path) -> Result<(), Refusal> {
        self.drain();
        let identity = Identity::now();
        if self.helper.as_ref().is_some_and(|helper| helper.alive && helper.identity == identity) {
            return Ok(());
        }
        self.retire();
        let Err(first) = self.start_helper(path, identity.clone()) else { return Ok(()) };
        self.retire();
        // A second try would need as many descriptors as the first.
        let Refusal::Helper { tried: first, .. } = first else { return Err(first) };
        let Err(second) = self.start_helper(path, identity) else { return Ok(()) };
        self.retire();
        let Refusal::Helper { errno, tried: second } = second else { return Err(second) };
        let tried = if first == second {
            format!("{second} (tried twice)")
        } else {
            format!("{first}; then {second}")
        };
        Err(Refusal::Helper { errno, tried })
    }

    fn start_helper(&mut self, path: &Path, identity: Identity) -> Result<(), Refusal> {
        let shown = path.display();
        let refusal = |error: &io::Error, what: &str| Refusal::of(error, &format!("{what} {shown}"));
        let (ours, theirs) =
            sys::control_pair().map_err(|error| refusal(&error, "making a control socket for"))?;
        let pid = sys::start_helper(path, &["__spawn-helper"], &[(3, theirs.as_fd())], Placement::Session)
            .map_err(|error| refusal(&error, "starting the helper"))?;
        // Frees a descriptor, which the child's pidfd takes.
        drop(theirs);
        self.generation = (self.generation + 1) & 0x7fff_ffff;
        let child = self.watch_exit(pid);
        let key = u64::from(self.generation) << 1;
        self.reactor.watch_for_pool(key, &ours).map_err(|error| refusal(&error, "watching"))?;
        self.helper = Some(Helper {
            control: Connection::new(ours).with_descriptors(),
            child,
            identity,
            greeted: false,
            mechanism: Mechanism::None,
            alive: true,
            pending: 0,
            refused: None,
        });
        // The first keepers are forked while we wait for the greeting.
        self.ask_ahead();
        let deadline = Instant::now() + ANSWER;
        while self.helper.as_ref().is_some_and(|helper| !helper.greeted) {
            self.await_helper(deadline).map_err(|(errno, tried)| {
                // Our unreaped child, by its pidfd. It has no keepers yet; what does not greet is not left behind.
                self.signal_child(child, sys::SIGKILL);
                Refusal::helper(errno, format!("starting the helper {shown}: {tried}"))
            })?;
        }
        Ok(())
    }

    /// Registers a child to be reaped through its descriptor, so that no other child of the host can be reaped by
    /// mistake.
    pub fn watch_exit(&mut self, pid: Pid) -> u64 {
        // Those that cannot be watched, for want of pidfds.
        let known: Vec<u64> = self.children.keys().copied().collect();
        for child in known {
            self.reap(child);
        }
        self.last_child += 1;
        if let Ok(handle) = Handle::open(pid)
            && sys::child_state_behind(&handle, pid) != ChildState::NotOurs
        {
            let is_watched = self.reactor.watch_exit_for_pool(self.last_child << 1 | 1, &handle);
            self.children.insert(self.last_child, Child { pid, handle, is_watched });
        }
        self.last_child
    }

    /// Whether the reactor reports its end, so that it is reaped then.
    pub fn is_watched(&self, child: u64) -> bool {
        self.children.get(&child).is_some_and(|child| child.is_watched)
    }

    /// Reaps a child of ours that has ended. Whether there is nothing more to reap.
    pub fn reap(&mut self, child: u64) -> bool {
        let Some(Child { pid, handle, is_watched }) = self.children.get(&child) else { return true };
        if !sys::reap_behind(handle, *pid) {
            return false;
        }
        if *is_watched {
            self.reactor.unwatch_exit(handle);
        }
        self.children.remove(&child);
        true
    }

    /// Our unreaped child, by its descriptor.
    pub fn signal_child(&self, child: u64, signal: i32) {
        if let Some(Child { handle, .. }) = self.children.get(&child) {
            let _ = handle.signal(signal);
        }
    }

    /// Waits for the helper's next message. An error when it is gone, or the time is up.
    fn await_helper(&mut self, deadline: Instant) -> Result<(), (i32, &'static str)> {
        if let Some(helper) = &self.helper {
            let wait = |until: Instant| {
                let mut wait = Wait::new();
                wait.readable(helper.control.socket());
                wait.until(Some(until)).has_any()
            };
            if !wait(deadline.min(Instant::now() + STOPPED)) {
                // It may have been stopped.
                self.signal_child(helper.child, sys::SIGCONT);
                wait(deadline);
            }
        }
        self.drain();
        match &self.helper {
            None => Err((0, "no helper")),
            Some(helper) if !helper.alive => {
                Err((sys::EPIPE, "it ended without a word, or is of another version"))
            }
            Some(helper) if Instant::now() >= deadline && helper.refused.is_none() => {
                Err((sys::ETIMEDOUT, "no answer within 2 seconds"))
            }
            Some(_) => Ok(()),
        }
    }

    /// The reactor reports that one of our descriptors is ready.
    pub fn on_ready(&mut self, key: u64) {
        if key & 1 == 0 {
            return self.drain();
        }
        self.reap(key >> 1);
    }

    /// Reads the helper's messages.
    fn drain(&mut self) {
        let Some(helper) = &mut self.helper else { return };
        helper.control.flush();
        helper.control.receive();
        while let Some(message) = helper.control.next(|frame| FromHelper::decode(&frame)) {
            match message {
                FromHelper::Hello { version, mechanism } => {
                    helper.mechanism = mechanism;
                    helper.greeted = version == VERSION.as_bytes();
                    helper.alive &= helper.greeted;
                }
                FromHelper::Keeper(pid) if helper.greeted => {
                    helper.pending = helper.pending.saturating_sub(1);
                    match helper.control.take_descriptors(2).map(<[OwnedFd; 2]>::try_from) {
                        Ok(Ok([socket, commitment])) => {
                            // One too many leaves when its socket closes.
                            if self.idle.len() < MANY {
                                self.idle.push(KeeperEnd {
                                    connection: Connection::new(Arc::new(socket)),
                                    commitment: Commitment::from_descriptor(commitment),
                                    id: (self.generation, pid),
                                    watched: false,
                                });
                            }
                        }
                        // The keeper that they belonged to leaves, since its socket has ended.
                        Err(Missing::CutOff) => helper.refused = Some(Refusal::Descriptors(sys::EMFILE)),
                        // A helper that sends what is no message counts as gone.
                        _ => {
                            helper.alive = false;
                            break;
                        }
                    }
                }
                FromHelper::NoKeeper(errno) => {
                    helper.pending = helper.pending.saturating_sub(1);
                    let error = io::Error::from_raw_os_error(errno);
                    let tried = format!("the helper could not fork a keeper: {error}");
                    helper.refused = Some(Refusal::helper(errno, tried));
                }
                FromHelper::KeeperEnded { keeper, facts } => {
                    let id = (self.generation, keeper);
                    // Otherwise its call has been reported already.
                    if self.busy.contains(&id) {
                        self.reports.insert(id, facts);
                    }
                    if let Some(number) = self.waiting.remove(&id) {
                        self.reactor.notify(number);
                    }
                }
                // Likewise.
                FromHelper::Keeper(_) => {
                    helper.alive = false;
                    break;
                }
            }
        }
        helper.alive &= !helper.control.has_ended();
        if !helper.alive {
            self.reactor.unwatch(helper.control.socket());
            self.idle.clear();
            for number in std::mem::take(&mut self.waiting).into_values() {
                self.reactor.notify(number);
            }
        }
    }
}
