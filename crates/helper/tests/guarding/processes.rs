//! The processes of these tests: leaders of groups, guards, and what a guard says.

use std::ffi::OsStr;
use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags};

use crate::common::{Ground, HELPER, PATIENCE, Watched, readable, until};

/// A guard's exit status, by outcome.
pub const ENDED: i32 = 0;
pub const UNCONFIRMED: i32 = 2;
pub const SURVIVORS: i32 = 3;
pub const USAGE: i32 = 64;
pub const REFUSED: i32 = 70;

/// A script with two members of a group.
pub const TWO: &str = "sleep 60 & exec sleep 60";
/// Put in front of a command: descriptor 3 is what was standard error. (A shell moves it there: between fork and exec
/// this program may run nothing of its own.)
pub const LEADER_ON_3: [&str; 3] = ["sh", "-c", "exec \"$0\" \"$@\" 3<&2 2>/dev/null"];
/// Put in front of a command: nobody's user.
pub const AS_NOBODY: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// Says why a test shows nothing here, on the standard error that the test runner does not hold back.
pub fn skip(why: &str) {
    let test = std::thread::current();
    let _ = writeln!(io::stderr(), "skipped: {}: {why}", test.name().unwrap_or("a test"));
}

/// Whether this command is there and does what it is asked.
pub fn works(words: &[&str]) -> bool {
    command(words).stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// For tests that take on another user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

impl Ground {
    /// A command with its mark, in its folder.
    pub fn of(&self, words: &[impl AsRef<OsStr>]) -> Command {
        let mut command = command(words);
        command.current_dir(&self.folder).env("MARK", &self.mark);
        command
    }
}

pub fn command(words: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null());
    command
}

pub fn pidfd_of(pid: i32) -> OwnedFd {
    rustix::process::pidfd_open(Pid::from_raw(pid).unwrap(), PidfdFlags::empty()).unwrap()
}

/// A shell that leads a group of its own.
pub struct Leader {
    child: Child,
    pub process: Watched,
}

impl Leader {
    /// With so many members, itself included.
    pub fn start(ground: &Ground, script: &str, members: usize) -> Leader {
        let leader = Leader::spawn(ground.of(&["sh", "-c", script]).process_group(0));
        until("all members", || ground.marked().len() == members);
        leader
    }

    pub fn spawn(command: &mut Command) -> Leader {
        let child = command.spawn().unwrap();
        Leader { process: Watched::new(child.id() as i32), child }
    }

    pub fn pid(&self) -> i32 {
        self.process.pid
    }

    /// As a host passes it on.
    pub fn pidfd(&self) -> OwnedFd {
        pidfd_of(self.pid())
    }

    /// Once it has ended, or when it does.
    pub fn reap(&mut self) {
        self.process.assert_gone("the leader");
        self.child.wait().unwrap();
    }
}

/// For a test that fails: while the leader is our unreaped child, its group's number is its own.
impl Drop for Leader {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = rustix::process::kill_process_group(
                Pid::from_raw(self.pid()).unwrap(),
                rustix::process::Signal::KILL,
            );
            let _ = self.child.wait();
        }
    }
}

/// What a process says, line by line.
pub struct Lines {
    source: OwnedFd,
    inbox: Vec<u8>,
}

impl Lines {
    pub fn new(source: impl Into<OwnedFd>) -> Lines {
        Lines { source: source.into(), inbox: Vec::new() }
    }

    /// None at the end.
    pub fn next(&mut self) -> Option<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.inbox.iter().position(|&byte| byte == b'\n') {
                let line = self.inbox.drain(..=at).collect::<Vec<u8>>();
                return Some(String::from_utf8(line).unwrap().trim_end().to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(readable(self.source.as_fd(), left), "neither a line nor the end within {PATIENCE:?}");
            let mut bytes = [0; 4096];
            match rustix::io::read(&self.source, &mut bytes).unwrap() {
                0 => {
                    assert_eq!(self.inbox, b"", "half a line");
                    return None;
                }
                count => self.inbox.extend_from_slice(&bytes[..count]),
            }
        }
    }

    /// Whether anything has been said, or the end is there.
    #[cfg(feature = "stops")]
    pub fn is_there(&self) -> bool {
        !self.inbox.is_empty() || readable(self.source.as_fd(), Duration::ZERO)
    }

