//! The spawn helper and the idle keepers.
//!
//! The helper is started when the first call needs it, and again when it is gone, when the host's identity has
//! changed, or when the user asked. A keeper of an old helper is used to the end of its call and no further.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_wire::{Decoder, EndFacts, FromHelper, Mechanism, ToHelper, VERSION};
use rustix::event::{PollFd, PollFlags, Timespec};

use super::reactor::Reactor;
use crate::commitment::Commitment;
use crate::socket::{self, Outbox, Received};
use crate::sys::{self, Handle, Identity, Look, Pid, Standing};

/// For the helper's first word, and for a keeper when none is idle.
const ANSWER: Duration = Duration::from_secs(2);
/// Without an answer for so long the helper is sent SIGCONT.
const STOPPED: Duration = Duration::from_millis(50);
/// Idle keepers that are always welcome, and the most that are kept.
const FEW: usize = 2;
const MANY: usize = 16;

/// Names a keeper: the helper's generation, and the pid among that helper's children.
pub type KeeperId = (u32, i32);

/// The host's end of a keeper.
pub struct KeeperEnd {
    pub socket: Arc<OwnedFd>,
    pub commitment: Commitment,
    pub id: KeeperId,
    pub inbox: Decoder,
    /// In the reactor's set since an earlier call.
    pub watched: bool,
}

/// Why no keeper could be had. Nothing ran.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub errno: i32,
    pub tried: String,
}

struct Helper {
    control: OwnedFd,
    /// Among the children.
    child: u64,
    identity: Identity,
    inbox: Decoder,
    outbox: Outbox,
    descriptors: Vec<OwnedFd>,
    greeted: bool,
    mechanism: Mechanism,
    alive: bool,
    /// Asked for and not yet arrived.
    pending: usize,
    refused: Option<i32>,
    /// Descriptors were lost on their way, since this process had no number for them.
    cut: bool,
}

