//! The spawn helper: the keepers' parent. It forks keepers, hands their sockets to the host, and steps in for a
//! keeper that dies: being a subreaper, it inherits that keeper's brood.
//!
//! It parses no spec and holds no descriptor of a call, so that what it forks holds none either. It leaves last:
//! when the host is gone and the last keeper has left.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use holdfast_wire::{By, Decoder, EndFacts, FromHelper, Mechanism, Outcome, Reason, ToHelper, VERSION};
use rustix::event::{PollFd, PollFlags};

use crate::brood::{Brood, Killing, Progress};
use crate::classes::{Class, Classes, Slot};
use crate::commitment::Commitment;
use crate::keeper::{self, BUDGET};
use crate::socket::{self, Outbox, Received};
use crate::sys::{self, Forked, Look, Pid, Sender, SignalSource};

/// A stopped keeper is woken so often; then it counts as dead.
const WAKINGS: u32 = 1_000;

/// Keepers asked for at once, at most: a host asks for a few.
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
pub fn serve(control: OwnedFd, lifeline: Option<OwnedFd>, subreaper: bool) -> io::Result<Role> {
    let mut helper = Helper {
        control,
        host: Sender::parent(),
        lifeline,
        subreaper,
        children: SignalSource::new(&[libc::SIGCHLD])?,
        classes: Classes::new()?,
        inbox: Decoder::default(),
        outbox: Outbox::default(),
        wanted: 0,
        host_gone: false,
        keepers: Vec::new(),
        sweep: None,
    };
    let mechanism = helper.mechanism();
    helper.send(&FromHelper::Hello { version: VERSION.into(), mechanism }, Vec::new());
    loop {
        if let Some(role) = helper.turn()? {
            return Ok(role);
        }
    }
}

struct Keeper {
    pid: Pid,
    slot: Slot,
    wakings: u32,
}

struct Helper {
    control: OwnedFd,
    host: Sender,
    lifeline: Option<OwnedFd>,
    subreaper: bool,
    children: SignalSource,
    classes: Classes,
    inbox: Decoder,
    outbox: Outbox,
    wanted: u32,
    host_gone: bool,
    keepers: Vec<Keeper>,
    /// The end of a lost keeper's brood. One at a time.
    sweep: Option<Sweep>,
}

struct Sweep {
    keeper: Pid,
    brood: Brood,
    killing: Killing,
    reported: bool,
}

impl Helper {
    fn mechanism(&self) -> Mechanism {
        if self.subreaper { Mechanism::Subreaper } else { Mechanism::Group }
    }

