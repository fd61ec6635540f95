//! `holdfast run`: one contained command in the place where it was typed.
//!
//! This process stays between shell and command, with a keeper of its own beside it. It is host and spawn helper in
//! one: when it is killed, the keeper ends the brood; when the keeper is killed, the brood becomes its own.
//!
//! With a controlling terminal the command stays in the group it was started in, so that what the terminal sends
//! (^C, ^Z, SIGWINCH) reaches it as if nobody stood between, and this process takes no part in it: it blocks those
//! signals, and stops itself when the command was stopped, so that the shell sees a stopped job. Without a terminal
//! the command leads a session of its own, and what this process is sent begins the end.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::time::Instant;

use holdfast_wire::{Background, Decoder, EndFacts, Exit, FromKeeper, Outcome, Reason, Spec, Step, ToKeeper};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Mode, OFlags};

use crate::brood::{Brood, Killing, Progress};
use crate::classes::Classes;
use crate::commitment::Commitment;
use crate::keeper::{self, BUDGET};
use crate::socket::{self, Outbox, Received};
use crate::sys::{self, Attributes, ChildrenFile, Forked, Look, Pid, SignalSource, Terminal};

/// timeout(1): the time was up.
const TIMED_OUT: u8 = 124;
/// timeout(1), env(1): holdfast itself failed.
const OURSELVES: u8 = 125;
/// The shell's: found, not executable.
const NOT_EXECUTABLE: u8 = 126;
/// The shell's: not found.
const NOT_FOUND: u8 = 127;

/// What begins the end when it is sent to us.
const ASKS_FOR_THE_END: [i32; 4] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTERM];

const NOT_ALL: &str = "not everything that the command started could be shown to be ended";
const USAGE: &str = "usage: holdfast run [--timeout 30s] [--grace 2s] [--background end|keep] [--cwd DIR] -- command [args...]";

/// The command line of `run`.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    timeout: u64,
    grace: u64,
    background: Background,
    cwd: OsString,
    command: Vec<OsString>,
}

/// Parses what follows `run`.
fn parse(args: &[OsString]) -> Result<Options, String> {
    let mut options = Options {
        timeout: 0,
        grace: 2_000,
        background: Background::End,
        cwd: OsString::new(),
        command: Vec::new(),
    };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let text = arg.to_str().unwrap_or_default();
        let (name, inline) =
            text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value.into())));
        if !name.starts_with("--") || name == "--" {
            let from = args.len() - rest.len() - usize::from(name != "--");
            options.command = args[from..].to_vec();
            break;
        }
        if !["--timeout", "--grace", "--background", "--cwd"].contains(&name) {
            return Err(format!("unknown option '{name}'"));
        }
        let value: OsString =
            inline.or_else(|| rest.next().cloned()).ok_or_else(|| format!("'{name}' needs a value"))?;
        let shown = value.to_string_lossy();
        match name {
            "--timeout" => options.timeout = milliseconds(name, &shown)?,
            "--grace" => options.grace = milliseconds(name, &shown)?,
            "--cwd" => options.cwd = value,
            _ => {
                options.background = match shown.as_ref() {
                    "end" => Background::End,
                    "keep" => Background::Keep,
                    other => return Err(format!("'--background' is 'end' or 'keep', not '{other}'")),
                }
            }
        }
    }
    if options.command.is_empty() { Err("no command".to_owned()) } else { Ok(options) }
}

/// `500ms`, `30s`, `2m`, `1h`; a bare number counts seconds, as in timeout(1).
fn milliseconds(name: &str, text: &str) -> Result<u64, String> {
    let wrong = || format!("'{name}' is a time like 500ms, 30s or 2m, not '{text}'");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "ms" => 1.0,
        "" | "s" => 1_000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let result = (number * factor).ceil();
    // A time that was asked for is never "none".
    if (0.0..1e15).contains(&result) { Ok(result as u64) } else { Err(wrong()) }
}

