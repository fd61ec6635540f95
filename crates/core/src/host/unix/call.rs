//! One call as the host sees it: the spec on its way, the keeper's messages, and what to conclude when the keeper is
//! lost.
//!
//! The only proof that nothing ran is the end of the call's own socket without `committed` before it. Then the call
//! is tried once more; the command's ends of the pipes are kept until `committed` for that.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use holdfast_wire::{By, EndFacts, FromKeeper, Mechanism, Outcome, Reason, Settle, Step, ToKeeper, Usage};

use super::super::event::{Event, Observer};
use super::super::lock::lock;
use super::super::request::Request;
use super::plain::Plain;
use super::pool::{KeeperEnd, Pool, Refusal};
use super::prepare::Prepared;
use crate::ends::ladder::BUDGET;
use crate::sys::{self, Wait};

/// Without any message for this long the host shuts its side, so that the keeper can start nothing any more.
const SILENCE: Duration = Duration::from_secs(10);
/// From there until the call is reported as unclear; and, beyond the budget, for the helper's report of a lost keeper.
const ANSWER: Duration = Duration::from_secs(2);

/// One call.
pub struct Call {
    helper: PathBuf,
    spec: Vec<u8>,
    descriptors: Vec<OwnedFd>,
    attempts: u32,
    keeper: Option<KeeperEnd>,
    /// The plain child that runs in place of a keeper.
    plain: Option<Plain>,
    best_effort: bool,
    changed_socket: bool,
    /// Messages sent before the keeper has committed itself; they are sent again to the next keeper.
    replay: Vec<u8>,
    began: Instant,
    shut: Option<Instant>,
    committed: bool,
    pid: Option<i32>,
    started: bool,
    exited: bool,
    /// The keeper's socket has ended, since then.
    lost: Option<Instant>,
    reusable: bool,
    /// The end, once it is there.
    over: Option<EndFacts>,
    /// Observers in other environments, which wait for the end.
    pub observers: Vec<Weak<Observer>>,
    events: VecDeque<Event>,
}

impl Call {
    /// Hands what was prepared to a keeper.
    pub fn start(prepared: Prepared, request: &Request<'_>, pool: &mut Pool) -> Call {
        let Prepared { spec, descriptors, .. } = prepared;
        let mut call = Call::new(request.helper.clone(), spec, descriptors, request.best_effort);
        call.send(pool);
        call
    }

    /// `best_effort`: without a helper as a plain child.
    fn new(helper: PathBuf, spec: Vec<u8>, descriptors: Vec<OwnedFd>, best_effort: bool) -> Call {
        Call {
            helper,
            spec,
            descriptors,
            attempts: 0,
            keeper: None,
            plain: None,
            best_effort,
            changed_socket: false,
            replay: Vec::new(),
            began: Instant::now(),
            shut: None,
            committed: false,
            pid: None,
            started: false,
            exited: false,
            lost: None,
            reusable: false,
            over: None,
            observers: Vec::new(),
            events: VecDeque::new(),
        }
    }

    /// A call that the host itself could not prepare.
    pub fn failed(step: Step, error: &io::Error) -> Call {
        let mut call = Call::new(PathBuf::new(), Vec::new(), Vec::new(), false);
        call.fail_here(step, error.raw_os_error().unwrap_or(0));
        call
    }

    /// The keeper's socket, and whether the reactor knows it from an earlier call.
    pub fn socket(&self) -> (Option<Arc<OwnedFd>>, bool) {
        match &self.keeper {
            Some(keeper) => (Some(Arc::clone(keeper.connection.socket())), keeper.watched),
            None => (self.plain.as_ref().and_then(|plain| plain.end.clone()), false),
        }
    }

    /// True once after the call moved to another keeper.
    pub fn changed_socket(&mut self) -> bool {
        std::mem::take(&mut self.changed_socket)
    }

    pub fn pid(&self) -> Option<i32> {
        self.pid
    }

    pub fn has_output(&self) -> bool {
        self.keeper.as_ref().is_some_and(|keeper| keeper.connection.has_output())
    }

    /// There are events that no descriptor will announce.
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    pub fn is_over(&self) -> bool {
        self.over.is_some()
    }

    /// The end, once it is there.
    pub fn facts(&self) -> Option<&EndFacts> {
        self.over.as_ref()
    }