    fn turn(&mut self) -> io::Result<Option<Role>> {
        if self.host_gone && self.keepers.is_empty() && self.sweep.as_ref().is_none_or(|sweep| sweep.reported)
        {
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
        while self.children.take().is_some() {}
        self.look_at_keepers();
        self.advance_sweep();
        let _ = self.outbox.flush(self.control.as_fd());
        Ok(None)
    }

    fn wait(&self) {
        let mut sources = vec![PollFd::new(&self.children, PollFlags::IN)];
        if !self.host_gone {
            let write = if self.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            sources.push(PollFd::new(&self.control, PollFlags::IN | write));
            sources.extend(self.lifeline.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        }
        let now = Instant::now();
        let wait = match &self.sweep {
            _ if self.wanted > 0 => Some(now),
            Some(Sweep { reported: false, killing, .. }) => Some(killing.deadline),
            _ => None,
        };
        let wait = wait.map(|time| time.saturating_duration_since(now));
        let timeout = wait.and_then(|wait| rustix::event::Timespec::try_from(wait).ok());
        let _ = rustix::event::poll(&mut sources, timeout.as_ref());
    }

    fn receive(&mut self) {
        if self.host_gone {
            return;
        }
        let mut bytes = [0; 1024];
        let mut none = Vec::new();
        loop {
            let (host, inbox) = (self.host, &mut self.inbox);
            match socket::receive_from(host, self.control.as_fd(), &mut bytes, &mut none, inbox) {
                Received::Bytes(count) => self.inbox.feed(&bytes[..count]),
                Received::Nothing => break,
                Received::End | Received::Truncated(_) => {
                    self.host_gone = true;
                    break;
                }
            }
        }
        while !self.host_gone {
            match self.inbox.next_frame().and_then(|frame| frame.as_ref().map(ToHelper::decode).transpose()) {
                Ok(Some(ToHelper::Want(count))) => {
                    self.wanted = self.wanted.saturating_add(count).min(MOST_WANTED)
                }
                Ok(None) => break,
                Err(_) => self.host_gone = true,
            }
        }
        let mut gone = self.lifeline.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).collect::<Vec<_>>();
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        if !gone.is_empty() && matches!(rustix::event::poll(&mut gone, Some(&at_once)), Ok(1)) {
            self.host_gone = true;
        }
    }

    /// Forks a keeper and hands its socket to the host. Returns the setup in the keeper itself.
    fn fork_keeper(&mut self) -> io::Result<Option<keeper::Setup>> {
        let made = socket::control_pair().and_then(|ends| {
            let commitment = Commitment::new()?;
            let along = commitment.share()?;
            let slot = self.classes.claim().ok_or_else(|| io::Error::from_raw_os_error(libc::EAGAIN))?;
            Ok((ends, commitment, along, slot, sys::fork()?))
        });
        match made {
            Ok(((host_end, keeper_end), commitment, along, slot, Forked::Parent(pid))) => {
                drop((keeper_end, commitment));
                self.keepers.push(Keeper { pid, slot, wakings: 0 });
                self.send(&FromHelper::Keeper(pid.raw()), vec![host_end, along]);
            }
            Ok(((host_end, control), commitment, along, slot, Forked::Child)) => {
                drop((host_end, along));
                // The helper's own descriptors go with the helper; this process returns to the caller.
                let lifeline = self.lifeline.take();
                let subreaper = sys::become_keeper() && self.subreaper;
                return Ok(Some(keeper::Setup {
                    control,
                    commitment,
                    host: self.host,
                    lifeline,
                    slot,
                    subreaper,
                    terminal_group: None,
                    inherited: Vec::new(),
                    nohup: false,
                }));
            }
            Err(error) => {
                self.send(&FromHelper::NoKeeper(error.raw_os_error().unwrap_or(libc::EAGAIN)), Vec::new());
            }
        }
        Ok(None)
    }

    fn send(&mut self, message: &FromHelper, descriptors: Vec<OwnedFd>) {
        let mut bytes = Vec::new();
        message.put(&mut bytes);
        self.outbox.push(bytes, descriptors);
        // A failed write is no conclusion; the end of the socket will be read.
        let _ = self.outbox.flush(self.control.as_fd());
    }

    /// Wakes stopped keepers, takes note of one that died.
    fn look_at_keepers(&mut self) {
        for keeper in &mut self.keepers {
            if sys::stopped(keeper.pid) {
                keeper.wakings += 1;
                let signal = if keeper.wakings > WAKINGS { libc::SIGKILL } else { libc::SIGCONT };
                sys::kill_child(keeper.pid, signal);
            }
        }
        // One death at a time: what is unknown among our children then came from this keeper.
        while self.sweep.as_ref().is_none_or(|sweep| sweep.reported) {
            let Some(index) = self.keepers.iter().position(|keeper| sys::look(keeper.pid) != Look::Live)
            else {
                return;
            };
            let keeper = self.keepers.swap_remove(index);
            sys::reap(keeper.pid);
            if keeper.slot.get() == Class::Contained {
                let brood = Brood { recording: true, ..Brood::default() };
                let killing = Killing::new(Instant::now() + BUDGET);
                self.sweep = Some(Sweep { keeper: keeper.pid, brood, killing, reported: false });
            }
            self.classes.release(keeper.slot);
        }
    }

    fn advance_sweep(&mut self) {
        let keepers: BTreeSet<Pid> = self.keepers.iter().map(|keeper| keeper.pid).collect();
        let mechanism = self.mechanism();
        let Some(sweep) = &mut self.sweep else {
            self.reap_strays(keepers);
            return;
        };
        sweep.brood.outsiders = keepers;
        let outcome = match sweep.killing.advance(&mut sweep.brood, None) {
            Progress::Done => Outcome::Ended,
            Progress::Waiting if Instant::now() < sweep.killing.deadline => return,
            Progress::Waiting | Progress::Denied => Outcome::Survivors,
        };
        let reported = std::mem::replace(&mut sweep.reported, true);
        let facts = EndFacts {
            outcome: if self.subreaper { outcome } else { Outcome::Unconfirmed },
            mechanism,
            by: By::Helper,
            reason: Reason::KeeperGone,
            proof_time: sweep.killing.since.elapsed().as_micros() as u64,
            usage: sweep.brood.usage,
            leftover_count: sweep.brood.leftover_count,
            leftovers: sweep.brood.leftovers.clone(),
            survivors: if outcome == Outcome::Survivors { sweep.brood.names() } else { Vec::new() },
        };
        let keeper = sweep.keeper.raw();
        if outcome == Outcome::Ended {
            self.sweep = None;
        }
        if !reported {
            self.send(&FromHelper::KeeperEnded { keeper, facts }, Vec::new());
        }
        if self.sweep.is_none() {
            // The next one may have been waiting.
            self.look_at_keepers();
            if self.sweep.is_some() {
                self.advance_sweep();
            }
        }
    }

    /// A child of no keeper, when no brood is being ended, can only be what an idle keeper left: nothing that lives.
    fn reap_strays(&mut self, keepers: BTreeSet<Pid>) {
        if sys::peek_any().is_ok_and(|stray| stray.is_some_and(|pid| !keepers.contains(&pid))) {
            let mut brood = Brood { outsiders: keepers, ..Brood::default() };
            brood.reap_adopted();
        }
    }
}
