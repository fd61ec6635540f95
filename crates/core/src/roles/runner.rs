//! The runner: a process that stays between its parent and one command, with a keeper of its own beside it. It is host
//! and spawn helper in one: when it is killed, the keeper ends the brood; when the keeper is killed, the brood becomes
//! its own. `holdfast run` ([`run`](crate::roles::run)) and the starter ([`starter`](crate::roles::starter)) are two of
//! its kind.
//!
//! The command gets what the runner was given, descriptors included, and the runner lets go of it once the command
//! has it. The command is not executed before the keeper is there to outlive the runner.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Instant;

use holdfast_wire::{
    EndFacts, Exit, FromKeeper, Lifetime, NO_DESCRIPTOR, Outcome, Reason, Settle, Spec, Step, ToKeeper,
};

use crate::channel::classes::Classes;
use crate::channel::commitment::Commitment;
use crate::channel::connection::Connection;
use crate::ends::brood::{Brood, Killing, Progress};
use crate::ends::ladder::BUDGET;
use crate::roles::exit_codes::{NOT_EXECUTABLE, NOT_FOUND, TIMED_OUT, of_signal};
use crate::roles::keeper;
use crate::roles::say::say;
use crate::sys::{
    self, Attributes, ChildState, ChildrenFile, Failure, Forked, Origin, Parent, Pid, Sender, SignalInfo,
    SignalSource, TerminalGroup, Wait,
};

/// Signals that a terminal sends to the whole group in its foreground and that do not end a command: it has them.
const TO_THE_GROUP: [i32; 5] = [sys::SIGWINCH, sys::SIGCONT, sys::SIGTSTP, sys::SIGTTIN, sys::SIGTTOU];

const NOT_ALL: &str = "not everything that the command started could be shown to be ended";

const CUT_OFF: &str = "what the command left running still wrote output when its time was over, and was ended, so that the output may be incomplete";

/// What this process was given, looked at before it has anything of its own.
pub struct Inherited {
    /// Descriptors that the command is to have.
    pub descriptors: Vec<i32>,
    /// Children that we have from before (`server & exec …`): not ours to end.
    strangers: Vec<Pid>,
    subreaper: bool,
}

impl Inherited {
    /// Looks, and takes on what every mode needs.
    pub fn now() -> Inherited {
        // First of all: from here on a signal waits until it is acted on.
        sys::block_all_signals();
        let descriptors = sys::open_descriptors();
        let strangers = sys::own_children(&mut ChildrenFile::default()).unwrap_or_else(children_by_number);
        Inherited { descriptors, strangers, subreaper: sys::become_mode(None) }
    }
}

/// All our children, where there is no process table.
fn children_by_number() -> Vec<Pid> {
    let mut found = BTreeSet::new();
    // By an error the kernel reports that there are none.
    while sys::peek_any().is_ok() {
        let more = sys::children_by_number(&found);
        if more.is_empty() {
            break;
        }
        found.extend(more);
    }
    found.into_iter().collect()
}

/// How a runner deals with signals, with its parent and with its terminal.
#[derive(Default)]
pub struct RunnerConfig {
    /// In a terminal the command stays in this group, our own, and what the terminal sends reaches it without us.
    pub terminal_group: Option<TerminalGroup>,
    /// Which signals begin the end.
    pub ends: &'static [i32],
    /// SIGHUP is ignored, as nohup(1) has it.
    pub nohup: bool,
    /// A parent whose end begins ours.
    pub parent: Option<Parent>,
    /// A pipe or socket whose end begins ours.
    pub control: Option<OwnedFd>,
    /// Standard error is the command's alone, too.
    pub lets_go_of_stderr: bool,
}

/// The command that a runner runs.
pub struct RunnerCommand<'a> {
    /// Program and arguments.
    pub command: &'a [OsString],
    /// Environment as `NAME=value`, NUL-joined.
    pub env: Vec<u8>,
    /// Working directory; empty for ours.
    pub cwd: &'a OsStr,
    /// When it ends, and how.
    pub lifetime: Lifetime,
}

/// What a fork leaves us to be.
pub enum Side {
    /// The keeper, at its end. True: the runner was lost in the middle of a call.
    Keeper(bool),
    /// The runner.
    Runner(Box<Runner>),
}

/// How this process is to end.
pub enum ExitAs {
    /// With this status.
    Code(u8),
    /// With the signal that ended the command.
    Signal(i32),
}

impl ExitAs {
    /// Ends by the signal, where that can be.
    pub fn carry_out(self) -> ExitCode {
        match self {
            ExitAs::Code(code) => ExitCode::from(code),
            ExitAs::Signal(signal) => {
                sys::raise_default(signal);
                // As process 1, or for a signal that does not end a process.
                ExitCode::from(of_signal(signal))
            }
        }
    }
}

