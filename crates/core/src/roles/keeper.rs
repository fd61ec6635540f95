//! The keeper: the parent of one call's command. It starts it, enforces its deadline, reaps, ends everything the
//! command started, and reports. Then it waits for the next call.
//!
//! One thread, one loop, one wait. Everything that happens is one of: a frame from the host, the host's end,
//! SIGCHLD, the status pipe, a time that has come. A failed write shows nothing; only the end of the socket, or
//! the host's handle, shows that the host is gone.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use holdfast_wire::{
    Background, EndFacts, FromKeeper, Lifetime, Mechanism, Outcome, Reason, Settle, SpecView, Step, ToKeeper,
};

use crate::channel::classes::{Class, Slot};
use crate::channel::commitment::Commitment;
use crate::channel::connection::{Connection, Missing};
use crate::ends::brood::{Brood, Killing, Left, facts};
use crate::ends::ladder::{self, ENDS, EndRequest, Ladder};
use crate::ends::reach::{Answer, Reach};
use crate::ends::settle::{Settled, Settling};
use crate::sys::{
    self, ChildrenFile, Failure, Group, Grouping, Handle, IdlePolicy, MOST_PLACES, Pid, PipeId, Plan, Sender,
    SignalSource, Stack, StartContext, Started, TerminalGroup, Wait,
};

/// How long `started` is held back, so that a command that exits at once is reported in one wake-up.
const HOLD_BACK: Duration = Duration::from_millis(1);

/// Interval between further SIGKILLs to survivors.
pub const AGAIN: Duration = Duration::from_secs(1);

/// Read from a drained pipe in one turn, at most: a process that writes without pause must not keep the keeper from
/// what else there is to do.
const DRAINED_IN_A_TURN: usize = 64 * 1024;

/// What a keeper is made with.
pub struct Setup {
    /// The connection to the host.
    pub control: Connection,
    /// The commitment, which the host reads.
    pub commitment: Commitment,
    /// The host, where there is an event for its end.
    pub lifeline: Option<Handle>,
    /// Where the spawn helper reads this keeper's class.
    pub slot: Slot,
    /// Whether orphans re-parent to us.
    pub subreaper: bool,
    /// Ours until the command was started in it.
    pub terminal_group: Option<TerminalGroup>,
    /// For a runner's keeper: descriptors of our own that the command inherits, and we give up after its start.
    pub inherited: Vec<i32>,
    /// The command is to ignore SIGHUP, as we were started with it ignored (nohup(1)).
    pub nohup: bool,
}

/// The keeper's end of a connection: what another process than the host sends starts nothing.
pub fn control(socket: OwnedFd, host: Sender) -> Connection {
    Connection::new(socket).of_sender(host).with_descriptors()
}

/// Runs until the host is gone and nothing is left. Returns whether the host went in the middle of a call.
pub fn keep(setup: Setup) -> io::Result<bool> {
    let mut keeper = Keeper {
        children: SignalSource::new(&[sys::SIGCHLD])?,
        setup,
        outbox: Vec::new(),
        host_gone: false,
        is_last: false,
        lost_host: false,
        stack: Stack::new()?,
        table: ChildrenFile::default(),
        idle_policy: IdlePolicy::new(),
        group: None,
        call: None,
    };
    keeper.idle_policy.batch();
    while !(keeper.host_gone && keeper.call.is_none()) {
        keeper.run_once();
    }
    // Its next parent may be one that does not reap.
    if let Some(group) = keeper.group {
        sys::reap(group.id());
    }
    Ok(keeper.lost_host)
}

struct Keeper {
    setup: Setup,
    children: SignalSource,
    /// Frames of this turn.
    outbox: Vec<u8>,
    host_gone: bool,
    /// The host starts no further call here.
    is_last: bool,
    /// The host went in the middle of a call.
    lost_host: bool,
    stack: Stack,
    table: ChildrenFile,
    idle_policy: IdlePolicy,
    /// The group for the next command, made ahead of it.
    group: Option<Group>,
    call: Option<Call>,
}