fn say(text: &str) {
    let _ = writeln!(io::stderr(), "holdfast: {text}");
}

/// The mode. `args` is what follows `run`.
pub fn run(args: &[OsString]) -> ExitCode {
    if args.first().is_some_and(|arg| arg == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(args) {
        Ok(options) => options,
        Err(problem) => {
            say(&format!("{problem}\n{USAGE}"));
            return ExitCode::from(OURSELVES);
        }
    };
    let ended = supervise(&options);
    match ended {
        Ok(Verdict::Code(code)) => ExitCode::from(code),
        Ok(Verdict::Signal(signal)) => {
            sys::raise_default(signal);
            // As process 1, or for a signal that does not end a process.
            ExitCode::from(128 + signal as u8)
        }
        Ok(Verdict::Keeper) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(OURSELVES)
        }
    }
}

enum Verdict {
    Code(u8),
    Signal(i32),
    /// This process was the keeper.
    Keeper,
}

fn supervise(options: &Options) -> io::Result<Verdict> {
    // Before any descriptor of our own: what is open now was meant for the command.
    let inherited = sys::open_descriptors();
    let nohup = sys::is_ignored(libc::SIGHUP);
    // `server & exec holdfast run …`: they are not ours to end.
    let strangers = sys::own_children(&mut ChildrenFile::default()).unwrap_or_default();
    let subreaper = sys::become_mode(None);
    let terminal = Terminal::open();
    let group = terminal.as_ref().and(sys::own_group());
    let (control, keeper_end) = socket::pair()?;
    let commitment = Commitment::new()?;
    let slot = Classes::new()?.claim().ok_or(io::ErrorKind::OutOfMemory)?;
    let keeper = match sys::fork()? {
        Forked::Child => {
            drop(control);
            let setup = keeper::Setup {
                control: keeper_end,
                commitment,
                lifeline: sys::pidfd_of_parent(),
                slot,
                subreaper: subreaper && sys::become_keeper(),
                terminal_group: group,
                inherited,
                nohup,
            };
            let lost = keeper::keep(setup)?;
            // Otherwise the terminal is the host's, or the shell's again.
            if let Some(terminal) = terminal.filter(|_| lost) {
                terminal.restore();
            }
            return Ok(Verdict::Keeper);
        }
        Forked::Parent(pid) => pid,
    };
    drop(keeper_end);
    let mut runner = Runner {
        keeper,
        control,
        commitment,
        inbox: Decoder::default(),
        outbox: Outbox::default(),
        signals: SignalSource::new(&[&ASKS_FOR_THE_END[..], &[libc::SIGCHLD]].concat())?,
        inherited,
        in_terminal: group.is_some(),
        nohup,
        strangers: strangers.into_iter().collect(),
        swept: false,
        exit: None,
        failure: None,
    };
    runner.send_spec(options, group.is_some())?;
    let facts = runner.wait();
    if facts.as_ref().is_some_and(|facts| facts.outcome != Outcome::Survivors) {
        runner.dismiss_keeper();
    }
    // Not when a shell has it back already (a script around us that died of ^C first): its modes are its own.
    if let Some(terminal) = terminal.filter(|terminal| terminal.is_ours()) {
        terminal.restore();
    }
    Ok(runner.verdict(facts, &options.command[0]))
}

struct Runner {
    keeper: Pid,
    control: OwnedFd,
    commitment: Commitment,
    inbox: Decoder,
    outbox: Outbox,
    signals: SignalSource,
    /// Descriptors that the command has now.
    inherited: Vec<i32>,
    in_terminal: bool,
    /// SIGHUP was ignored when we came, as nohup(1) has it.
    nohup: bool,
    /// Children that this process had before.
    strangers: BTreeSet<Pid>,
    /// A lost keeper's brood was ended.
    swept: bool,
    exit: Option<Exit>,
    failure: Option<(Step, i32)>,
}

