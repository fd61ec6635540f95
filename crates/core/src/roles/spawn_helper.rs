//! The spawn helper: the keepers' parent. It forks keepers, hands their sockets to the host, and steps in for a
//! keeper that dies: being a subreaper, it inherits that keeper's brood.
//!
//! It parses no spec and holds no descriptor of a call, so that what it forks holds none either. It leaves last:
//! when the host is gone and the last keeper has left.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use holdfast_wire::{By, EndFacts, FromHelper, Mechanism, Outcome, Reason, ToHelper, VERSION};

use crate::channel::classes::{Class, Classes, Slot};
use crate::channel::commitment::Commitment;
use crate::channel::connection::Connection;
use crate::ends::brood::{Brood, Killing, Progress, facts};
use crate::roles::keeper::{self, AGAIN};
use crate::sys::{self, ChildState, ChildrenFile, Forked, Handle, Kill, Pid, Sender, SignalSource, Wait};

/// SIGCONTs sent to a stopped keeper before it is treated as dead.
const WAKINGS: u32 = 1_000;

/// Most keepers in one request: a host needs a few.
const MOST_WANTED: u32 = 1_024;

/// What `serve` came back with: this process is the helper at its end, or a new keeper.
pub enum Role {
    /// The host is gone and no keeper is left.
    Over,
    /// We are the child of a fork.
    Keeper(keeper::Setup),
}

/// Serves until the host is gone, then until the last keeper is. Returns in every forked keeper as well, so that a
/// keeper does not run on the helper's stack of frames and locals.
pub fn serve(control: OwnedFd, lifeline: Option<Handle>, subreaper: bool) -> io::Result<Role> {
    let host = Sender::parent();
    let mut helper = Helper {
        control: Connection::new(control).of_sender(host),
        host,
        lifeline,
        subreaper,
        children: SignalSource::new(&[sys::SIGCHLD])?,
        classes: Classes::new()?,
        wanted: 0,
        host_gone: false,
        keepers: BTreeMap::new(),
        orphan_end: None,
        stuck: BTreeSet::new(),
        pursued: None,
        table: ChildrenFile::default(),
    };
    let mechanism = helper.mechanism();
    helper.send(&FromHelper::Hello { version: VERSION.into(), mechanism }, Vec::new());
    loop {
        if let Some(role) = helper.run_once()? {
            return Ok(role);
        }
    }
}

struct Keeper {
    slot: Slot,
    wakings: u32,
}

struct Helper {
    control: Connection,
    host: Sender,
    lifeline: Option<Handle>,
    subreaper: bool,
    children: SignalSource,
    classes: Classes,
    wanted: u32,
    host_gone: bool,
    keepers: BTreeMap<Pid, Keeper>,
    /// The end of a lost keeper's brood. One at a time.
    orphan_end: Option<OrphanEnd>,
    /// Children that survived such an end. They are pursued, and are not taken for another brood's.
    stuck: BTreeSet<Pid>,
    /// When they were last pursued.
    pursued: Option<Instant>,
    /// The list of our children, to pursue them.
    table: ChildrenFile,
}

struct OrphanEnd {
    keeper: Pid,
    brood: Brood,
    killing: Killing,
}

impl Helper {
    fn mechanism(&self) -> Mechanism {
        if self.subreaper { Mechanism::Subreaper } else { Mechanism::Group }
    }

    fn run_once(&mut self) -> io::Result<Option<Role>> {
        let is_idle = self.keepers.is_empty() && self.orphan_end.is_none() && self.stuck.is_empty();
        if self.host_gone && is_idle {
            return Ok(Some(Role::Over));
        }
        if self.wanted > 0 && !self.host_gone {
            self.wanted -= 1;
            if let Some(setup) = self.fork_keeper()? {
                return Ok(Some(Role::Keeper(setup)));
            }
        }
        self.wait();
        self.receive();
        let mut is_due = self.next_time().is_some_and(|time| time <= Instant::now());
        while self.children.take().is_some() {
            is_due = true;
        }
        if is_due {
            self.wake_stopped_keepers();
            self.advance_orphan_end();
            self.pursue();
        }
        self.control.flush();
        Ok(None)
    }

