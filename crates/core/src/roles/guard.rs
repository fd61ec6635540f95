//! The guard: a process that watches a group that other code has started, and ends it when the host asks for it, when
//! the leader exits, or when the host is gone (mode `__group-guard`).
//!
//! It is a process so that it outlives the host. It holds nothing of the group's but what it takes to signal it
//! ([`GroupRef`]). Standard input has the host's lines, and its end is the host's end; standard output has the answers.
//!
//! Lines from the host: `end <signal> <grace in ms>` and `release`. Lines to it: `ready <pin|pidfd|members>` or
//! `refused <why>`, `ending` before the first signal, and at the end any number of `leftover <pid> <name>` and
//! `survivor <pid> <name>`, then `<outcome> <reason> <proof in microseconds> <leftovers in all>`. The exit status has
//! the outcome as well.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use holdfast_wire::{Lifetime, MAX_NAMED, ProcessInfo, Reason};

use crate::ends::group::{GroupEnd, GroupRef, HeldMembers, Members, Tracked};
use crate::ends::ladder::{BUDGET, DEFAULTS, EndRequest, Ladder};
use crate::ends::settle::{Settled, Settling};
use crate::roles::arguments::{number_after, number_from};
use crate::roles::exit_codes::{ENDED, SOFTWARE, SURVIVORS, UNCONFIRMED, USAGE};
use crate::roles::say::say;
use crate::sys::stops::stop;
use crate::sys::{self, Delivery, Group, Handle, LedGroup, Parent, Pid, PipeId, Placement, Wait};

/// Before the last line: what the leader left was still writing to its pipes when its time was up.
const CUT_OFF: &str = "cut-off\n";

const FORM: &str = "__group-guard --group <pgid> [--by-pidfd] [--again] [--end-on-exit] [--grace <ms>]";

/// Where the host puts the leader's descriptor.
const LEADER: i32 = 3;
/// Polling interval for new members, where each has to be held by itself.
const LOOK_FOR_MEMBERS: Duration = Duration::from_secs(1);

/// The command line.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    group: Pid,
    /// Descriptor 3 is the leader's.
    by_pidfd: bool,
    /// In the place of a guard that died: the number was shown to be the leader's, which may have been reaped since.
    again: bool,
    /// What is left when the leader exits is ended.
    end_on_exit: bool,
    /// From SIGTERM to SIGKILL at the host's death; zero: SIGKILL at once.
    grace: Duration,
}

fn parse(args: &[OsString]) -> Result<Options, String> {
    let (mut group, mut by_pidfd, mut again, mut end_on_exit) = (None, false, false, false);
    let mut grace = Duration::ZERO;
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let mut number = |least| number_after(arg, &mut rest, least);
        match arg.to_str() {
            Some("--group") => group = Pid::new(number(2)?),
            Some("--by-pidfd") => by_pidfd = true,
            Some("--again") => again = true,
            Some("--end-on-exit") => end_on_exit = true,
            Some("--grace") => grace = Duration::from_millis(number(0)?.unsigned_abs().into()),
            _ => return Err(format!("unknown option '{}'", arg.to_string_lossy())),
        }
    }
    let group = group.ok_or("'--group' is missing")?;
    Ok(Options { group, by_pidfd, again, end_on_exit, grace })
}

/// What a host starts a guard with.
#[derive(Debug, Clone, Copy)]
pub struct GuardOptions<'a> {
    /// The helper executable.
    pub helper: &'a Path,
    /// What is left when the leader exits is ended.
    pub end_on_exit: bool,
    /// Milliseconds from SIGTERM to SIGKILL at the host's death.
    pub grace: u64,
}

/// Called by the host: starts a guard for the group of this leader. Returns the guard, a child of ours, and the host's
/// end of the connection. `again`: in the place of one that died.
pub fn start_guard(
    options: &GuardOptions<'_>,
    group: Pid,
    leader: &Handle,
    placement: Placement,
    again: bool,
) -> io::Result<(Pid, OwnedFd)> {
    let (ours, theirs) = sys::socket_pair()?;
    let (group, grace) = (group.raw().to_string(), options.grace.to_string());
    let mut args = vec!["__group-guard", "--group", &group, "--by-pidfd", "--grace", &grace];
    if options.end_on_exit {
        args.push("--end-on-exit");
    }
    if again {
        args.push("--again");
    }
    let places = [(0, theirs.as_fd()), (1, theirs.as_fd()), (LEADER, leader.as_fd())];
    Ok((sys::start_helper(options.helper, &args, &places, placement)?, ours))
}