struct Call {
    reach: Reach,
    /// The command's first process.
    first: Pid,
    exited: bool,
    /// Until exec: the plan that the new process reads, and the status pipe.
    starting: Option<Starting>,
    deadline: Option<Instant>,
    lifetime: Lifetime,
    /// What is left may finish what it is at, before the ladder begins.
    settling: Option<Box<Settling>>,
    /// The command's pipes for output, until the settle time.
    outputs: Vec<PipeId>,
    /// What was left was still writing to them when its time was up.
    settled_as: Settle,
    /// Nothing was alive below, as of the last reaping.
    settled: bool,
    /// The command's group, in a terminal: stops are reported to the host, so that it can stop too.
    terminal_group: Option<TerminalGroup>,
    /// Stops that were reported to the host and are not answered.
    stops: u32,
    /// The first process passes on what it is sent.
    has_starter: bool,
    ending: Option<Ending>,
    /// Pipes of a kept call, read so that no process blocks on them.
    drained: Vec<OwnedFd>,
}

struct Starting {
    _plan: Box<Plan>,
    status: OwnedFd,
    /// Until then the start is noticed at a SIGCHLD as well; see HOLD_BACK.
    look_at: Instant,
    /// Signals for the program, once it is executed.
    signals: Vec<(i32, bool)>,
}

struct Ending {
    ladder: Ladder,
    stage: Stage,
    /// `ended` was sent with survivors; the keeper goes on, but no call waits for it.
    reported: bool,
}

enum Stage {
    /// After the first signal, until SIGKILL is due.
    Grace,
    /// Nothing lives, no signal is needed.
    Settled,
    Killing(Box<Killing>),
}

impl Keeper {
    /// Waits for one thing to happen and deals with it.
    fn run_once(&mut self) {
        if self.call.is_none() && self.group.is_none() && self.setup.terminal_group.is_none() {
            self.group = sys::make_group().ok();
        }
        let now = Instant::now();
        let ready = self.wait(self.next_time(now));
        if ready.control {
            self.receive();
        }
        if ready.lifeline && !self.host_gone {
            // The host's last messages count: a queued one comes before its end.
            self.receive();
            self.host_gone = true;
        }
        if ready.children {
            while self.children.take().is_some() {}
        }
        self.proceed(ready.drained);
        self.flush();
        // Not before the report is on its way: for a keeper that died idle the helper reports nothing.
        if self.call.is_none() && !self.setup.control.has_output() && self.setup.slot.get() != Class::Idle {
            self.setup.slot.set(Class::Idle);
            self.idle_policy.batch();
        }
    }

    /// The next time at which something is due without anything having happened.
    fn next_time(&self, now: Instant) -> Option<Instant> {
        let call = self.call.as_ref()?;
        let stage = match &call.ending {
            None => call.deadline,
            Some(Ending { stage: Stage::Grace, ladder, .. }) => {
                Some(call.reach.next_time().map_or(ladder.kill_at(), |time| time.min(ladder.kill_at())))
            }
            Some(Ending { reported: true, .. }) => Some(now + AGAIN),
            Some(Ending { stage: Stage::Killing(killing), .. }) => Some(killing.next_time()),
            Some(Ending { stage: Stage::Settled, .. }) => None,
        };
        let settled = call.settling.as_ref().map(|settling| settling.next_time());
        let look_at = call.starting.as_ref().map(|starting| starting.look_at).filter(|&time| time > now);
        let is_waiting = call.exited || call.ending.is_some();
        let again = call.reach.look_again(now).filter(|_| is_waiting);
        stage.into_iter().chain(settled).chain(look_at).chain(again).min()
    }

    fn wait(&self, until: Option<Instant>) -> Ready {
        let mut wait = Wait::new();
        let children = wait.signal(&self.children);
        let control = (!self.host_gone).then(|| self.setup.control.watch(&mut wait));
        let lifeline = self.setup.lifeline.as_ref().filter(|_| !self.host_gone);
        let lifeline = lifeline.map(|host| wait.exit(host));
        let mut drained = Vec::new();
        if let Some(call) = &self.call {
            if let Some(starting) = &call.starting
                && starting.look_at <= Instant::now()
            {
                wait.readable(&starting.status);
            }
            drained.extend(call.drained.iter().map(|fd| wait.readable(fd)));
        }
        let ready = wait.until(until);
        Ready {
            children: ready.has(children),
            control: control.is_some_and(|control| ready.has(control)),
            lifeline: lifeline.is_some_and(|lifeline| ready.has(lifeline)),
            drained: drained.into_iter().any(|fd| ready.has(fd)),
        }
    }

    /// Reads all there is, then deals with the frames. An error in them is a lost host.
    fn receive(&mut self) {
        self.setup.control.receive();
        self.host_gone |= self.setup.control.has_ended();
        while let Some(message) = self.setup.control.next(ToKeeper::decode) {
            self.obey(message);
        }
        self.host_gone |= self.setup.control.has_ended();
    }