    /// Its environment is gone, and has taken it along: its end will not be seen.
    pub fn abandon(&mut self) {
        self.over.get_or_insert_with(|| facts(Outcome::Unconfirmed, Reason::HostGone));
    }

    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// The keeper goes back, for its next call or for none.
    pub fn give_back(&mut self, watched: bool, pool: &mut Pool) {
        match self.keeper.take() {
            Some(keeper) if self.reusable => pool.put_back(KeeperEnd { watched, ..keeper }),
            Some(keeper) => pool.discard(&keeper),
            None => (),
        }
    }

    /// Whether the keeper is lost. Then the helper reports the end, and the pool notifies this number: no descriptor is
    /// ready for it.
    pub fn waits_for_pool(&self, number: u32, pool: &mut Pool) -> bool {
        let lost = self.lost.and(self.keeper.as_ref()).map(|keeper| keeper.id);
        lost.inspect(|&keeper| pool.notify_when_ended(keeper, number)).is_some()
    }

    /// When to look again although nothing arrived.
    pub fn next_time(&self) -> Option<Instant> {
        if let Some(plain) = &self.plain {
            return plain.next_time();
        }
        match (self.lost, self.shut) {
            (Some(lost), _) => Some(lost + BUDGET + ANSWER),
            _ if self.committed => None,
            (None, Some(shut)) => Some(shut + ANSWER),
            (None, None) => Some(self.began + SILENCE),
        }
    }

    /// Hands the spec to a keeper, to another one if that one has died.
    fn send(&mut self, pool: &mut Pool) {
        let mut last = "two keepers were lost before they started anything".to_owned();
        while self.attempts < 2 {
            self.attempts += 1;
            // An idle keeper that died cannot have started anything: as many tries as there may be of those.
            for _ in 0..=32 {
                let mut keeper = match pool.acquire(&self.helper) {
                    Ok(keeper) => keeper,
                    Err(refusal) => return self.go_without(refusal),
                };
                match self.send_to(&mut keeper) {
                    Ok(()) => {
                        self.keeper = Some(keeper);
                        self.changed_socket = self.attempts > 1;
                        self.began = Instant::now();
                        return;
                    }
                    Err(error) => {
                        pool.discard(&keeper);
                        last = format!("handing the call to a keeper: {error}");
                        // Too many descriptors on their way is not the keeper's fault, and another one does not help.
                        if error.raw_os_error() == Some(sys::ETOOMANYREFS) {
                            return self.refuse(false, sys::ETOOMANYREFS, last);
                        }
                    }
                }
            }
        }
        self.refuse(false, sys::EPIPE, last);
    }

