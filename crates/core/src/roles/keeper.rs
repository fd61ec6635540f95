//! The keeper: the parent of one call's command. It starts it, enforces its deadline, reaps, ends everything the
//! command started, and reports. Then it waits for the next call.
//!
//! One thread, one loop, one wait. Everything that happens is one of: a frame from the host, the host's end,
//! SIGCHLD, the status pipe, a time that has come. A failed write is no conclusion; only the end of the socket
//! (or the host's handle) says that the host is gone.

use std::cell::RefCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use holdfast_wire::{
    Background, EndFacts, FromKeeper, MAX_NAMED, Mechanism, Outcome, Reason, SpecView, Step, ToKeeper,
};

use crate::channel::classes::{Class, Slot};
use crate::channel::commitment::Commitment;
use crate::channel::connection::{Connection, Missing};
use crate::ends::asking::Asking;
use crate::ends::brood::{Brood, Killing, Left, Progress, facts};
use crate::ends::group::{GroupEnd, Hold, Live, Tracked};
use crate::ends::ladder::ENDS;
use crate::ends::settle::{Settled, Settling};
use crate::sys::{
    self, ChildrenFile, Failure, Group, Grouping, Handle, MOST_PLACES, Manners, Pid, PipeId, Plan, Sender,
    SignalSource, Stack, Surroundings, TerminalGroup, Wait,
};

/// `started` waits so long for company: a command that ends at once costs its host one wake-up, not two.
const HOLD_BACK: Duration = Duration::from_millis(1);

/// Interval between further SIGKILLs to survivors.
pub const AGAIN: Duration = Duration::from_secs(1);

/// Read from a drained pipe in one turn, at most: a process that writes without pause must not keep the keeper from
/// what else there is to do.
const DRAINED_IN_A_TURN: usize = 64 * 1024;

/// Without a subreaper the group is looked at so often, when it may be over.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// What a keeper is made with.
pub struct Setup {
    /// To the host.
    pub control: Connection,
    /// To the host as well.
    pub commitment: Commitment,
    /// The host, where its end is told.
    pub lifeline: Option<Handle>,
    /// Where the spawn helper reads this keeper's class.
    pub slot: Slot,
    /// Whether orphans re-parent to us.
    pub subreaper: bool,
    /// Ours until the command was started in it.
    pub terminal_group: Option<TerminalGroup>,
    /// For `holdfast run`: descriptors of our own that the command inherits, and we give up after its start.
    pub inherited: Vec<i32>,
    /// The command ignores SIGHUP, as we were told to (nohup(1)).
    pub nohup: bool,
}

/// The keeper's end of a connection: what others than the host send starts nothing.
pub fn control(socket: OwnedFd, host: Sender) -> Connection {
    Connection::new(socket).of_sender(host).with_descriptors()
}

/// Runs until the host is gone and nothing is left. Whether the host went in the middle of a call.
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
        manners: Manners::new(),
        group: None,
        call: None,
    };
    keeper.manners.stand_back();
    while !(keeper.host_gone && keeper.call.is_none()) {
        keeper.turn();
    }
    // Whose child it is after us may not reap it.
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
    /// It went in the middle of a call.
    lost_host: bool,
    stack: Stack,
    table: ChildrenFile,
    manners: Manners,
    /// For the next command, made ahead of it.
    group: Option<Group>,
    call: Option<Call>,
}

struct Call {
    brood: Brood,
    /// The command's first process, and how it ended.
    first: Pid,
    exited: bool,
    /// The command's, held by its pin, or by the first process where that leads it.
    group: Option<Group>,
    /// Until exec: the plan that the new process reads, and the status pipe.
    starting: Option<Starting>,
    deadline: Option<Instant>,
    kill_signal: i32,
    grace: Duration,
    background: Background,
    background_grace: Duration,
    /// At most so long what is left may finish what it is at, before the ladder begins.
    settle: Duration,
    settling: Option<Box<Settling>>,
    /// The command's pipes for output, until the settle time.
    outputs: Vec<PipeId>,
    /// What was left was still writing to them when its time was up.
    cut_off: bool,
    /// Nothing was alive below, as of the last reaping.
    settled: bool,
    /// The command's, in a terminal: the host is told of stops, so that it can stop too.
    terminal_group: Option<TerminalGroup>,
    /// Stops that the host was told of and has not answered.
    stops: u32,
    /// The first process passes on what it is sent.
    has_starter: bool,
    ending: Option<Ending>,
    /// Those that have not been sent the first signal yet.
    asking: Option<Box<Asking>>,
    /// Without a subreaper, once the end has begun: the group, and what of it was found.
    tracked: Option<Box<Tracked>>,
    /// Pipes of a kept call, read so that nobody blocks on them.
    drained: Vec<OwnedFd>,
}