    fn obey(&mut self, message: ToKeeper) {
        let mechanism = self.mechanism();
        match (message, &mut self.call) {
            (ToKeeper::Spec(spec), None) if !self.is_last => self.start(spec),
            // One call at a time, and none after the last: such a spec can only come from a host that is not ours.
            (ToKeeper::Spec(_), _) => self.host_gone = true,
            (ToKeeper::Last, _) => self.is_last = true,
            // What crosses the last report on its way belongs to a call that is over. The next spec may be behind it.
            (ToKeeper::HandOver { count }, None) => {
                drop(self.setup.control.take_descriptors(count as usize));
            }
            (_, None) => (),
            (ToKeeper::Signal { signal, group }, Some(call)) => call.signal(signal, group),
            (ToKeeper::Starter, Some(call)) => call.has_starter = true,
            (ToKeeper::Terminal { signal }, Some(call)) => call.heed_terminal(signal),
            (ToKeeper::Continued, Some(call)) => call.go_on(&mut self.outbox),
            (ToKeeper::End { signal, grace }, Some(call)) => {
                call.climb(EndRequest::by_user(&call.lifetime, signal, grace));
            }
            (ToKeeper::HandOver { count }, Some(call)) => {
                // All of them or none: what the host closes for an answer must have a reader here.
                match self.setup.control.take_descriptors(count as usize) {
                    Err(_) => FromKeeper::NotTaken(mechanism).put(&mut self.outbox),
                    Ok(pipes) => {
                        call.drained.extend(pipes);
                        FromKeeper::Taken(mechanism).put(&mut self.outbox);
                    }
                }
            }
        }
    }

    fn start(&mut self, spec: SpecView) {
        let descriptors = match self.setup.control.take_descriptors(spec.descriptors as usize) {
            Ok(descriptors) => descriptors,
            Err(Missing::CutOff) => return self.refuse(Step::Stdio, sys::EMFILE),
            Err(Missing::NotSent) => return self.refuse(Step::Stdio, sys::EBADF),
        };
        if spec.places().len() > MOST_PLACES {
            return self.refuse(Step::Stdio, sys::E2BIG);
        }
        // Before the commitment: a keeper lost between the two has the helper's report.
        self.setup.slot.set(Class::Contained(self.group.map(|group| group.id())));
        self.idle_policy.normal();
        // A report that nothing was started must stay true: without the commitment there is no start. A host that has
        // given up on us has shut its side, and takes the end of ours for that report.
        if self.host_gone || self.setup.commitment.commit().is_err() {
            self.host_gone = true;
            return;
        }
        self.start_with(spec, descriptors);
    }

    /// Starts the command. The commitment is made.
    fn start_with(&mut self, spec: SpecView, descriptors: Vec<OwnedFd>) {
        let now = Instant::now();
        let terminal_group = self.setup.terminal_group.filter(|_| spec.same_group);
        let mut lifetime = spec.lifetime;
        if lifetime.background == Background::Keep {
            lifetime.background_settle = 0;
        }
        let outputs =
            if lifetime.background_settle > 0 { self.outputs_of(&spec, &descriptors) } else { Vec::new() };
        let detached = spec.detached;
        let context = StartContext {
            commitment: Some(self.setup.commitment.as_fd()),
            grouping: match self.group {
                _ if terminal_group.is_some() => Grouping::Inherited,
                _ if detached => Grouping::Session,
                Some(group) => Grouping::Joined(group.id()),
                None => Grouping::Own,
            },
            nohup: self.setup.nohup,
            ..StartContext::default()
        };
        let started = Plan::new(spec, &descriptors, &context).and_then(|plan| {
            let mut plan = Box::new(plan);
            let Started { pid, status } = sys::start(&mut plan, &mut self.stack)?;
            let look_at = now + HOLD_BACK;
            Ok((pid, Starting { _plan: plan, status, look_at, signals: Vec::new() }))
        });
        match started {
            Ok((first, starting)) => {
                let reach = self.reach_of(first, detached, terminal_group.is_none());
                let call =
                    Call { outputs, terminal_group, ..Call::new(first, reach, starting, lifetime, now) };
                self.call = Some(call);
            }
            Err(error) => self.refuse(Step::Helper, error.raw_os_error().unwrap_or(sys::EAGAIN)),
        }
        if terminal_group.is_some() {
            // What the terminal sent to its group before the command was born there has only reached us.
            if let Some(call) = &self.call {
                for signal in ENDS.into_iter().filter(|&signal| sys::is_pending(signal)) {
                    sys::kill_child(call.first, signal);
                }
            }
            sys::leave_session();
        }
        // The new process has copies of its own; ours would hold pipes open.
        if !self.setup.inherited.is_empty() {
            sys::stand_apart(&std::mem::take(&mut self.setup.inherited));
        }
        drop(descriptors);
    }