    /// No helper is to be had: a plain child where the caller allows that, else the refusal.
    fn go_without(&mut self, refusal: Refusal) {
        if !self.best_effort {
            return self.refuse_for(refusal);
        }
        let Some(spec) = ToKeeper::spec_in(&self.spec) else { return self.refuse_for(refusal) };
        match Plain::start(&spec, &self.descriptors) {
            Ok(plain) => {
                self.pid = Some(plain.pid.raw());
                self.plain = Some(plain);
                self.committed = true;
                self.started = true;
                self.changed_socket = true;
                self.descriptors.clear();
                self.events.push_back(Event::Started(self.pid));
            }
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or(0);
                if error.kind() == io::ErrorKind::Unsupported {
                    return self.fail_here(Step::Stdio, sys::ENOTSUP);
                }
                // The error of std does not have the step that failed.
                let there =
                    spec.cwd().is_empty() || Path::new(OsStr::from_bytes(spec.cwd().to_bytes())).is_dir();
                let step = match errno {
                    sys::E2BIG => Step::Arguments,
                    _ if there => Step::Program,
                    _ => Step::Cwd,
                };
                self.fail_here(step, errno);
            }
        }
    }

    fn send_to(&self, keeper: &mut KeeperEnd) -> io::Result<()> {
        let along: Vec<_> = self.descriptors.iter().map(AsFd::as_fd).collect();
        keeper.connection.send_first(&self.spec, &along)?;
        if !self.replay.is_empty() {
            keeper.connection.send(self.replay.clone(), Vec::new());
        }
        Ok(())
    }

    /// The plain child of a live call, if it is one.
    fn plain(&mut self) -> Option<&mut Plain> {
        self.plain.as_mut().filter(|_| self.over.is_none())
    }

    /// Signals the first process, or the group. False when the call has ended or its keeper is gone.
    pub fn signal(&mut self, signal: i32, group: bool) -> bool {
        match self.plain() {
            Some(plain) => plain.signal(signal, group),
            None => self.post(|bytes| ToKeeper::put_signal(bytes, signal, group), Vec::new()),
        }
    }

    /// Starts the ladder; -1 stands for the call's own. Likewise.
    pub fn end(&mut self, signal: i32, grace: i64) -> bool {
        if let Some(plain) = self.plain() {
            plain.end(signal, grace);
            return true;
        }
        self.post(|bytes| ToKeeper::put_end(bytes, signal, grace), Vec::new())
    }

    /// The first process is a starter. Likewise.
    pub fn set_starter(&mut self) -> bool {
        self.post(ToKeeper::put_starter, Vec::new())
    }

    /// Gives read ends to the keeper. Likewise.
    pub fn hand_over(&mut self, ends: Vec<Arc<OwnedFd>>) -> bool {
        let count = ends.len() as u32;
        self.post(|bytes| ToKeeper::put_hand_over(bytes, count), ends)
    }

    /// Queues a message. False when the call has ended or its keeper is gone.
    fn post(&mut self, put: impl FnOnce(&mut Vec<u8>), descriptors: Vec<Arc<OwnedFd>>) -> bool {
        let Some(keeper) = self.keeper.as_mut().filter(|_| self.over.is_none() && self.lost.is_none()) else {
            return false;
        };
        let mut bytes = Vec::new();
        put(&mut bytes);
        if !self.committed {
            self.replay.extend_from_slice(&bytes);
        }
        keeper.connection.send(bytes, descriptors);
        true
    }

    /// The keeper of a helper that was replaced is to start nothing after this call, which may be over without having
    /// been reported yet. Not repeated to another keeper, which may be a new helper's.
    pub fn retire_unless_current(&mut self, pool: &Pool) {
        let Some(keeper) = self.keeper.as_mut().filter(|keeper| !pool.is_current(keeper.id)) else { return };
        let mut bytes = Vec::new();
        ToKeeper::put_last(&mut bytes);
        keeper.connection.send(bytes, Vec::new());
    }

    /// Reads until the pid is known, the start failed, or the time is up.
    pub fn await_pid(&mut self, wait: Duration, pool: &Mutex<Pool>) {
        let deadline = Instant::now() + wait;
        loop {
            if self.pid.is_none() && self.over.is_none() {
                self.look_at_commitment();
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if self.pid.is_some() || self.over.is_some() || self.lost.is_some() || left.is_zero() {
                return;
            }
            let Some(keeper) = &self.keeper else { return };
            let mut wait = Wait::new();
            wait.readable(&keeper.commitment);
            let control = keeper.connection.watch(&mut wait);
            if !wait.until(Some(deadline)).has(control) {
                continue;
            }
            // The start may have failed, or the keeper may be gone.
            self.read(pool);
            if self.started {
                return;
            }
        }
    }

    /// Takes in what has arrived, and the time that has passed.
    pub fn receive(&mut self, pool: &Mutex<Pool>) {
        if let Some(plain) = self.plain() {
            if let Some((exit, usage)) = plain.advance() {
                let reason = plain.reason();
                self.exited = true;
                self.events.push_back(Event::Exited(exit, usage));
                self.finish(EndFacts { usage, ..facts(Outcome::Unconfirmed, reason) });
            }
            return;
        }
        self.read(pool);
        if self.over.is_some() {
            return;
        }
        if self.lost.is_some() {
            return self.conclude(pool);
        }
        if self.began.elapsed() >= SILENCE {
            self.look_at_commitment();
        }
        if self.committed {
            return;
        }
        match self.shut {
            None if self.began.elapsed() >= SILENCE => {
                if let Some(keeper) = &self.keeper {
                    let _ = sys::end_writing(keeper.connection.socket());
                }
                self.shut = Some(Instant::now());
            }
            Some(shut) if shut.elapsed() >= ANSWER => {
                self.refuse(true, sys::ETIMEDOUT, "the keeper gives no answer".to_owned());
            }
            _ => (),
        }
    }

    fn read(&mut self, pool: &Mutex<Pool>) {
        while self.over.is_none() && self.lost.is_none() {
            let Some(keeper) = &mut self.keeper else { return };
            keeper.connection.flush();
            keeper.connection.receive();
            // What a keeper sends after `ended` belongs to no call.
            while self.over.is_none()
                && let Some(keeper) = &mut self.keeper
                && let Some(message) = keeper.connection.next(|frame| FromKeeper::decode(&frame))
            {
                self.take_in(message);
            }
            let has_ended = self.keeper.as_ref().is_some_and(|keeper| keeper.connection.has_ended());
            if self.over.is_some() || !has_ended {
                return;
            }
            self.lose(pool);
        }
    }

    fn take_in(&mut self, message: FromKeeper) {
        match message {
            FromKeeper::Started => {
                self.look_at_commitment();
                self.started = true;
                self.events.push_back(Event::Started(self.pid));
            }
            FromKeeper::Failed { step, errno } => {
                self.look_at_commitment();
                self.pid = None;
                self.started = true;
                self.exited = true;
                self.events.push_back(Event::Failed { step, errno, by_host: false });
            }
            FromKeeper::Exited { exit, usage } => {
                self.exited = true;
                self.events.push_back(Event::Exited(Some(exit), usage));
            }
            FromKeeper::Taken(mechanism) => self.events.push_back(Event::Taken { mechanism, pipes: true }),
            FromKeeper::NotTaken(mechanism) => {
                self.events.push_back(Event::Taken { mechanism, pipes: false });
            }
            FromKeeper::Stopped => (),
            FromKeeper::Ended(facts) => {
                self.look_at_commitment();
                self.reusable = facts.outcome != Outcome::Survivors && !self.has_output();
                self.finish(facts);
            }
        }
    }

    /// Whether the keeper went on to start the command, and as which pid.
    fn look_at_commitment(&mut self) {
        let Some(keeper) = &self.keeper else { return };
        let progress = keeper.commitment.take();
        self.pid = self.pid.or(progress.pid);
        if progress.committed {
            self.committed = true;
            self.descriptors.clear();
            self.spec = Vec::new();
            self.replay = Vec::new();
        }
    }

    /// The keeper's socket has ended before `ended` came.
    fn lose(&mut self, pool: &Mutex<Pool>) {
        self.look_at_commitment();
        if !self.committed {
            if let Some(keeper) = self.keeper.take() {
                lock(pool).discard(&keeper);
            }
            self.shut = None;
            return self.send(&mut lock(pool));
        }
        self.lost = Some(Instant::now());
        if !self.started && !self.exited {
            let tried = "the keeper was lost while it started the command".to_owned();
            self.events.push_back(Event::Refused { unclear: true, errno: sys::EPIPE, tried });
        } else if !self.exited {
            self.events.push_back(Event::Exited(None, Usage::default()));
        }
        self.exited = true;
        self.conclude(pool);
    }

    /// The end of a call whose keeper is lost: as the helper reports it, or unconfirmed.
    fn conclude(&mut self, pool: &Mutex<Pool>) {
        let (Some(lost), Some(keeper)) = (self.lost, &self.keeper) else {
            return;
        };
        let mut pool = lock(pool);
        let report = pool.report(keeper.id);
        if report.is_none() && pool.may_report(keeper.id) && lost.elapsed() < BUDGET + ANSWER {
            return;
        }
        self.give_back(false, &mut pool);
        drop(pool);
        self.finish(report.unwrap_or_else(|| facts(Outcome::Unconfirmed, Reason::KeeperGone)));
    }

    /// Nothing ran, and that is known here.
    fn fail_here(&mut self, step: Step, errno: i32) {
        self.events.push_back(Event::Failed { step, errno, by_host: true });
        self.finish(facts(Outcome::Ended, Reason::NotStarted));
    }

    fn refuse_for(&mut self, refusal: Refusal) {
        match refusal {
            Refusal::Descriptors(errno) => self.fail_here(Step::Helper, errno),
            Refusal::Helper { errno, tried } => self.refuse(false, errno, tried),
        }
    }

    fn refuse(&mut self, unclear: bool, errno: i32, tried: String) {
        self.events.push_back(Event::Refused { unclear, errno, tried });
        let outcome = if unclear { Outcome::Unconfirmed } else { Outcome::Ended };
        self.finish(facts(outcome, Reason::NotStarted));
    }

    fn finish(&mut self, facts: EndFacts) {
        self.over = Some(facts.clone());
        self.descriptors.clear();
        self.events.push_back(Event::Ended(facts));
    }
}

fn facts(outcome: Outcome, reason: Reason) -> EndFacts {
    EndFacts {
        outcome,
        mechanism: Mechanism::None,
        by: By::Host,
        reason,
        proof_time: 0,
        usage: Usage::default(),
        leftover_count: 0,
        leftovers: Vec::new(),
        survivors: Vec::new(),
        settle: Settle::Quiet,
    }
}