/// The mode. `args` is what follows `__group-guard`.
pub fn guard(args: &[OsString]) -> ExitCode {
    let options = match parse(args) {
        Ok(options) => options,
        Err(problem) => {
            say(&format!("{problem}; usage: {FORM}"));
            return ExitCode::from(USAGE);
        }
    };
    sys::become_mode(Some(if options.by_pidfd { LEADER.unsigned_abs() + 1 } else { LEADER.unsigned_abs() }));
    sys::ignore_signals();
    let _ = std::env::set_current_dir("/");
    // Processes that left the group are held one by one.
    sys::allow_all_descriptors();
    // Before we open anything, which could get its number.
    let leader = options.by_pidfd.then(|| sys::inherited(LEADER)).transpose();
    let parent = Parent::watch();
    let held = match leader {
        Ok(leader) => take_hold(options.group, leader.map(Handle::from_descriptor), options.again),
        Err(_) => Err("unheld"),
    };
    sys::let_go_of_stderr();
    let (hold, leader) = match held {
        Ok(held) => held,
        Err(why) => {
            write_line(&format!("refused {why}\n"));
            return ExitCode::from(SOFTWARE);
        }
    };
    stop("guard-holds");
    write_line(&format!("ready {}\n", hold.as_str()));
    stop("guard-ready");
    // If the leader is gone by now there are none.
    let output = |number| PipeId::of_process(options.group, number);
    let outputs =
        if options.end_on_exit { [1, 2].into_iter().filter_map(output).collect() } else { Vec::new() };
    let mut guard = Guard {
        group: Tracked::new(hold),
        leader,
        parent,
        end_on_exit: options.end_on_exit,
        settling: None,
        outputs,
        cut_off: false,
        lifetime: Lifetime { grace: options.grace.as_millis() as u64, ..DEFAULTS },
        inbox: Vec::new(),
        host_gone: false,
    };
    let Some(request) = guard.watch() else {
        write_line("released release 0 0\n");
        return ExitCode::from(ENDED);
    };
    ExitCode::from(guard.end(request))
}

fn write_line(line: &str) {
    sys::write_out(line.as_bytes(), BUDGET);
}

/// Holds the group in the best way that the kernel has, and shows that we are outside of it. `leader`: the leader's
/// descriptor, if there is one.
fn take_hold(
    group: Pid,
    leader: Option<Handle>,
    again: bool,
) -> Result<(GroupRef, Option<Handle>), &'static str> {
    if sys::own_group() == Some(group) {
        return pin(group, leader);
    }
    let leader = leader.ok_or("member")?;
    if !sys::leave_group() {
        return Err("member");
    }
    if !Handle::works() {
        return Err("unheld");
    }
    let watched = leader.try_clone().map_err(|_| "unheld")?;
    // The number that we know the group by is the leader's, or was it before it was reaped.
    match leader.number() {
        Some(number) if number != group => return Err("member"),
        // It cannot be shown that the number was its own.
        None if !again && !leader.is_unreaped() => {
            let is_reaped = leader.signal(0).is_err_and(|error| error.raw_os_error() == Some(sys::ESRCH));
            return Err(if is_reaped { "dead" } else { "unheld" });
        }
        _ => (),
    }
    if LedGroup::is_supported() {
        let led = LedGroup::new(group, leader);
        return match led.signal(0) {
            Delivery::Sent | Delivery::Denied => Ok((GroupRef::Leader(led), Some(watched))),
            Delivery::Empty => Err("dead"),
            Delivery::Refused => Err("unheld"),
        };
    }
    let leads = sys::group_of(group) == Some(group);
    if !leader.is_unreaped() {
        return Err("dead");
    }
    if !leads {
        return Err("member");
    }
    let mut hold = GroupRef::Members(HeldMembers::new(group, leader));
    if hold.live() == Members::Unknown {
        return Err("table");
    }
    Ok((hold, Some(watched)))
}

/// We were started as a member: join, check, pin, leave, check.
fn pin(group: Pid, leader: Option<Handle>) -> Result<(GroupRef, Option<Handle>), &'static str> {
    stop("guard-joined");
    // The leader of a group cannot leave it.
    if Pid::own() == Some(group) {
        return Err("member");
    }
    let pin = sys::make_pin().map_err(|_| "unheld")?;
    stop("guard-pinned");
    if !sys::leave_group() || sys::group_of(pin) != Some(group) {
        return Err("member");
    }
    stop("guard-left");
    // Unreaped even now: so the number was the leader's when we joined, and it is the right group that is pinned.
    if leader.as_ref().is_some_and(|leader| !leader.is_unreaped()) {
        return Err("dead");
    }
    // The pin keeps the number from being given to another process.
    let leader = match leader.map_or_else(|| Handle::open(group), Ok) {
        Ok(leader) => Some(leader),
        Err(error) if error.raw_os_error() == Some(sys::ESRCH) => None,
        // The leader exists, and its exit would not be seen.
        Err(_) => return Err("unheld"),
    };
    Ok((GroupRef::Pin(Group::new(group, pin)), leader))
}