    /// The command's pipes for output.
    fn outputs_of(&self, spec: &SpecView, descriptors: &[OwnedFd]) -> Vec<PipeId> {
        if spec.places().is_empty() {
            self.setup.inherited.iter().filter_map(|&number| PipeId::of_inherited(number)).collect()
        } else {
            pipes_of(descriptors, spec.places().get(1..).unwrap_or_default())
        }
    }

    /// What the end of a command reaches that was started as this process. `has_group`: it is not in a terminal's
    /// group.
    fn reach_of(&mut self, first: Pid, detached: bool, has_group: bool) -> Reach {
        let made = self.group.take();
        let group = made.filter(|_| !detached).unwrap_or_else(|| Group::new(first, first));
        let brood = Brood {
            own: [first].into_iter().chain(made.map(|group| group.id())).collect(),
            first: Some(first),
            table: RefCell::new(std::mem::take(&mut self.table)),
            ..Brood::default()
        };
        Reach::new(self.setup.subreaper, brood, has_group.then_some(group))
    }

    /// Nothing was started and nothing is left.
    fn refuse(&mut self, step: Step, errno: i32) {
        FromKeeper::Failed { step, errno }.put(&mut self.outbox);
        let facts = facts(&Brood::default(), self.mechanism(), Outcome::Ended, Reason::NotStarted, 0);
        FromKeeper::Ended(facts).put(&mut self.outbox);
    }

    fn mechanism(&self) -> Mechanism {
        if self.setup.subreaper { Mechanism::Subreaper } else { Mechanism::Group }
    }

    /// Deals with whatever has changed about the call.
    fn proceed(&mut self, drained: bool) {
        let Some(call) = &mut self.call else { return };
        if drained {
            call.drain();
        }
        call.see_start(&mut self.outbox);
        call.see_exit(&mut self.outbox);
        if self.host_gone {
            self.lost_host = true;
            call.climb(EndRequest::for_reason(&call.lifetime, Reason::HostGone));
        }
        let now = Instant::now();
        if call.deadline.is_some_and(|deadline| deadline <= now) {
            call.climb(EndRequest::for_reason(&call.lifetime, Reason::Timeout));
        }
        call.settle();
        if let Some(mut facts) = call.advance() {
            facts.settle = call.settled_as;
            // The first process may have ended in the last step.
            call.see_start(&mut self.outbox);
            call.see_exit(&mut self.outbox);
            let over = facts.outcome != Outcome::Survivors;
            if !call.is_reported() {
                FromKeeper::Ended(facts).put(&mut self.outbox);
            }
            if over {
                self.table =
                    self.call.take().map(|call| call.reach.brood.table.into_inner()).unwrap_or_default();
            } else if let Some(ending) = &mut call.ending {
                ending.reported = true;
            }
        }
    }

    fn flush(&mut self) {
        let frames = std::mem::take(&mut self.outbox);
        if !frames.is_empty() {
            self.setup.control.send(frames, Vec::new());
        } else {
            self.setup.control.flush();
        }
    }
}

#[derive(Default)]
struct Ready {
    children: bool,
    control: bool,
    lifeline: bool,
    drained: bool,
}

impl Call {
    /// A call whose command was started now.
    fn new(first: Pid, reach: Reach, starting: Starting, lifetime: Lifetime, now: Instant) -> Call {
        Call {
            reach,
            first,
            exited: false,
            starting: Some(starting),
            deadline: ladder::deadline(&lifetime, now),
            lifetime,
            settling: None,
            outputs: Vec::new(),
            settled_as: Settle::Quiet,
            settled: false,
            terminal_group: None,
            stops: 0,
            has_starter: false,
            ending: None,
            drained: Vec::new(),
        }
    }

    /// A signal by the host's user. One that comes before the program was executed is for the program, as it would be
    /// under child_process, which waits for that; SIGKILL is for whatever there is.
    fn signal(&mut self, signal: i32, group: bool) {
        if let Some(starting) = &mut self.starting
            && signal != sys::SIGKILL
        {
            starting.signals.push((signal, group));
            starting.look_at = Instant::now();
        } else if group {
            if let Some(group) = self.reach.group() {
                group.signal(signal);
            }
        } else if !self.exited {
            sys::kill_child(self.first, signal);
        }
    }