impl Runner {
    fn send_spec(&mut self, options: &Options, same_group: bool) -> io::Result<()> {
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let descriptors = vec![rustix::fs::open(".", directory, Mode::empty())?];
        let joined = options.command.iter().map(|arg| arg.as_bytes()).collect::<Vec<_>>().join(&0);
        let env = sys::environment();
        let attributes = Attributes::now();
        let spec = Spec {
            file: options.command[0].as_bytes(),
            args: &joined,
            env: &env,
            cwd: options.cwd.as_bytes(),
            // Everything else the command inherits from the keeper, which has it from us.
            places: &[],
            descriptors: 1,
            umask: attributes.umask,
            nice: attributes.nice,
            nofile: attributes.nofile,
            uid: None,
            gid: None,
            timeout: options.timeout,
            kill_signal: libc::SIGTERM,
            grace: options.grace,
            background: options.background,
            background_grace: 0,
            same_group,
        };
        let mut bytes = Vec::new();
        ToKeeper::put_spec(&mut bytes, &spec);
        self.outbox.push(bytes, descriptors);
        self.outbox.flush(self.control.as_fd())
    }

    /// Until the keeper's last word, or until the brood of a lost keeper is ended.
    fn wait(&mut self) -> Option<EndFacts> {
        loop {
            let write = if self.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            let mut sources = [
                PollFd::new(&self.control, PollFlags::IN | write),
                PollFd::new(&self.signals, PollFlags::IN),
            ];
            let _ = rustix::event::poll(&mut sources, None);
            let _ = self.outbox.flush(self.control.as_fd());
            while let Some((signal, sender)) = self.signals.take() {
                self.signalled(signal, sender);
            }
            match self.receive() {
                Ok(Some(facts)) => return Some(facts),
                Ok(None) => (),
                Err(()) => {
                    self.swept = self.sweep();
                    return None;
                }
            }
        }
    }