enum GuardCommand {
    End { signal: i32, grace: Duration },
    Release,
}

struct Guard {
    group: Tracked,
    leader: Option<Handle>,
    parent: Option<Parent>,
    end_on_exit: bool,
    settling: Option<Settling>,
    /// The leader's pipes for output, until the settle time.
    outputs: Vec<PipeId>,
    /// What the leader left was still writing to them when its time was up.
    cut_off: bool,
    lifetime: Lifetime,
    inbox: Vec<u8>,
    host_gone: bool,
}

impl Guard {
    /// Until there is a reason to end the group. None: it was let go.
    fn watch(&mut self) -> Option<EndRequest> {
        loop {
            // A line from before the host's end counts.
            match self.next_command() {
                Some(GuardCommand::Release) => return None,
                Some(GuardCommand::End { signal, grace }) => {
                    return Some(EndRequest { reason: Reason::End, signal, grace });
                }
                None if self.host_gone => {
                    return Some(EndRequest::for_reason(&self.lifetime, Reason::HostGone));
                }
                None => (),
            }
            if self.leader.as_ref().is_some_and(Handle::has_ended) {
                self.leader = None;
            }
            let mut look = None;
            if self.leader.is_none() {
                if self.has_ended() {
                    let (signal, grace) = (sys::SIGKILL, Duration::ZERO);
                    return Some(EndRequest { reason: Reason::Exit, signal, grace });
                }
                if self.end_on_exit {
                    match self.settle() {
                        Some(next) => look = Some(next),
                        None => return Some(EndRequest::at_exit(&self.lifetime)),
                    }
                }
            }
            let members = self.leader.is_none().then(|| self.group.handles()).into_iter().flatten();
            self.await_event(self.leader.iter().chain(members), look);
            if let GroupRef::Members(_) = self.group.hold() {
                self.group.look();
            }
        }
    }

    /// The leader has exited by itself: what it left may finish what it is at. When to look again, if it is at work.
    fn settle(&mut self) -> Option<Instant> {
        let begin = || {
            let now = Instant::now();
            Settling::begin(
                now,
                now + Duration::from_millis(self.lifetime.background_settle),
                std::mem::take(&mut self.outputs),
            )
        };
        let mut settling = self.settling.take().unwrap_or_else(begin);
        let settled = settling.look(|| {
            self.group.look();
            self.group.pids().collect()
        });
        let next = settling.next_time();
        self.settling = Some(settling);
        self.cut_off = settled == Settled::TimeUp { writing: true };
        (settled == Settled::NotYet).then_some(next)
    }

    /// Whether nothing of the group lives: seen twice, as at every end.
    fn has_ended(&mut self) -> bool {
        !self.group.is_any_alive() && self.is_empty() && self.is_empty()
    }

    /// Looks whether anything of the group lives. An unreadable table does not show that nothing does.
    fn is_empty(&mut self) -> bool {
        let is_empty = match self.group.look() {
            Members::Live(list) => list.is_empty(),
            Members::Empty => true,
            Members::Unknown => false,
        };
        is_empty && !self.group.is_any_alive()
    }

    /// The ladder, and the report of it. The exit status.
    fn end(&mut self, request: EndRequest) -> u8 {
        // Before anything is signalled: what is found from here on is lost with us.
        write_line("ending\n");
        self.group.begin();
        let now = Instant::now();
        let mut ladder = Ladder::begin(request, now);
        let first_signal = ladder.first_signal();
        if let Some(signal) = first_signal {
            self.ask_to_end(signal, &mut ladder);
        }
        stop("guard-ends");
        let since = Instant::now();
        let outcome = self.group.end(since + BUDGET, first_signal.map(|_| now));
        let proof = since.elapsed().as_micros();
        let (word, survivors, status) = match outcome {
            GroupEnd::Ended => ("ended", Vec::new(), ENDED),
            GroupEnd::Unconfirmed => ("unconfirmed", Vec::new(), UNCONFIRMED),
            GroupEnd::Survivors(list) => ("survivors", list, SURVIVORS),
            GroupEnd::Refused => ("refused", Vec::new(), SOFTWARE),
        };
        let mut report = String::new();
        for process in self.group.leftovers().take(MAX_NAMED) {
            report += &line_of("leftover", process);
        }
        for pid in survivors {
            report += &line_of("survivor", &sys::process_info(pid));
        }
        if self.cut_off {
            report += CUT_OFF;
        }
        let count = self.group.leftovers().count();
        report += &format!("{word} {} {proof} {count}\n", ladder.reason().as_str());
        write_line(&report);
        status
    }