    /// The host was continued: alone, or by its shell, which continues the whole group. Then the command has SIGCONT,
    /// and may have been stopped again since.
    fn go_on(&mut self, outbox: &mut Vec<u8>) {
        self.stops = self.stops.saturating_sub(1);
        let is_stopped = self.stops == 0 && !self.exited && !sys::take_continue(self.first);
        // In this order: a new stop makes the kernel forget that it was continued.
        if is_stopped && !self.see_stop(outbox) {
            sys::kill_child(self.first, sys::SIGCONT);
        }
    }

    /// In a terminal: learns whether the first process was stopped.
    fn see_stop(&mut self, outbox: &mut Vec<u8>) -> bool {
        let is_stopped = self.terminal_group.is_some() && sys::take_stop(self.first);
        if is_stopped {
            self.stops += 1;
            FromKeeper::Stopped.put(outbox);
        }
        is_stopped
    }

    /// What the terminal sends is the command's own business while its first process is there to receive it. A hang-up
    /// is not: the end begins, with the rest of the ladder for what ignores it.
    fn heed_terminal(&mut self, signal: i32) {
        let Some(group) = self.terminal_group else { return };
        let answers = !self.exited && group.has(self.first);
        if signal == sys::SIGHUP || !answers {
            self.climb_from(EndRequest::by_user(&self.lifetime, signal, -1), Some(group));
        }
    }

    /// Learns whether the program was executed.
    fn see_start(&mut self, outbox: &mut Vec<u8>) {
        let Some(starting) = &self.starting else { return };
        let mut bytes = [0; 8];
        let failure = match sys::read(&starting.status, &mut bytes) {
            Ok(8) => Some(Failure::decode(bytes)),
            Ok(_) => None,
            // Before exec still, and alive.
            Err(_) => return,
        };
        match failure {
            None => FromKeeper::Started.put(outbox),
            Some(Failure { step, errno }) => {
                FromKeeper::Failed { step, errno }.put(outbox);
                // The new process is about to exit, which is not reported.
                self.exited = true;
                let (reason, grace) = (Reason::NotStarted, Duration::ZERO);
                let request = EndRequest { reason, signal: sys::SIGKILL, grace };
                let ladder = Ladder::begin(request, Instant::now());
                self.ending = Some(Ending { ladder, stage: self.killing(), reported: false });
            }
        }
        let signals = self.starting.take().map(|starting| starting.signals).unwrap_or_default();
        for (signal, group) in signals {
            self.signal(signal, group);
        }
    }

    /// Learns whether the first process ended, and reaps what was adopted.
    fn see_exit(&mut self, outbox: &mut Vec<u8>) {
        if self.starting.is_some() {
            return;
        }
        if !self.exited {
            let reaped = self.reach.brood.first_exit.map(|exit| (exit, self.reach.brood.usage));
            let status = sys::peek(self.first).map(|dead| (dead.exit, dead.usage)).or(reaped);
            if let Some((exit, usage)) = status {
                self.exited = true;
                let deadline = self.deadline.take();
                FromKeeper::Exited { exit, usage }.put(outbox);
                // The others would see a zombie until the call is over, unless it has to hold the group.
                if self.reach.group().is_none_or(|group| group.id() != self.first) {
                    self.reach.brood.reap_one(self.first);
                }
                if self.ending.is_none() && self.lifetime.background == Background::End {
                    self.begin_to_settle(deadline);
                }
            } else {
                self.see_stop(outbox);
            }
        }
        if self.ending.is_none() {
            self.settled = self.reach.reap_adopted();
        }
    }

    /// The command has exited by itself. A limit that it kept hastens what comes after.
    fn begin_to_settle(&mut self, deadline: Option<Instant>) {
        if self.lifetime.background_settle == 0 {
            return self.climb(EndRequest::at_exit(&self.lifetime));
        }
        // Nearly always nothing is left, and there is nothing to look at.
        self.settled = self.reach.reap_adopted();
        if !self.settled {
            let now = Instant::now();
            let latest = now + Duration::from_millis(self.lifetime.background_settle);
            let until = deadline.map_or(latest, |deadline| deadline.min(latest));
            let outputs = std::mem::take(&mut self.outputs);
            self.settling = Some(Box::new(Settling::begin(now, until, outputs)));
        }
    }