struct Starting {
    _plan: Box<Plan>,
    status: OwnedFd,
    /// Before this, SIGCHLD tells of the start as well; see HOLD_BACK.
    look_at: Instant,
    /// For the program, once it is executed.
    signals: Vec<(i32, bool)>,
}

/// The first signal of the ladder.
struct First {
    signal: i32,
    /// What is in this group has received it already.
    known_to: Option<TerminalGroup>,
}

struct Ending {
    reason: Reason,
    stage: Stage,
    /// `ended` was sent with survivors; the keeper goes on, but nobody waits for it.
    reported: bool,
}

enum Stage {
    /// After the first signal, until this time.
    Grace(Instant),
    /// Nothing lives, no signal is needed.
    Settled,
    Killing(Box<Killing>),
}

impl Stage {
    fn killing() -> Stage {
        Stage::Killing(Box::new(Killing::begin()))
    }
}

impl Keeper {
    /// Waits for one thing to happen and deals with it.
    fn turn(&mut self) {
        if self.call.is_none() && self.group.is_none() && self.setup.terminal_group.is_none() {
            self.group = sys::make_group().ok();
        }
        let now = Instant::now();
        let ready = self.wait(self.next_time(now));
        if ready.control {
            self.receive();
        }
        if ready.lifeline && !self.host_gone {
            // What the host still said counts: a queued message comes before its end.
            self.receive();
            self.host_gone = true;
        }
        if ready.children {
            while self.children.take().is_some() {}
        }
        self.proceed(ready.drained);
        self.flush();
        // Not before the report is on its way: whoever finds us dead and idle reports nothing.
        if self.call.is_none() && !self.setup.control.has_output() && self.setup.slot.get() != Class::Idle {
            self.setup.slot.set(Class::Idle);
            self.manners.stand_back();
        }
    }