    fn wait(&self) {
        let mut wait = Wait::new();
        wait.signal(&self.children);
        if !self.host_gone {
            self.control.watch(&mut wait);
            if let Some(host) = &self.lifeline {
                wait.exit(host);
            }
        }
        wait.until(if self.wanted > 0 { Some(Instant::now()) } else { self.next_time() });
    }

    fn receive(&mut self) {
        if self.host_gone {
            return;
        }
        self.control.receive();
        self.host_gone = self.control.has_ended();
        while !self.host_gone
            && let Some(ToHelper::Want(count)) = self.control.next(|frame| ToHelper::decode(&frame))
        {
            self.wanted = self.wanted.saturating_add(count).min(MOST_WANTED);
        }
        self.host_gone |= self.control.has_ended() || self.lifeline.as_ref().is_some_and(Handle::has_ended);
    }

    /// Forks a keeper and hands its socket to the host. Returns the setup in the keeper itself.
    fn fork_keeper(&mut self) -> io::Result<Option<keeper::Setup>> {
        let made = sys::control_pair().and_then(|ends| {
            let commitment = Commitment::new()?;
            let along = commitment.share()?;
            let slot = self.classes.claim().ok_or_else(|| io::Error::from_raw_os_error(sys::EAGAIN))?;
            Ok((ends, commitment, along, slot, sys::fork()?))
        });
        match made {
            Ok(((host_end, keeper_end), commitment, along, slot, Forked::Parent(pid))) => {
                drop((keeper_end, commitment));
                self.keepers.insert(pid, Keeper { slot, wakings: 0 });
                self.send(&FromHelper::Keeper(pid.raw()), vec![host_end, along]);
            }
            Ok(((host_end, control), commitment, along, slot, Forked::Child)) => {
                drop((host_end, along));
                // The helper's own descriptors go with the helper; this process returns to the caller.
                let lifeline = self.lifeline.take();
                let subreaper = sys::become_keeper(false) && self.subreaper;
                return Ok(Some(keeper::Setup {
                    control: keeper::control(control, self.host),
                    commitment,
                    lifeline,
                    slot,
                    subreaper,
                    terminal_group: None,
                    inherited: Vec::new(),
                    nohup: false,
                }));
            }
            Err(error) => {
                self.send(&FromHelper::NoKeeper(error.raw_os_error().unwrap_or(sys::EAGAIN)), Vec::new());
            }
        }
        Ok(None)
    }

    fn send(&mut self, message: &FromHelper, descriptors: Vec<OwnedFd>) {
        let mut bytes = Vec::new();
        message.put(&mut bytes);
        self.control.send(bytes, descriptors);
    }

    /// When something is due without a frame or a SIGCHLD.
    fn next_time(&self) -> Option<Instant> {
        let pursuit = self.pursued.map(|time| time + AGAIN).filter(|_| !self.stuck.is_empty());
        self.orphan_end.as_ref().map(|orphan_end| orphan_end.killing.next_time()).or(pursuit)
    }

    fn wake_stopped_keepers(&mut self) {
        while let Some(pid) = sys::take_any_stop() {
            let Some(keeper) = self.keepers.get_mut(&pid) else { continue };
            keeper.wakings += 1;
            let signal = if keeper.wakings > WAKINGS { sys::SIGKILL } else { sys::SIGCONT };
            sys::kill_child(pid, signal);
        }
    }