/// See the module.
pub struct Pool {
    reactor: Arc<Reactor>,
    helper: Option<Helper>,
    generation: u32,
    idle: Vec<KeeperEnd>,
    /// Keepers with a call.
    busy: HashSet<KeeperId>,
    /// Recent peak of calls at once; decays with every call.
    demand: usize,
    /// Ends reported for lost keepers, and who waits for one.
    reports: HashMap<KeeperId, EndFacts>,
    waiting: HashMap<KeeperId, u32>,
    /// Children of ours that are waited for: helpers, the present one too, and guards.
    children: HashMap<u64, (Pid, Handle)>,
    last_child: u64,
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
        }
    }

    /// A keeper for one call.
    pub fn acquire(&mut self, path: &Path) -> Result<KeeperEnd, Refusal> {
        match self.acquire_from(path) {
            // One that does not answer any more is as good as dead. (One that never did was started twice already.)
            Err(refusal) if refusal.errno == libc::ETIMEDOUT && self.helper.is_some() => {
                self.retire();
                self.acquire_from(path)
            }
            other => other,
        }
    }

    fn acquire_from(&mut self, path: &Path) -> Result<KeeperEnd, Refusal> {
        self.ensure_helper(path)?;
        let deadline = Instant::now() + ANSWER;
        loop {
            self.ask_ahead();
            if let Some(keeper) = self.idle.pop() {
                self.busy.insert(keeper.id);
                self.demand = self.busy.len().max(self.demand.saturating_sub(self.demand.div_ceil(8)));
                return Ok(keeper);
            }
            self.await_helper(deadline)?;
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
            helper.outbox.push(bytes, Vec::new());
            helper.pending += want;
            // A failure shows as the end of the socket.
            let _ = helper.outbox.flush(helper.control.as_fd());
        }
    }

    /// A keeper whose call is over.
    pub fn put_back(&mut self, keeper: KeeperEnd) {
        self.busy.remove(&keeper.id);
        self.reports.remove(&keeper.id);
        let current =
            keeper.id.0 == self.generation && self.helper.as_ref().is_some_and(|helper| helper.alive);
        // The others leave when their socket closes.
        if current && keeper.inbox.is_empty() && self.idle.len() < self.demand.clamp(FEW, MANY) {
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

    /// Gives up the idle keepers, and the descriptors that they cost.
    pub fn dismiss_idle(&mut self) {
        self.idle.clear();
    }

    /// The helper gets no further call. Its keepers go on to the end of theirs, then it leaves.
    pub fn retire(&mut self) {
        self.idle.clear();
        if let Some(helper) = self.helper.take() {
            self.reactor.unwatch(&helper.control);
        }
        for number in std::mem::take(&mut self.waiting).into_values() {
            self.reactor.notify(number);
        }
    }

    /// What the helper's keepers hold their broods by.
    pub fn mechanism(&self) -> Mechanism {
        self.helper.as_ref().map_or(Mechanism::None, |helper| helper.mechanism)
    }

    /// Starts the helper unless one of our identity is there; once more where that fails.
    pub fn ensure_helper(&mut self, path: &Path) -> Result<(), Refusal> {
        self.drain();
        let identity = Identity::now();
        if self.helper.as_ref().is_some_and(|helper| helper.alive && helper.identity == identity) {
            return Ok(());
        }
        self.retire();
        let first = match self.start_helper(path, identity.clone()) {
            Ok(()) => return Ok(()),
            Err(refusal) => refusal,
        };
        self.retire();
        self.start_helper(path, identity).map_err(|second| {
            let tried = if first.tried == second.tried {
                format!("{} (tried twice)", second.tried)
            } else {
                format!("{}; then {}", first.tried, second.tried)
            };
            self.retire();
            Refusal { errno: second.errno, tried }
        })
    }

    fn start_helper(&mut self, path: &Path, identity: Identity) -> Result<(), Refusal> {
        let shown = path.display();
        let refusal = |error: &io::Error, what: &str| Refusal {
            errno: error.raw_os_error().unwrap_or(0),
            tried: format!("{what} {shown}: {error}"),
        };
        let (ours, theirs) =
            socket::control_pair().map_err(|error| refusal(&error, "making a control socket for"))?;
        let pid = sys::start_helper(path, &["__spawn-helper"], &[(3, theirs.as_fd())], Standing::Session)
            .map_err(|error| refusal(&error, "starting the helper"))?;
        drop(theirs);
        self.generation = (self.generation + 1) & 0x7fff_ffff;
        let child = self.watch_exit(pid);
        let key = u64::from(self.generation) << 1;
        self.reactor.watch_for_pool(key, &ours).map_err(|error| refusal(&error, "watching"))?;
        self.helper = Some(Helper {
            control: ours,
            child,
            identity,
            inbox: Decoder::default(),
            outbox: Outbox::default(),
            descriptors: Vec::new(),
            greeted: false,
            mechanism: Mechanism::None,
            alive: true,
            pending: 0,
            refused: None,
            cut: false,
        });
        // The first keepers are forked while we wait for the greeting.
        self.ask_ahead();
        let deadline = Instant::now() + ANSWER;
        while self.helper.as_ref().is_some_and(|helper| !helper.greeted) {
            self.await_helper(deadline).map_err(|Refusal { errno, tried }| {
                // Our unreaped child, by its pidfd. It has no keepers yet; what does not greet is not left behind.
                self.signal_child(child, libc::SIGKILL);
                Refusal { errno, tried: format!("starting the helper {shown}: {tried}") }
            })?;
        }
        Ok(())
    }

    /// So that a child of ours leaves no zombie in the host: it is waited for through its descriptor, so that no other
    /// child of the host can be meant.
    pub fn watch_exit(&mut self, pid: Pid) -> u64 {
        // Those that cannot be watched, for want of pidfds.
        let known: Vec<u64> = self.children.keys().copied().collect();
        for child in known {
            self.reap(child);
        }
        self.last_child += 1;
        if let Ok(handle) = Handle::open(pid)
            && sys::look_behind(&handle, pid) != Look::NotOurs
        {
            if let Some(pidfd) = handle.pidfd() {
                let _ = self.reactor.watch_for_pool(self.last_child << 1 | 1, pidfd);
            }
            self.children.insert(self.last_child, (pid, handle));
        }
        self.last_child
    }

    /// Whether its end is told by the reactor, and it is reaped then.
    pub fn is_watched(&self, child: u64) -> bool {
        self.children.get(&child).is_some_and(|(_, handle)| handle.pidfd().is_some())
    }

    /// Reaps a child of ours that has ended. Whether there is nothing more to reap.
    pub fn reap(&mut self, child: u64) -> bool {
        let Some((pid, handle)) = self.children.get(&child) else { return true };
        if !sys::reap_behind(handle, *pid) {
            return false;
        }
        if let Some(pidfd) = handle.pidfd() {
            self.reactor.unwatch(pidfd);
        }
        self.children.remove(&child);
        true
    }

    /// Our unreaped child, by its descriptor.
    pub fn signal_child(&self, child: u64, signal: i32) {
        if let Some((_, handle)) = self.children.get(&child) {
            let _ = handle.signal(signal);
        }
    }

    /// Waits for the helper's next word.
    fn await_helper(&mut self, deadline: Instant) -> Result<(), Refusal> {
        let refusal = |errno: i32, tried: &str| Err(Refusal { errno, tried: tried.to_owned() });
        if let Some(helper) = &self.helper {
            let mut source = [PollFd::new(&helper.control, PollFlags::IN)];
            let mut wait = |until: Instant| {
                let timeout = Timespec::try_from(until.saturating_duration_since(Instant::now())).ok();
                matches!(rustix::event::poll(&mut source, timeout.as_ref()), Ok(1..))
            };
            if !wait(deadline.min(Instant::now() + STOPPED)) {
                // Somebody may have stopped it.
                self.signal_child(helper.child, libc::SIGCONT);
                wait(deadline);
            }
        }
        self.drain();
        match &mut self.helper {
            None => refusal(0, "no helper"),
            Some(helper) if !helper.alive => {
                refusal(libc::EPIPE, "it ended without a word, or is of another version")
            }
            Some(helper) => match helper.refused.take() {
                Some(errno) => {
                    let error = io::Error::from_raw_os_error(errno);
                    refusal(errno, &format!("the helper could not fork a keeper: {error}"))
                }
                None if Instant::now() >= deadline => refusal(libc::ETIMEDOUT, "no answer within 2 seconds"),
                None => Ok(()),
            },
        }
    }

    /// The reactor's word that one of our descriptors is ready.
    pub fn on_ready(&mut self, key: u64) {
        if key & 1 == 0 {
            return self.drain();
        }
        self.reap(key >> 1);
    }

    /// Reads what the helper said.
    fn drain(&mut self) {
        let Some(helper) = &mut self.helper else { return };
        let _ = helper.outbox.flush(helper.control.as_fd());
        let mut bytes = [0; 4096];
        while helper.alive {
            match socket::receive(helper.control.as_fd(), &mut bytes, &mut helper.descriptors) {
                Received::Bytes(count) => helper.inbox.feed(&bytes[..count]),
                Received::Nothing => break,
                // No free number for what came along: the keeper that it belonged to is lost, and leaves.
                Received::Truncated(count) => {
                    helper.inbox.feed(&bytes[..count]);
                    helper.descriptors.clear();
                    helper.cut = true;
                }
                Received::End => helper.alive = false,
            }
        }
        loop {
            let message = helper.inbox.next_frame();
            match message.and_then(|frame| frame.as_ref().map(FromHelper::decode).transpose()) {
                Ok(Some(FromHelper::Hello { version, mechanism })) => {
                    helper.mechanism = mechanism;
                    helper.greeted = version == VERSION.as_bytes();
                    helper.alive &= helper.greeted;
                }
                Ok(Some(FromHelper::Keeper(pid))) if helper.greeted && helper.descriptors.len() >= 2 => {
                    helper.pending = helper.pending.saturating_sub(1);
                    let socket = Arc::new(helper.descriptors.remove(0));
                    let commitment = Commitment::from_descriptor(helper.descriptors.remove(0));
                    let id = (self.generation, pid);
                    // One too many leaves when its socket closes.
                    if self.idle.len() < MANY {
                        let inbox = Decoder::default();
                        self.idle.push(KeeperEnd { socket, commitment, id, inbox, watched: false });
                    }
                }
                Ok(Some(FromHelper::NoKeeper(errno))) => {
                    helper.pending = helper.pending.saturating_sub(1);
                    helper.refused = Some(errno);
                }
                Ok(Some(FromHelper::KeeperEnded { keeper, facts })) => {
                    let id = (self.generation, keeper);
                    // After the last word of its call nobody asks.
                    if self.busy.contains(&id) {
                        self.reports.insert(id, facts);
                    }
                    if let Some(number) = self.waiting.remove(&id) {
                        self.reactor.notify(number);
                    }
                }
                Ok(None) => break,
                Ok(Some(FromHelper::Keeper(_))) if helper.greeted && helper.cut => {
                    helper.pending = helper.pending.saturating_sub(1);
                    helper.refused = Some(libc::EMFILE);
                    helper.cut = false;
                    helper.descriptors.clear();
                }
                // A helper that does not speak our language is as good as gone.
                Ok(Some(FromHelper::Keeper(_))) | Err(_) => {
                    helper.alive = false;
                    break;
                }
            }
        }
        if !helper.alive {
            self.reactor.unwatch(&helper.control);
            self.idle.clear();
            for number in std::mem::take(&mut self.waiting).into_values() {
                self.reactor.notify(number);
            }
        }
    }
}