    /// The first signal, and the time to end by it.
    fn ask_to_end(&mut self, signal: i32, ladder: &mut Ladder) {
        self.group.ask_to_end(signal);
        let mut is_alone = false;
        loop {
            while let Some(word) = self.next_command() {
                if let GuardCommand::End { signal, grace } = word {
                    ladder.hasten(EndRequest { reason: Reason::End, signal, grace }, Instant::now());
                }
            }
            if self.host_gone && !std::mem::replace(&mut is_alone, true) {
                ladder.hasten(EndRequest::for_reason(&self.lifetime, Reason::HostGone), Instant::now());
            }
            // Members may have started others by then.
            let is_over = !self.group.is_any_alive() && self.is_empty();
            if is_over || ladder.is_over(Instant::now()) {
                return;
            }
            self.await_event(self.group.handles(), Some(ladder.kill_at()));
        }
    }

    /// Waits for a line, the end of a process, or the time. No process must be among those awaited that is known to
    /// have ended: it would be ready at once.
    fn await_event<'a>(&self, awaited: impl Iterator<Item = &'a Handle>, until: Option<Instant>) {
        let stdin = sys::stdin();
        let mut wait = Wait::new();
        if !self.host_gone {
            wait.readable(&stdin);
            if let Some(parent) = &self.parent {
                wait.parent(parent);
            }
        }
        for process in awaited {
            wait.exit(process);
        }
        let members = matches!(self.group.hold(), GroupRef::Members(_));
        let look = members.then(|| Instant::now() + LOOK_FOR_MEMBERS);
        wait.until(look.into_iter().chain(until).min());
    }

    /// The host's next command. After the last one, sets whether the host is gone.
    fn next_command(&mut self) -> Option<GuardCommand> {
        let gone = self.host_gone || self.parent.as_ref().is_some_and(Parent::is_gone);
        self.host_gone = self.read() || gone;
        while let Some(at) = self.inbox.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.inbox.drain(..=at).collect();
            if let Some(word) = parse_command(&String::from_utf8_lossy(&line)) {
                return Some(word);
            }
        }
        None
    }

    /// Reads what is there, a few lines at most, since more may come without end. Returns whether it has ended.
    fn read(&mut self) -> bool {
        const LONGEST: usize = 4096;
        let mut bytes = [0; 512];
        while self.inbox.len() < LONGEST {
            match sys::read_now(sys::stdin(), &mut bytes) {
                Ok(0) => return true,
                Ok(count) => self.inbox.extend_from_slice(&bytes[..count]),
                Err(error) => return error.kind() != io::ErrorKind::WouldBlock,
            }
            // Longer than any command: the line is dropped, the part still to come included.
            if self.inbox.len() >= LONGEST && !self.inbox.contains(&b'\n') {
                self.inbox = vec![b'?'];
            }
        }
        false
    }
}

/// Parses a line from the host; unknown lines are ignored.
fn parse_command(line: &str) -> Option<GuardCommand> {
    let mut parts = line.split_ascii_whitespace();
    match (parts.next()?, parts.next(), parts.next(), parts.next()) {
        ("release", None, None, None) => Some(GuardCommand::Release),
        ("end", Some(signal), Some(grace), None) => Some(GuardCommand::End {
            signal: number_from(1, signal).filter(|&signal| signal <= 64)?,
            grace: Duration::from_millis(number_from(0, grace)?.unsigned_abs().into()),
        }),
        _ => None,
    }
}

/// A process as the report names it.
fn line_of(what: &str, process: &ProcessInfo) -> String {
    format!("{what} {} {}\n", process.pid, String::from_utf8_lossy(&process.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options, String> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn a_group_is_a_number_that_no_broadcast_has() {
        for wrong in ["0", "1", "-1", "-5", "x", "", "+7", "7 ", "2147483648", "99999999999999999999", "0x10"]
        {
            assert!(options(&["--group", wrong]).is_err(), "{wrong}");
        }
        assert!(options(&[]).is_err());
        assert!(options(&["--group"]).is_err());
        assert!(options(&["--group", "7", "extra"]).is_err());
        let parsed = options(&["--group", "7", "--end-on-exit", "--grace", "20"]).unwrap();
        let grace = Duration::from_millis(20);
        let group = Pid::new(7).unwrap();
        assert_eq!(parsed, Options { group, by_pidfd: false, again: false, end_on_exit: true, grace });
    }

    #[test]
    fn a_line_that_is_no_word_is_nothing() {
        assert!(matches!(parse_command("release\n"), Some(GuardCommand::Release)));
        assert!(matches!(parse_command("end 15 2000\n"), Some(GuardCommand::End { signal: 15, .. })));
        let ends = ["end\n", "end 15\n", "end 0 5\n", "end 65 5\n", "end -9 5\n", "end 9 0 0\n"];
        for wrong in ["", "\n", "release now\n"].into_iter().chain(ends) {
            assert!(parse_command(wrong).is_none(), "{wrong:?}");
        }
    }
}
