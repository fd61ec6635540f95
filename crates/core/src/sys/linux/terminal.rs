//! What a runner needs to know and to leave as it was: terminal, descriptors, its own group.
#![expect(unsafe_code, reason = "dispositions, and descriptors by number, have no safe wrapper")]

use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::termios::{OptionalActions, Termios};

use super::mode::inherited;
use super::process::Pid;

/// The controlling terminal and the modes it had.
pub struct Terminal {
    fd: OwnedFd,
    modes: Termios,
}

impl Terminal {
    /// None where there is no controlling terminal.
    pub fn open() -> Option<Terminal> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let modes = rustix::termios::tcgetattr(&fd).ok()?;
        Some(Terminal { fd, modes })
    }

    /// Whether our group is the one in the foreground. False if either is outside of our pid namespace, where they
    /// cannot be compared.
    pub fn is_ours(&self) -> bool {
        let foreground = rustix::termios::tcgetpgrp(&self.fd).map(|group| group.as_raw_nonzero().get());
        foreground.is_ok_and(|group| TerminalGroup::own() == TerminalGroup(group))
    }

    /// Puts the modes back (SIGTTOU is blocked, so this also works from the background).
    pub fn restore(&self) {
        let _ = rustix::termios::tcsetattr(&self.fd, OptionalActions::Drain, &self.modes);
    }
}

/// The group that a command shares with the process that was started in the terminal. Nothing is signalled by it, so it
/// may be 1, as in a container, and 0 if its leader is outside of our pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalGroup(i32);

impl TerminalGroup {
    /// Our own group.
    pub fn own() -> TerminalGroup {
        // SAFETY: cannot fail, and no memory is involved.
        TerminalGroup(unsafe { libc::getpgrp() })
    }

    /// Whether a process is in it, zombies included.
    pub fn has(self, pid: Pid) -> bool {
        // SAFETY: no memory is involved, and nothing is signalled.
        self.0 == unsafe { libc::getpgid(pid.raw()) }
    }
}

/// Whether we lead a session: of its terminal's hang-up the kernel tells the leader alone.
pub fn leads_session() -> bool {
    // SAFETY: cannot fail, and no memory is involved.
    let session = unsafe { libc::getsid(0) };
    session == std::process::id() as i32
}

/// Moves to a session of our own, out of the terminal's. With a parent in the terminal's session the command's group
/// would not count as orphaned when its shell is gone: ^Z would stop it for ever (setpgid(2), tty_ioctl(2)).
pub fn leave_session() {
    let _ = rustix::process::setsid();
}

/// Our own process group; None where it is outside of our pid namespace.
pub fn own_group() -> Option<Pid> {
    // SAFETY: cannot fail, and no memory is involved.
    Pid::new(unsafe { libc::getpgrp() })
}

/// Whether we lead a group of our own, and so are in no other.
pub fn leads_own_group() -> bool {
    own_group().is_some() && own_group() == Pid::own()
}

/// Whether a signal is ignored.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: reads the disposition into a valid place; sets nothing.
    unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed, then written by the call.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Every descriptor that is open now. Called before this process has opened any.
pub fn open_descriptors() -> Vec<i32> {
    let listed: Vec<i32> = match fs::read_dir("/proc/self/fd") {
        Ok(entries) => {
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
        }
        Err(_) => (0..256).collect(),
    };
    // The listing's own descriptor is closed by now.
    // SAFETY: F_GETFD changes nothing and fails on a number that is not open.
    listed.into_iter().filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0).collect()
}

/// /dev/null in place of these descriptors, which another process has now.
fn null(numbers: impl Iterator<Item = i32>) {
    let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()) else {
        return;
    };
    let null = std::os::fd::AsRawFd::as_raw_fd(&null);
    for fd in numbers {
        // SAFETY: `fd` is a descriptor that no owner in this process knows of.
        unsafe { libc::dup2(null, fd) };
    }
}

/// Closes what the command has now.
fn close_inherited(inherited: &[i32]) {
    for &fd in inherited.iter().filter(|&&fd| fd > 2) {
        // SAFETY: inherited, and no owner in this process knows of it.
        unsafe { libc::close(fd) };
    }
}

/// In a keeper that was forked by `holdfast run`: lets go of what the command has now.
pub fn stand_apart(inherited: &[i32]) {
    close_inherited(inherited);
    null(0..=2);
}

/// Standard input and output are the command's. Standard error stays for our own last word, unless it is to go as well
/// and is a pipe or socket, of which somebody may be waiting for the end.
pub fn let_go_of_stdio(inherited: &[i32], stderr_too: bool) {
    close_inherited(inherited);
    let waited_for = stderr_too && is_stream(rustix::stdio::stderr());
    null(0..=if waited_for { 2 } else { 1 });
}

/// Whether it is a pipe or a socket.
fn is_stream(fd: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstat(fd).map(|status| FileType::from_raw_mode(status.st_mode));
    matches!(kind, Ok(FileType::Fifo | FileType::Socket))
}

/// The pipe or socket that we were started with under this number, close-on-exec. To be called once for each.
pub fn inherited_stream(number: i32) -> io::Result<OwnedFd> {
    let fd = inherited(number)?;
    if is_stream(fd.as_fd()) { Ok(fd) } else { Err(io::Error::from_raw_os_error(libc::ENOTSOCK)) }
}

/// Nothing more is said on standard error, and nobody waits for its end.
pub fn let_go_of_stderr() {
    null(2..=2);
}

/// Writes all of it to standard output, whatever mode that is in, unless its reader does not read for so long.
pub fn write_out(bytes: &[u8], patience: Duration) {
    // A pipe that takes something takes as much (pipe(7), PIPE_BUF), so that even a blocking one does not block.
    for mut part in bytes.chunks(libc::PIPE_BUF) {
        while !part.is_empty() && await_writable(rustix::stdio::stdout(), patience) {
            match rustix::io::write(rustix::stdio::stdout(), part) {
                Ok(count) => part = &part[count..],
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => (),
                Err(_) => return,
            }
        }
    }
}

/// Whether it takes something, or is broken, within this time.
pub fn await_writable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let timeout = rustix::event::Timespec::try_from(patience).ok();
    let mut source = [PollFd::from_borrowed_fd(fd, PollFlags::OUT)];
    let ready = rustix::io::retry_on_intr(|| rustix::event::poll(&mut source, timeout.as_ref()));
    ready != Ok(0)
}

/// Stops this process, as a shell expects of a job, until it is continued. False for process 1, which cannot be stopped
/// from within its pid namespace.
pub fn stop_ourselves() -> bool {
    // SAFETY: a signal to ourselves, by raise(3), not by number.
    unsafe { libc::raise(libc::SIGSTOP) };
    std::process::id() != 1
}