    /// Reaps the dead until a keeper with a call is among them, whose brood is then to be ended. One death at a time:
    /// what is unknown among our children came from that keeper.
    fn take_deaths(&mut self) {
        while self.orphan_end.is_none()
            && let Ok(Some(pid)) = sys::peek_any()
        {
            sys::reap(pid);
            // A child of no keeper is what an idle keeper left, or was stuck.
            self.stuck.remove(&pid);
            let Some(Keeper { slot, .. }) = self.keepers.remove(&pid) else { continue };
            if let Class::Contained(pin) = slot.get() {
                let outsiders = self.keepers.keys().chain(&self.stuck).copied().collect();
                let own = pin.into_iter().collect();
                let brood = Brood { recording: true, outsiders, own, ..Brood::default() };
                self.orphan_end = Some(OrphanEnd { keeper: pid, brood, killing: Killing::begin() });
            }
            self.classes.release(slot);
        }
    }

    /// Whether a keeper with a call is dead and its brood not ended yet: it is among our children.
    fn is_another_lost(&self) -> bool {
        let is_lost = |(&pid, keeper): (&Pid, &Keeper)| {
            keeper.slot.get() != Class::Idle && matches!(sys::child_state(pid), ChildState::Exited(_))
        };
        // Nearly always there is no zombie at all, which is one question instead of many.
        matches!(sys::peek_any(), Ok(Some(_))) && self.keepers.iter().any(is_lost)
    }

    fn advance_orphan_end(&mut self) {
        self.take_deaths();
        while let Some(mut orphan_end) = self.orphan_end.take() {
            orphan_end.brood.outsiders.extend(self.keepers.keys());
            let progress = orphan_end.killing.advance(&mut orphan_end.brood, None);
            // After the look: what another keeper leaves from here on is not in the list.
            let listed = std::mem::take(&mut orphan_end.brood.listed);
            if !self.is_another_lost() {
                orphan_end.brood.certain.extend(listed);
            }
            let outcome = match progress {
                Progress::Waiting => {
                    self.orphan_end = Some(orphan_end);
                    return;
                }
                Progress::Done => Outcome::Ended,
                Progress::Survivors => Outcome::Survivors,
            };
            self.report(&orphan_end, outcome);
            if outcome == Outcome::Survivors {
                let mut left = orphan_end.brood.children_left();
                // What may be the next brood's is looked for in that one's end as well.
                if self.is_another_lost() {
                    left.retain(|pid| orphan_end.brood.certain.contains(pid));
                }
                self.stuck.extend(left);
                self.pursued = Some(Instant::now());
            }
            // The next one may have been waiting.
            self.take_deaths();
        }
    }

    fn report(&mut self, orphan_end: &OrphanEnd, outcome: Outcome) {
        let proof_time = orphan_end.killing.since.elapsed().as_micros() as u64;
        let facts = facts(&orphan_end.brood, self.mechanism(), outcome, Reason::KeeperGone, proof_time);
        let outcome = if self.subreaper { outcome } else { Outcome::Unconfirmed };
        let facts = EndFacts { outcome, by: By::Helper, ..facts };
        self.send(&FromHelper::KeeperEnded { keeper: orphan_end.keeper.raw(), facts }, Vec::new());
    }

    /// SIGKILL to what was stuck and to what it has left us, again and again. Not while a brood is ended: what is new
    /// among our children is taken for that brood's.
    fn pursue(&mut self) {
        if self.stuck.is_empty() || self.orphan_end.is_some() {
            return;
        }
        self.pursued = Some(Instant::now());
        let listed = sys::own_children(&mut self.table);
        let unknown =
            listed.unwrap_or_else(|| sys::children_by_number(&self.keepers.keys().copied().collect()));
        // A keeper that was lost just now has left its brood among them. Its SIGCHLD is still to come.
        if self.is_another_lost() {
            return;
        }
        let unknown: BTreeSet<Pid> = unknown.into_iter().chain(std::mem::take(&mut self.stuck)).collect();
        for pid in unknown.into_iter().filter(|pid| !self.keepers.contains_key(pid)) {
            match sys::kill_child(pid, sys::SIGKILL) {
                Kill::Sent | Kill::Denied => {
                    self.stuck.insert(pid);
                }
                Kill::Dead => {
                    sys::reap(pid);
                }
                Kill::NotOurs => (),
            }
        }
    }
}