    fn settle(&mut self) {
        let Some(settling) = &mut self.settling else { return };
        match settling.look(|| self.reach.left()) {
            Settled::NotYet => return,
            Settled::Quiet => (),
            Settled::TimeUp { writing: false } => self.settled_as = Settle::AtWork,
            Settled::TimeUp { writing: true } => self.settled_as = Settle::Writing,
        }
        self.climb(EndRequest::at_exit(&self.lifetime));
    }

    /// Begins the end, or hastens it.
    fn climb(&mut self, request: EndRequest) {
        self.climb_from(request, None);
    }

    /// `known_to`: what is in this group has received the signal already.
    fn climb_from(&mut self, request: EndRequest, known_to: Option<TerminalGroup>) {
        let now = Instant::now();
        match &mut self.ending {
            None => (),
            Some(Ending { stage: Stage::Grace, ladder, .. }) => {
                self.reach.shorten(request.grace);
                return ladder.hasten(request, now);
            }
            Some(_) => return,
        }
        self.settling = None;
        let ladder = Ladder::begin(request, now);
        let is_settled = self.reach.begin();
        let stage = match ladder.first_signal() {
            _ if is_settled => Stage::Settled,
            None => {
                if self.has_starter {
                    self.reach.kill_once();
                }
                self.killing()
            }
            Some(signal) => {
                self.send_first_signal(signal, request.grace, known_to);
                Stage::Grace
            }
        };
        self.ending = Some(Ending { ladder, stage, reported: false });
    }

    fn send_first_signal(&mut self, signal: i32, grace: Duration, known_to: Option<TerminalGroup>) {
        self.reach.brood.first_signal = Some(Instant::now());
        // A starter passes on what it is sent: from both of us it would come twice, and to many programs a second one
        // means "at once".
        let has_starter = self.has_starter && !self.exited;
        if has_starter && ENDS.contains(&signal) {
            sys::kill_child(self.first, signal);
            sys::kill_child(self.first, sys::SIGCONT);
        } else if has_starter {
            self.reach.brood.signal_others(None, signal, |pid| pid == self.first);
        } else if let Some(group) = known_to {
            self.reach.brood.signal_others(None, signal, |pid| group.has(pid));
        } else {
            self.reach.ask_to_end(signal, grace);
        }
    }

    fn killing(&self) -> Stage {
        Stage::Killing(Box::new(self.reach.begin_killing()))
    }

    fn is_reported(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.reported)
    }

    /// Takes the end as far as it goes now.
    fn advance(&mut self) -> Option<EndFacts> {
        let Some(Ending { ladder, stage, .. }) = &mut self.ending else {
            let over = self.exited && self.reach.has_left(self.settled);
            return over.then(|| self.reach.facts(Outcome::Ended, Reason::Exit, 0, &[]));
        };
        if let Stage::Grace = stage {
            match self.reach.await_answers() {
                Answer::Settled => *stage = Stage::Settled,
                Answer::Alive if !ladder.is_over(Instant::now()) => return None,
                Answer::Alive | Answer::Gone => {
                    self.reach.end_grace();
                    *stage = Stage::Killing(Box::new(self.reach.begin_killing()));
                    if self.has_starter {
                        // The deepest first: a starter's keeper that outlives it begins a ladder of its own.
                        self.reach.kill_once();
                    }
                }
            }
        }
        if let Stage::Settled = stage {
            if self.reach.brood.reap() == Left::Nothing {
                return Some(self.reach.facts(Outcome::Ended, ladder.reason(), 0, &[]));
            }
            *stage = Stage::Killing(Box::new(self.reach.begin_killing()));
        }
        let Stage::Killing(killing) = stage else { return None };
        let (outcome, survivors) = self.reach.kill(killing)?;
        let proof_time = killing.since.elapsed().as_micros() as u64;
        Some(self.reach.facts(outcome, ladder.reason(), proof_time, &survivors))
    }

    /// Reads what kept processes print, and forgets it. What is left is read in the next turn.
    fn drain(&mut self) {
        let mut bytes = [0; 4096];
        self.drained.retain(|fd| {
            for _ in 0..DRAINED_IN_A_TURN / bytes.len() {
                match sys::read_now(fd, &mut bytes) {
                    Ok(0) => return false,
                    Ok(_) => (),
                    Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
                }
            }
            true
        });
    }
}

/// The pipes among these descriptors.
fn pipes_of(descriptors: &[OwnedFd], which: &[u8]) -> Vec<PipeId> {
    which.iter().filter_map(|&index| PipeId::of(descriptors.get(usize::from(index))?.as_fd())).collect()
}