/// The process between the parent and the command.
pub struct Runner {
    keeper: Pid,
    control: Connection,
    commitment: Commitment,
    signals: SignalSource,
    /// Signals for the command that came before its start.
    early: Vec<SignalInfo>,
    /// The signal that came before the start and began the end: nothing is started.
    called_off: Option<i32>,
    inherited: Vec<i32>,
    strangers: BTreeSet<Pid>,
    /// There were children before the keeper.
    had_children: bool,
    config: RunnerConfig,
    /// The end was asked for because the parent or the control descriptor is gone.
    abandoned: bool,
    /// A lost keeper's brood was ended.
    has_ended_brood: bool,
    exit: Option<Exit>,
    failure: Option<(Step, i32)>,
}

impl Runner {
    /// Forks the keeper.
    pub fn begin(arrived: Inherited, config: RunnerConfig) -> io::Result<Side> {
        let (control, keeper_end) = sys::control_pair()?;
        let commitment = Commitment::new()?;
        let slot = Classes::new()?.claim().ok_or(io::ErrorKind::OutOfMemory)?;
        let Inherited { descriptors: inherited, strangers, subreaper } = arrived;
        let keeper = match sys::fork()? {
            Forked::Child => {
                let RunnerConfig { terminal_group, nohup, parent, control: watched, .. } = config;
                drop((control, parent, watched));
                sys::hide_arguments();
                let setup = keeper::Setup {
                    control: keeper::control(keeper_end, Sender::parent()),
                    commitment,
                    lifeline: sys::handle_of_parent(),
                    slot,
                    subreaper: sys::become_keeper(terminal_group.is_some()) && subreaper,
                    terminal_group,
                    inherited,
                    nohup,
                };
                return Ok(Side::Keeper(keeper::keep(setup)?));
            }
            Forked::Parent(pid) => pid,
        };
        drop(keeper_end);
        Ok(Side::Runner(Box::new(Runner {
            keeper,
            control: Connection::new(control),
            commitment,
            signals: SignalSource::of_all()?,
            early: Vec::new(),
            called_off: None,
            inherited,
            had_children: !strangers.is_empty(),
            strangers: strangers.into_iter().collect(),
            config,
            abandoned: false,
            has_ended_brood: false,
            exit: None,
            failure: None,
        })))
    }

    /// Writes a line to standard output, before anything is started, as soon as that takes it. What begins the end
    /// meanwhile is acted on: then this is how we end.
    pub fn say_first(&mut self, line: &[u8], ourselves: u8) -> Option<ExitAs> {
        loop {
            let is_writable = self.await_something(true);
            let asked = self.take_before_start().map(ExitAs::Signal);
            // Without a keeper there is no cover, and nothing is started.
            let is_over = self.is_abandoned() || sys::child_state(self.keeper) != ChildState::Alive;
            let exit_as = asked.or(is_over.then_some(ExitAs::Code(ourselves)));
            if exit_as.is_some() {
                self.dismiss_keeper();
                return exit_as;
            }
            if is_writable {
                sys::write_out(line, BUDGET);
                return None;
            }
        }
    }

    /// Has the keeper start the command, and waits until all of it is ended or that cannot be shown.
    pub fn run(&mut self, order: &RunnerCommand<'_>) -> Option<EndFacts> {
        self.called_off = self.take_before_start();
        if self.called_off.is_some() {
            self.dismiss_keeper();
            return None;
        }
        // What died before this process had a descriptor for SIGCHLD.
        self.reap_strays();
        if let Err(Failure { step, errno }) = self.send_spec(order) {
            self.failure = Some((step, errno));
            self.dismiss_keeper();
            return None;
        }
        for sent in std::mem::take(&mut self.early) {
            self.heed(sent);
        }
        let facts = self.wait();
        if facts.as_ref().is_some_and(|facts| facts.outcome != Outcome::Survivors) {
            self.dismiss_keeper();
        }
        facts
    }

    /// Before the start: takes what was sent until now. The signal that calls the start off, if there is one.
    fn take_before_start(&mut self) -> Option<i32> {
        let mut end = None;
        while let Some(sent) = self.signals.take() {
            if sent.signal == sys::SIGCHLD {
                self.see_children();
            } else if self.is_end(sent) {
                end = end.or(Some(sent.signal));
            } else {
                self.early.push(sent);
            }
        }
        end
    }