    /// The keeper has said its last word and leaves when our end closes: no zombie of it for whoever comes after us.
    fn dismiss_keeper(&self) {
        let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        let until = Instant::now() + BUDGET;
        while sys::look(self.keeper) == Look::Live && Instant::now() < until {
            let timeout = rustix::event::Timespec::try_from(BUDGET).ok();
            let _ = rustix::event::poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], timeout.as_ref());
            while self.signals.take().is_some() {}
        }
        sys::reap(self.keeper);
    }

    /// What the terminal sends reaches the command by itself; what somebody sends us is for us to pass on.
    fn signalled(&mut self, signal: i32, sender: i32) {
        if signal == libc::SIGCHLD {
            if sys::stopped(self.keeper) {
                sys::kill_child(self.keeper, libc::SIGCONT);
            }
            return;
        }
        let by_terminal = self.in_terminal && sender == 0;
        if by_terminal || self.nohup && signal == libc::SIGHUP {
            return;
        }
        let mut bytes = Vec::new();
        ToKeeper::put_end(&mut bytes, signal, -1);
        self.outbox.push(bytes, Vec::new());
        let _ = self.outbox.flush(self.control.as_fd());
    }

    /// `Err`: the keeper is lost.
    fn receive(&mut self) -> Result<Option<EndFacts>, ()> {
        let mut bytes = [0; 4096];
        let mut lost = false;
        loop {
            match socket::receive(self.control.as_fd(), &mut bytes, &mut Vec::new()) {
                Received::Bytes(count) => self.inbox.feed(&bytes[..count]),
                Received::Nothing => break,
                Received::End | Received::Truncated(_) => {
                    lost = true;
                    break;
                }
            }
        }
        while let Some(frame) = self.inbox.next_frame().map_err(|_| ())? {
            match FromKeeper::decode(&frame).map_err(|_| ())? {
                FromKeeper::Started => sys::let_go_of_stdio(&self.inherited),
                FromKeeper::Taken(_) => (),
                FromKeeper::Failed { step, errno, .. } => self.failure = Some((step, errno)),
                FromKeeper::Exited { exit, .. } => self.exit = Some(exit),
                // Until somebody continues us, and with us our group.
                FromKeeper::Stopped => sys::stop_ourselves(),
                FromKeeper::Ended(facts) => return Ok(Some(facts)),
            }
        }
        if lost { Err(()) } else { Ok(None) }
    }

    /// The keeper is lost; what was below it is below us now. Whether nothing is left.
    fn sweep(&mut self) -> bool {
        let first = self.commitment.take().pid.and_then(Pid::new);
        let own = first.into_iter().chain([self.keeper]).collect();
        let outsiders = std::mem::take(&mut self.strangers);
        let mut brood = Brood { own, outsiders, ..Brood::default() };
        let mut killing = Killing::new(Instant::now() + BUDGET);
        loop {
            let left = killing.deadline.saturating_duration_since(Instant::now());
            match killing.advance(&mut brood, None) {
                Progress::Done => return true,
                Progress::Waiting if !left.is_zero() => (),
                Progress::Waiting | Progress::Denied => return false,
            }
            let timeout = rustix::event::Timespec::try_from(left).ok();
            let _ = rustix::event::poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], timeout.as_ref());
            while self.signals.take().is_some() {}
        }
    }

    fn verdict(&self, facts: Option<EndFacts>, program: &OsString) -> Verdict {
        let program = program.to_string_lossy();
        let Some(facts) = facts else {
            let rest = if self.swept { "everything that the command started was ended" } else { NOT_ALL };
            say(&format!("the keeper was lost; {rest}"));
            return Verdict::Code(OURSELVES);
        };
        if let Some((step, errno)) = self.failure {
            let error = io::Error::from_raw_os_error(errno);
            say(&format!("cannot run '{program}': {}: {error}", step.as_str()));
            return Verdict::Code(match (step, errno) {
                (Step::Program, libc::ENOENT | libc::ENOTDIR) => NOT_FOUND,
                (Step::Program | Step::Interpreter, _) => NOT_EXECUTABLE,
                _ => OURSELVES,
            });
        }
        if matches!(facts.outcome, Outcome::Survivors | Outcome::Unconfirmed) {
            say(NOT_ALL);
        }
        match (facts.reason, self.exit) {
            (Reason::Timeout, _) => Verdict::Code(TIMED_OUT),
            (_, Some(Exit::Code(code))) => Verdict::Code(code as u8),
            (_, Some(Exit::Signal(signal))) => Verdict::Signal(signal),
            (_, None) => Verdict::Code(OURSELVES),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options, String> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn times_have_units() {
        let time = |text| milliseconds("--timeout", text);
        assert_eq!(
            [time("30s"), time("2"), time("500ms"), time("1.5m"), time("1h")].map(Result::unwrap),
            [30_000, 2_000, 500, 90_000, 3_600_000]
        );
        for wrong in ["", "s", "-1", "1d", "1e3", "..", "30 s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let parsed =
            options(&["--timeout=1s", "--grace", "0", "--cwd", "/tmp", "--", "sh", "--timeout", "x"])
                .unwrap();
        assert_eq!((parsed.timeout, parsed.grace), (1_000, 0));
        assert_eq!(parsed.command, ["sh", "--timeout", "x"]);
        assert_eq!(options(&["ls", "--", "-l"]).unwrap().command, ["ls", "--", "-l"]);
        assert_eq!(options(&["--background", "keep", "ls"]).unwrap().background, Background::Keep);
    }

    #[test]
    fn a_wrong_command_line_names_what_is_wrong() {
        assert_eq!(options(&["--tiemout", "1", "ls"]).unwrap_err(), "unknown option '--tiemout'");
        assert_eq!(options(&["--timeout"]).unwrap_err(), "'--timeout' needs a value");
        assert_eq!(options(&["--"]).unwrap_err(), "no command");
        assert!(options(&["--background", "drop", "ls"]).is_err());
    }
}