    pub fn rest(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

/// `__group-guard --group <group> <options>`, behind the words of `before`.
pub fn guard_command(before: &[&str], group: impl Display, options: &[&str]) -> Command {
    let group = group.to_string();
    let mut guard = command(&[before, &[HELPER, "__group-guard", "--group", &group], options].concat());
    let path = std::env::var_os("PATH").unwrap_or_default();
    guard.env_clear().env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    guard
}

/// One that joins the leader's group, with nothing else to hold it by.
pub fn member(before: &[&str], leader: &Leader, options: &[&str]) -> Command {
    let mut guard = guard_command(before, leader.pid(), options);
    guard.process_group(leader.pid());
    guard
}

/// One that joins the leader's group, and is given this as the leader.
pub fn member_with(pidfd: OwnedFd, leader: &Leader, options: &[&str]) -> Command {
    let mut guard = member(&LEADER_ON_3, leader, &[&["--by-pidfd"], options].concat());
    guard.stderr(pidfd);
    guard
}

/// One that stands elsewhere and is given this as the leader.
pub fn outsider(leader: impl Into<OwnedFd>, group: impl Display, options: &[&str]) -> Command {
    let mut guard = guard_command(&LEADER_ON_3, group, &[&["--by-pidfd"], options].concat());
    guard.process_group(0).stderr(leader.into());
    guard
}

/// A guard, a child of ours.
pub struct Guard {
    child: Child,
    pub process: Watched,
    words: Option<ChildStdin>,
    pub said: Lines,
}

impl Guard {
    pub fn start(command: &mut Command) -> Guard {
        let mut child = command.spawn().unwrap();
        Guard {
            process: Watched::new(child.id() as i32),
            words: child.stdin.take(),
            said: Lines::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// One that holds its group, by a pin or by a pidfd.
    pub fn ready(command: &mut Command, by: &str) -> Guard {
        let mut guard = Guard::start(command);
        assert_eq!(guard.said.next().unwrap(), format!("ready {by}"));
        guard
    }

    pub fn say(&mut self, words: &str) {
        self.words.as_mut().unwrap().write_all(words.as_bytes()).unwrap();
    }

    /// The host's end.
    pub fn close(&mut self) {
        self.words = None;
    }

    /// For a host that listens while it speaks.
    #[cfg(feature = "stops")]
    pub fn into_ends(self) -> (ChildStdin, Lines) {
        (self.words.unwrap(), self.said)
    }

    /// Its last words, its end, and its exit status.
    pub fn report(mut self) -> Report {
        let lines = self.said.rest();
        self.process.assert_gone("the guard");
        Report::new(self.child.wait().unwrap().code(), &lines)
    }
}

/// What a guard says at its end.
#[derive(Debug)]
pub struct Report {
    pub code: Option<i32>,
    pub outcome: String,
    pub reason: String,
    pub proof: Duration,
    pub leftovers: Vec<i32>,
    pub survivors: Vec<i32>,
}

impl Report {
    pub fn new(code: Option<i32>, lines: &[String]) -> Report {
        let [named @ .., last] = lines else { panic!("no last word, status {code:?}") };
        let named = named.strip_prefix(&["ending".to_owned()]).unwrap_or(named);
        let list = |word: &str| -> Vec<i32> {
            let numbers = named.iter().filter_map(|line| line.strip_prefix(word));
            numbers.map(|rest| rest.trim_start().split(' ').next().unwrap().parse().unwrap()).collect()
        };
        let mut words = last.split(' ').map(str::to_owned);
        let (outcome, reason) = (words.next().unwrap(), words.next().unwrap());
        let proof = words.next().map_or(0, |micros| micros.parse().unwrap());
        let report = Report {
            code,
            outcome,
            reason,
            proof: Duration::from_micros(proof),
            leftovers: list("leftover"),
            survivors: list("survivor"),
        };
        if let Some(count) = words.next() {
            // All are counted, the first of them named.
            assert!(count.parse::<usize>().unwrap() >= report.leftovers.len());
        }
        assert_eq!(report.leftovers.len() + report.survivors.len(), named.len(), "{lines:?}");
        report
    }

    /// Exit status, outcome and reason.
    pub fn facts(&self) -> (Option<i32>, &str, &str) {
        (self.code, &self.outcome, &self.reason)
    }
}

/// A line for a shell: executes, in place of `$0`, a copy of the helper that every user can reach.
pub fn everybodys_helper(ground: &Ground) -> String {
    // Not by this process: while it writes the file, another thread's child could hold it, and nobody execute it.
    assert!(works(&["cp", HELPER, ground.folder.to_str().unwrap()]));
    format!("exec {} \"$@\"", ground.folder.join("holdfast-helper").display())
}

/// The live guards of this group.
pub fn guards_of(group: i32) -> Vec<i32> {
    let words = format!("\0__group-guard\0--group\0{group}\0");
    let has = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.windows(words.len()).any(|window| window == words.as_bytes())
    };
    crate::common::pids().into_iter().filter(has).collect()
}