    fn send_spec(&mut self, order: &RunnerCommand<'_>) -> Result<(), Failure> {
        // The keeper has the same working directory, and needs no descriptor of it where this user may not search it.
        let descriptors: Vec<OwnedFd> = sys::open_directory(".").into_iter().collect();
        let joined = order.command.iter().map(|arg| arg.as_bytes()).collect::<Vec<_>>().join(&0);
        let attributes = Attributes::now();
        let spec = Spec {
            file: order.command[0].as_bytes(),
            args: &joined,
            env: &order.env,
            cwd: order.cwd.as_bytes(),
            // Everything else the command inherits from the keeper, which has it from us.
            places: &[],
            descriptors: descriptors.len() as u32,
            // Without it the keeper's: it was forked by us.
            umask: attributes.umask.ok().flatten(),
            nice: attributes.nice,
            nofile: attributes.nofile,
            uid: None,
            gid: None,
            lifetime: order.lifetime,
            same_group: self.config.terminal_group.is_some(),
            detached: false,
            cwd_is_open: false,
            program: NO_DESCRIPTOR,
        };
        let mut bytes = Vec::new();
        ToKeeper::put_spec(&mut bytes, &spec)?;
        self.control.send(bytes, descriptors);
        Ok(())
    }

    /// Waits until the keeper reports the end, or until the brood of a lost keeper is ended.
    fn wait(&mut self) -> Option<EndFacts> {
        loop {
            self.await_something(false);
            self.control.flush();
            while let Some(sent) = self.signals.take() {
                self.heed(sent);
            }
            if !self.abandoned && self.is_abandoned() {
                self.abandoned = true;
                self.ask_for_the_end(sys::SIGTERM);
            }
            match self.receive() {
                Ok(Some(facts)) => return Some(facts),
                Ok(None) => (),
                Err(()) => {
                    self.has_ended_brood = self.end_brood();
                    return None;
                }
            }
        }
    }

    /// Waits for something to happen. Whether standard output, if that is waited for, takes something.
    fn await_something(&self, for_output: bool) -> bool {
        let stdout = sys::stdout();
        let mut wait = Wait::new();
        self.control.watch(&mut wait);
        wait.signal(&self.signals);
        if !self.abandoned {
            if let Some(control) = &self.config.control {
                wait.readable(control);
            }
            if let Some(parent) = &self.config.parent {
                wait.parent(parent);
            }
        }
        let output = for_output.then(|| wait.writable(&stdout));
        let ready = wait.until(None);
        output.is_some_and(|output| ready.has(output))
    }

    /// Whether our parent, or the other end of the control descriptor, is gone.
    fn is_abandoned(&self) -> bool {
        self.config.parent.as_ref().is_some_and(Parent::is_gone)
            || self.config.control.as_ref().is_some_and(has_ended)
    }

    /// The keeper has reported and leaves when our end closes: waits for that, and reaps it.
    fn dismiss_keeper(&self) {
        sys::shut(self.control.socket());
        let until = Instant::now() + BUDGET;
        while sys::child_state(self.keeper) == ChildState::Alive && Instant::now() < until {
            self.await_signal(Some(until));
        }
        sys::reap(self.keeper);
    }

    fn await_signal(&self, until: Option<Instant>) {
        let mut wait = Wait::new();
        wait.signal(&self.signals);
        wait.until(until);
        while self.signals.take().is_some() {}
    }

    fn see_children(&mut self) {
        if sys::take_stop(self.keeper) {
            sys::kill_child(self.keeper, sys::SIGCONT);
        }
        self.reap_strays();
    }

    /// SIGPIPE of a line of ours is not for the command, and nohup(1) keeps SIGHUP from it.
    fn is_ours_to_drop(&self, SignalInfo { signal, origin }: SignalInfo) -> bool {
        signal == sys::SIGPIPE && origin == Origin::Ourselves || signal == sys::SIGHUP && self.config.nohup
    }

    fn is_end(&self, sent: SignalInfo) -> bool {
        self.config.ends.contains(&sent.signal) && !self.is_ours_to_drop(sent)
    }

    /// Acts on a signal, or passes it on. What the terminal sends to its group the command has already, except SIGHUP
    /// at a hang-up, which the kernel sends to a session's leader alone.
    fn heed(&mut self, sent: SignalInfo) {
        let SignalInfo { signal, origin } = sent;
        if signal == sys::SIGCHLD {
            return self.see_children();
        }
        let by_kernel = origin == Origin::Kernel;
        // SIGCONT has continued us where we were stopped with the command; it is passed on there.
        let is_continuation = signal == sys::SIGCONT && self.config.terminal_group.is_some();
        if by_kernel && TO_THE_GROUP.contains(&signal) || is_continuation || self.is_ours_to_drop(sent) {
            return;
        }
        let only_leader = signal == sys::SIGHUP && sys::leads_session();
        let command_has_it = by_kernel && self.config.terminal_group.is_some() && !only_leader;
        if !self.is_end(sent) {
            self.send_to_keeper(|bytes| ToKeeper::put_signal(bytes, signal, false));
        } else if command_has_it {
            self.send_to_keeper(|bytes| ToKeeper::put_terminal(bytes, signal));
        } else {
            self.ask_for_the_end(signal);
        }
    }