    /// The next time at which something is due without anything having happened.
    fn next_time(&self, now: Instant) -> Option<Instant> {
        let call = self.call.as_ref()?;
        let stage = match &call.ending {
            None => call.deadline,
            Some(Ending { stage: Stage::Grace(until), .. }) => {
                let asking = call.asking.as_ref().and_then(|asking| asking.next_time());
                Some(asking.map_or(*until, |time| time.min(*until)))
            }
            Some(Ending { reported: true, .. }) => Some(now + AGAIN),
            Some(Ending { stage: Stage::Killing(killing), .. }) => Some(killing.next_time()),
            Some(Ending { stage: Stage::Settled, .. }) => None,
        };
        let settled = call.settling.as_ref().map(|settling| settling.next_time());
        let look_at = call.starting.as_ref().map(|starting| starting.look_at).filter(|&time| time > now);
        // Nobody tells of the end of those who are not our children.
        let is_waiting = call.exited || call.ending.is_some();
        let again = (call.brood.only_group && is_waiting).then(|| now + LOOK_AGAIN);
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
                let signal = if signal < 0 { call.kill_signal } else { signal };
                let grace = u64::try_from(grace).map_or(call.grace, Duration::from_millis);
                call.climb(Reason::End, signal, grace);
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
        self.manners.step_forward();
        // The word that nothing was started must stay true: without this one there is no start. A host that has
        // given up on us has shut its side, and takes the end of ours for that word.
        if self.host_gone || self.setup.commitment.commit().is_err() {
            self.host_gone = true;
            return;
        }
        let now = Instant::now();
        let millis = Duration::from_millis;
        let terminal_group = self.setup.terminal_group.filter(|_| spec.same_group);
        let (timeout, kill_signal, grace) = (spec.timeout, spec.kill_signal, millis(spec.grace));
        let (background, background_grace) = (spec.background, millis(spec.background_grace));
        let settle = if background == Background::End { millis(spec.settle) } else { Duration::ZERO };
        let outputs = if settle.is_zero() {
            Vec::new()
        } else if spec.places().is_empty() {
            self.setup.inherited.iter().filter_map(|&number| PipeId::of_inherited(number)).collect()
        } else {
            pipes_of(&descriptors, spec.places().get(1..).unwrap_or_default())
        };
        let (commitment, detached) = (&self.setup.commitment, spec.detached);
        let surroundings = Surroundings {
            commitment: Some(commitment.as_fd()),
            grouping: match self.group {
                _ if terminal_group.is_some() => Grouping::Inherited,
                _ if detached => Grouping::Session,
                Some(group) => Grouping::Joined(group.id()),
                None => Grouping::Own,
            },
            nohup: self.setup.nohup,
            ..Surroundings::default()
        };
        let started = Plan::new(spec, &descriptors, &surroundings).and_then(|plan| {
            let mut plan = Box::new(plan);
            let started = sys::start(&mut plan, &mut self.stack)?;
            Ok((plan, started))
        });
        match started {
            Ok((plan, started)) => {
                let first = started.pid;
                let made = self.group.take();
                let group = made.filter(|_| !detached).unwrap_or_else(|| Group::new(first, first));
                self.call = Some(Call {
                    brood: Brood {
                        only_group: !self.setup.subreaper,
                        own: [first].into_iter().chain(made.map(|group| group.id())).collect(),
                        first: Some(first),
                        table: RefCell::new(std::mem::take(&mut self.table)),
                        ..Brood::default()
                    },
                    first,
                    exited: false,
                    group: terminal_group.is_none().then_some(group),
                    starting: Some(Starting {
                        _plan: plan,
                        status: started.status,
                        look_at: now + HOLD_BACK,
                        signals: Vec::new(),
                    }),
                    terminal_group,
                    stops: 0,
                    has_starter: false,
                    deadline: (timeout > 0).then(|| now + millis(timeout)),
                    kill_signal,
                    grace,
                    background,
                    background_grace,
                    settle,
                    settling: None,
                    outputs,
                    cut_off: false,
                    settled: false,
                    ending: None,
                    asking: None,
                    tracked: None,
                    drained: Vec::new(),
                });
            }
            Err(error) => {
                self.refuse(Step::Helper, error.raw_os_error().unwrap_or(sys::EAGAIN));
            }
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
        let mechanism = self.mechanism();
        let Some(call) = &mut self.call else { return };
        if drained {
            call.drain();
        }
        call.see_start(&mut self.outbox);
        call.see_exit(&mut self.outbox);
        if self.host_gone {
            self.lost_host = true;
            call.climb(Reason::HostGone, call.kill_signal, call.grace);
        }
        let now = Instant::now();
        if call.deadline.is_some_and(|deadline| deadline <= now) {
            call.climb(Reason::Timeout, call.kill_signal, call.grace);
        }
        call.settle();
        if let Some(mut facts) = call.advance(mechanism) {
            facts.cut_off = call.cut_off;
            // The first process may have ended in the last step.
            call.see_start(&mut self.outbox);
            call.see_exit(&mut self.outbox);
            let over = facts.outcome != Outcome::Survivors;
            if !call.is_reported() {
                FromKeeper::Ended(facts).put(&mut self.outbox);
            }
            if over {
                self.table = self.call.take().map(|call| call.brood.table.into_inner()).unwrap_or_default();
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
    /// A signal by the host's user. One that comes before the program was executed is for the program, as it would be
    /// under child_process, which waits for that; SIGKILL is for whatever there is.
    fn signal(&mut self, signal: i32, group: bool) {
        if let Some(starting) = &mut self.starting
            && signal != sys::SIGKILL
        {
            starting.signals.push((signal, group));
            starting.look_at = Instant::now();
        } else if group {
            self.group.iter().for_each(|group| {
                group.signal(signal);
            });
        } else if !self.exited {
            sys::kill_child(self.first, signal);
        }
    }

    /// The host was continued: alone, or by its shell, which continues the whole group. Then the command has SIGCONT, and
    /// may have been stopped again since.
    fn go_on(&mut self, outbox: &mut Vec<u8>) {
        self.stops = self.stops.saturating_sub(1);
        let is_stopped = self.stops == 0 && !self.exited && !sys::continued(self.first);
        // In this order: a new stop makes the kernel forget that it was continued.
        if is_stopped && !self.see_stop(outbox) {
            sys::kill_child(self.first, sys::SIGCONT);
        }
    }

    /// In a terminal: learns whether the first process was stopped.
    fn see_stop(&mut self, outbox: &mut Vec<u8>) -> bool {
        let is_stopped = self.terminal_group.is_some() && sys::stopped(self.first);
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
            self.climb_from(Reason::End, First { signal, known_to: Some(group) }, self.grace);
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
                // It is on its way out; there is no exit to report.
                self.exited = true;
                self.ending =
                    Some(Ending { reason: Reason::NotStarted, stage: Stage::killing(), reported: false });
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
            let reaped = self.brood.first_exit.map(|exit| (exit, self.brood.usage));
            let status = sys::inspect(self.first).map(|dead| (dead.exit, dead.usage)).or(reaped);
            if let Some((exit, usage)) = status {
                self.exited = true;
                let deadline = self.deadline.take();
                FromKeeper::Exited { exit, usage }.put(outbox);
                // The others would see a zombie until the call is over, unless it has to hold the group.
                if self.group.is_none_or(|group| group.id() != self.first) {
                    self.brood.reap_one(self.first);
                }
                if self.ending.is_none() && self.background == Background::End {
                    self.begin_to_settle(deadline);
                }
            } else {
                self.see_stop(outbox);
            }
        }
        if self.ending.is_none() {
            self.settled = self.brood.reap_adopted();
        }
    }

    /// The command has exited by itself. A limit that it kept hastens what comes after.
    fn begin_to_settle(&mut self, deadline: Option<Instant>) {
        if self.settle.is_zero() {
            return self.climb(Reason::Exit, self.kill_signal, self.background_grace);
        }
        // Nearly always nothing is left, and there is nothing to look at.
        self.settled = self.brood.reap_adopted();
        if !self.settled {
            let now = Instant::now();
            let until = deadline.into_iter().chain([now + self.settle]).min().unwrap_or(now);
            let outputs = std::mem::take(&mut self.outputs);
            self.settling = Some(Box::new(Settling::begin(now, until, outputs)));
        }
    }

    fn settle(&mut self) {
        let Some(settling) = &mut self.settling else { return };
        let (brood, group) = (&self.brood, self.group);
        let left = || match group {
            Some(group) if brood.only_group => match Hold::Pin(group).live() {
                Live::These(list) => list,
                Live::Nobody | Live::Unknown => Vec::new(),
            },
            _ => brood.survivors(),
        };
        match settling.look(left) {
            Settled::NotYet => return,
            Settled::Quiet => (),
            Settled::TimeUp { writing } => self.cut_off = writing,
        }
        self.climb(Reason::Exit, self.kill_signal, self.background_grace);
    }

    /// Begins the end, or hastens it: a later call can only shorten the grace.
    fn climb(&mut self, reason: Reason, signal: i32, grace: Duration) {
        self.climb_from(reason, First { signal, known_to: None }, grace);
    }

    fn climb_from(&mut self, reason: Reason, first: First, grace: Duration) {
        let First { signal, known_to } = first;
        let until = Instant::now() + grace;
        match &mut self.ending {
            None => (),
            Some(Ending { stage: Stage::Grace(earlier), .. }) => {
                self.asking.iter_mut().for_each(|asking| asking.shorten(grace));
                *earlier = if signal == sys::SIGKILL { Instant::now() } else { until.min(*earlier) };
                return;
            }
            Some(_) => return,
        }
        self.settling = None;
        // What died before the end began is not left over.
        let settled = self.brood.reap_adopted();
        self.brood.recording = true;
        if self.brood.only_group
            && let Some(group) = self.group
        {
            let mut tracked = Box::new(Tracked::new(Hold::Pin(group)));
            tracked.begin();
            self.brood.note(tracked.pids());
            self.tracked = Some(tracked);
        }
        let stage = if settled {
            Stage::Settled
        } else if grace.is_zero() || signal == sys::SIGKILL {
            if self.has_starter {
                self.brood.signal_all(self.group.as_ref(), sys::SIGKILL);
            }
            Stage::killing()
        } else {
            self.brood.first_signal = Some(Instant::now());
            // A starter passes on what it is sent: from both of us it would come twice, and to many programs a second one
            // means "at once".
            let has_starter = self.has_starter && !self.exited;
            if has_starter && ENDS.contains(&signal) {
                sys::kill_child(self.first, signal);
                sys::kill_child(self.first, sys::SIGCONT);
            } else if has_starter {
                self.brood.signal_others(None, signal, |pid| pid == self.first);
            } else if let Some(group) = known_to {
                self.brood.signal_others(None, signal, |pid| group.has(pid));
            } else if let Some(tracked) = &mut self.tracked {
                tracked.ask_to_end(signal);
            } else {
                self.asking = Asking::begin(&mut self.brood, self.group.as_ref(), signal, grace);
            }
            Stage::Grace(until)
        };
        self.ending = Some(Ending { reason, stage, reported: false });
    }

    fn is_reported(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.reported)
    }

    /// Takes the end as far as it goes now.
    fn advance(&mut self, mechanism: Mechanism) -> Option<EndFacts> {
        let brood = &mut self.brood;
        let Some(Ending { reason, stage, .. }) = &mut self.ending else {
            // What was left, if anything, has left by itself.
            let settled = self.settled || brood.only_group && is_empty(self.group.as_ref());
            let over = self.exited && settled && brood.reap() == Left::Nothing;
            return over.then(|| facts(brood, mechanism, Outcome::Ended, Reason::Exit, 0));
        };
        if let Stage::Grace(until) = *stage {
            if self.asking.iter_mut().any(|asking| asking.advance()) {
                brood.first_signal = Some(Instant::now());
            }
            // Some wait for that before they end, as the first process of a pid namespace for its members.
            if brood.reap_adopted() || brood.is_settled() {
                *stage = Stage::Settled;
            } else if Instant::now() < until && !self.tracked.as_mut().is_some_and(|tracked| is_gone(tracked))
            {
                return None;
            } else {
                // A shortened grace: not all were asked.
                if self.asking.as_ref().is_some_and(|asking| asking.next_time().is_some()) {
                    brood.first_signal = None;
                }
                *stage = Stage::killing();
                if self.has_starter {
                    // The deepest first: a starter's keeper that outlives it begins a ladder of its own.
                    brood.signal_all(self.group.as_ref(), sys::SIGKILL);
                }
            }
        }
        if let Stage::Settled = stage {
            if brood.reap() == Left::Nothing {
                return Some(facts(brood, mechanism, Outcome::Ended, *reason, 0));
            }
            *stage = Stage::killing();
        }
        let Stage::Killing(killing) = stage else {
            return None;
        };
        // Orphans are not ours without a subreaper, so that it is the group's end that counts, before it loses its pin.
        let group_end = match self.group {
            Some(group) if brood.only_group => {
                let tracked = self.tracked.get_or_insert_with(|| Box::new(Tracked::new(Hold::Pin(group))));
                tracked.end(killing.deadline(), brood.first_signal)
            }
            _ => GroupEnd::Unconfirmed,
        };
        let outcome = match killing.advance(brood, self.group.as_ref()) {
            _ if matches!(group_end, GroupEnd::Survivors(_)) => Outcome::Survivors,
            // No child being left shows nothing about orphans.
            Progress::Done if brood.only_group && group_end != GroupEnd::Ended => Outcome::Unconfirmed,
            Progress::Done => Outcome::Ended,
            Progress::Waiting => return None,
            Progress::Survivors => Outcome::Survivors,
        };
        let mut facts = facts(brood, mechanism, outcome, *reason, killing.since.elapsed().as_micros() as u64);
        if let GroupEnd::Survivors(list) = group_end {
            facts.survivors = list.iter().take(MAX_NAMED).map(|&pid| sys::shown(pid)).collect();
        }
        Some(facts)
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

/// Of these descriptors, those that are pipes.
fn pipes_of(descriptors: &[OwnedFd], which: &[u8]) -> Vec<PipeId> {
    which.iter().filter_map(|&index| PipeId::of(descriptors.get(usize::from(index))?.as_fd())).collect()
}

/// Whether nothing that was found is alive, and no member is left.
fn is_gone(tracked: &mut Tracked) -> bool {
    let mut look = || tracked.look() == Live::These(Vec::new());
    look() && look() && !tracked.is_any_alive()
}

/// Whether no member of the group is left: seen twice, as at every end.
fn is_empty(group: Option<&Group>) -> bool {
    let look = |&group: &Group| Hold::Pin(group).live() == Live::These(Vec::new());
    group.is_some_and(|group| look(group) && look(group))
}
