//! Best effort: where no helper can be started and the option `containment: 'best-effort'` is set, the command runs as
//! a plain child of the host, in a group of its own. It ends with its group; what leaves the group, or outlives the
//! host, is not seen, and the report has `mechanism: 'none'`, `unconfirmed`.
//!
//! The deadline is the host's: it is enforced when the environment's loop turns. The child is held by being unreaped; a
//! host in which another thread waits for any child (wait(2)) breaks that, here as everywhere.

use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_wire::{Background, Exit, Lifetime, NO_DESCRIPTOR, Reason, SpecView, Usage};

use crate::ends::ladder::{self, EndRequest, Ladder};
use crate::sys::{self, ChildState, Delivery, Group, Pid};

/// Interval at which SIGKILL is repeated.
const AGAIN: Duration = Duration::from_secs(1);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A command without a keeper.
pub struct Plain {
    pub pid: Pid,
    /// Readable when it has ended; where there is none it is looked at.
    pub end: Option<Arc<OwnedFd>>,
    group: Group,
    lifetime: Lifetime,
    deadline: Option<Instant>,
    ladder: Option<Ladder>,
    /// When the next SIGKILL is due, once the end has begun.
    kill_at: Option<Instant>,
}

impl Plain {
    /// Starts it. Descriptors: as a spec has them.
    pub fn start(spec: &SpecView, descriptors: &[OwnedFd]) -> io::Result<Plain> {
        let text = |string: &std::ffi::CStr| OsStr::from_bytes(string.to_bytes()).to_owned();
        let places = spec.places();
        if places.len() > 3 {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "without a helper there are no places beyond stderr",
            ));
        }
        let stdio = |at: usize| -> io::Result<Stdio> {
            match places.get(at) {
                None | Some(&NO_DESCRIPTOR) => Ok(Stdio::null()),
                Some(&index) => match descriptors.get(usize::from(index)) {
                    Some(fd) => Ok(Stdio::from(fd.try_clone()?)),
                    None => Err(io::ErrorKind::InvalidInput.into()),
                },
            }
        };
        let mut command = Command::new(text(spec.file()));
        let mut args = spec.args();
        if let Some(first) = args.next() {
            command.arg0(text(first));
        }
        command.args(args.map(text)).env_clear();
        for variable in spec.env() {
            let bytes = variable.to_bytes();
            if let Some(at) = bytes.iter().skip(1).position(|&byte| byte == b'=') {
                command.env(OsStr::from_bytes(&bytes[..at + 1]), OsStr::from_bytes(&bytes[at + 2..]));
            }
        }
        if !spec.cwd().is_empty() {
            command.current_dir(text(spec.cwd()));
        }
        if let Some(uid) = spec.uid {
            command.uid(uid);
        }
        if let Some(gid) = spec.gid {
            command.gid(gid);
        }
        command.stdin(stdio(0)?).stdout(stdio(1)?).stderr(stdio(2)?).process_group(0);
        let child = command.spawn().or_else(|error| match error.raw_os_error() {
            // See start_helper().
            Some(sys::EPERM) => sys::by_fork(&mut command).spawn(),
            _ => Err(error),
        })?;
        let pid = Pid::new(child.id() as i32).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Plain {
            pid,
            end: sys::end_of_child(pid).map(Arc::new),
            group: Group::new(pid, pid),
            lifetime: spec.lifetime,
            deadline: ladder::deadline(&spec.lifetime, Instant::now()),
            ladder: None,
            kill_at: None,
        })
    }

    /// When something is due.
    pub fn next_time(&self) -> Option<Instant> {
        let look = self.end.is_none().then(|| Instant::now() + LOOK_AGAIN);
        look.into_iter().chain(self.kill_at.or(self.deadline)).min()
    }

    /// Signals the first process, or the group.
    pub fn signal(&self, signal: i32, group: bool) -> bool {
        if group {
            self.group.signal(signal) == Delivery::Sent
        } else {
            sys::kill_child(self.pid, signal) == sys::Kill::Sent
        }
    }

    /// The ladder; -1 stands for the call's own.
    pub fn end(&mut self, signal: i32, grace: i64) {
        self.climb(EndRequest::by_user(&self.lifetime, signal, grace));
    }

    /// Why it ends.
    pub fn reason(&self) -> Reason {
        self.ladder.map_or(Reason::Exit, |ladder| ladder.reason())
    }

    fn climb(&mut self, request: EndRequest) {
        let now = Instant::now();
        let ladder = match &mut self.ladder {
            Some(ladder) => {
                ladder.hasten(request, now);
                ladder
            }
            none => {
                let ladder = none.insert(Ladder::begin(request, now));
                if let Some(signal) = ladder.first_signal() {
                    self.group.signal(signal);
                    self.group.signal(sys::SIGCONT);
                }
                ladder
            }
        };
        let kill_at = ladder.kill_at();
        self.kill_at = Some(self.kill_at.map_or(kill_at, |earlier| earlier.min(kill_at)));
        self.kill_if_due(now);
    }

    fn kill_if_due(&mut self, now: Instant) {
        if self.kill_at.is_some_and(|time| time <= now) {
            self.group.signal(sys::SIGKILL);
            self.kill_at = Some(now + AGAIN);
        }
    }

    /// Does what is due. The exit, once it is there: then everything in the group has been sent SIGKILL.
    pub fn advance(&mut self) -> Option<(Option<Exit>, Usage)> {
        let now = Instant::now();
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.deadline = None;
            self.climb(EndRequest::for_reason(&self.lifetime, Reason::Timeout));
        }
        self.kill_if_due(now);
        match sys::child_state(self.pid) {
            ChildState::Alive => None,
            // Other code has reaped it, or the kernel (a host that ignores SIGCHLD).
            ChildState::NotOurs => Some((None, Usage::default())),
            ChildState::Exited(exit) => {
                if self.lifetime.background == Background::End || self.kill_at.is_some() {
                    self.group.signal(sys::SIGKILL);
                }
                let usage = sys::reap(self.pid).map(|reaped| reaped.usage).unwrap_or_default();
                Some((Some(exit), usage))
            }
        }
    }
}