    /// As a subreaper, or as process 1, we are the parent of orphans that are not the command's, and of those children
    /// that we had before. No other process reaps them.
    fn reap_strays(&mut self) {
        while let Ok(Some(pid)) = sys::peek_any()
            && pid != self.keeper
        {
            sys::reap(pid);
            // Its number may be given out again.
            self.strangers.remove(&pid);
        }
    }

    fn ask_for_the_end(&mut self, signal: i32) {
        self.send_to_keeper(|bytes| ToKeeper::put_end(bytes, signal, -1));
    }

    fn send_to_keeper(&mut self, put: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        put(&mut bytes);
        self.control.send(bytes, Vec::new());
    }

    /// `Err`: the keeper is lost.
    fn receive(&mut self) -> Result<Option<EndFacts>, ()> {
        self.control.receive();
        while let Some(message) = self.control.next(|frame| FromKeeper::decode(&frame)) {
            match message {
                FromKeeper::Started => {
                    sys::let_go_of_stdio(&self.inherited, self.config.lets_go_of_stderr);
                }
                FromKeeper::Taken(_) | FromKeeper::NotTaken(_) => (),
                FromKeeper::Failed { step, errno, .. } => self.failure = Some((step, errno)),
                FromKeeper::Exited { exit, .. } => self.exit = Some(exit),
                // Until SIGCONT comes, for us and our group.
                FromKeeper::Stopped => {
                    if sys::stop_ourselves() {
                        self.send_to_keeper(ToKeeper::put_continued);
                    }
                }
                FromKeeper::Ended(facts) => return Ok(Some(facts)),
            }
        }
        if self.control.has_ended() { Err(()) } else { Ok(None) }
    }

    /// The keeper is lost; what was below it is below us now. Whether nothing is left.
    ///
    /// If we had children before, their orphans are ours too, and which ones are whose is not known: then only the
    /// keeper's session is ended, and the end is not shown.
    fn end_brood(&mut self) -> bool {
        let first = self.commitment.take().pid.and_then(Pid::new);
        let own: Vec<Pid> = first.into_iter().chain([self.keeper]).collect();
        let only_session = self.had_children.then_some(self.keeper);
        let outsiders = self.strangers.clone();
        let mut brood = Brood { own, first, outsiders, only_session, ..Brood::default() };
        let mut killing = Killing::begin();
        loop {
            match killing.advance(&mut brood, None) {
                Progress::Done => return !self.had_children,
                Progress::Waiting => (),
                Progress::Survivors => return false,
            }
            self.await_signal(Some(killing.next_time()));
        }
    }

    /// What the outcome means for our own end. `ourselves`: the status for what is holdfast's own failure.
    pub fn exit_as(&self, facts: Option<EndFacts>, program: &OsStr, ourselves: u8) -> ExitAs {
        if let Some(signal) = self.called_off {
            return ExitAs::Signal(signal);
        }
        let program = program.to_string_lossy();
        if let Some((step, errno)) = self.failure {
            let error = io::Error::from_raw_os_error(errno);
            say(&format!("cannot run '{program}': {}: {error}", step.as_str()));
            return ExitAs::Code(match (step, errno) {
                (Step::Program, sys::ENOENT | sys::ENOTDIR) => NOT_FOUND,
                (Step::Program | Step::Interpreter, _) => NOT_EXECUTABLE,
                _ => ourselves,
            });
        }
        let Some(facts) = facts else {
            let rest =
                if self.has_ended_brood { "everything that the command started was ended" } else { NOT_ALL };
            say(&format!("the keeper was lost; {rest}"));
            return ExitAs::Code(ourselves);
        };
        if matches!(facts.outcome, Outcome::Survivors | Outcome::Unconfirmed) {
            say(NOT_ALL);
        }
        if facts.settle == Settle::Writing {
            say(CUT_OFF);
        }
        match (facts.reason, self.exit) {
            (Reason::Timeout, _) => ExitAs::Code(TIMED_OUT),
            (_, Some(Exit::Code(code))) => ExitAs::Code(code as u8),
            (_, Some(Exit::Signal(signal))) => ExitAs::Signal(signal),
            (_, None) => ExitAs::Code(ourselves),
        }
    }
}

/// Whether the other end of a pipe or socket is closed. What comes before the end is read and means nothing.
fn has_ended(fd: &OwnedFd) -> bool {
    let mut bytes = [0; 512];
    loop {
        match sys::read_now(fd, &mut bytes) {
            Ok(0) => return true,
            Ok(_) => (),
            Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
        }
    }
}
