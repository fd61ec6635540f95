//! What every mode of the helper does first, and forking.
#![expect(unsafe_code, reason = "signal dispositions, signalfd and fork have no safe wrapper")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::process::{Group, Pid, await_end, give_group, group_of, reap};
use super::raw;
use super::table;
use super::terminal::{leads_own_group, leave_session};

/// What helper, keepers and guards ignore: they leave by end of file and by nothing else that can be ignored.
pub(super) const IGNORED: [i32; 8] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGQUIT,
    libc::SIGTSTP,
    libc::SIGTTIN,
    libc::SIGTTOU,
    libc::SIGPIPE,
];

/// Ignores these. Not in a runner: to ignore a signal discards what is pending, and one that was sent SIGTERM before
/// this point would not end.
pub fn ignore_signals() {
    for signal in IGNORED {
        let _ = raw::set_disposition(signal, libc::SIG_IGN);
    }
}

/// Blocks every signal for this thread; returns what was blocked before. Helper and keepers run like this (SIGCHLD arrives
/// through a descriptor), and the host's reactor, so that no handler of the host runs on its stack.
pub fn block_all_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
    // SAFETY: writes the whole set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: reads the set just written, writes the other one.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: zeroed, which is the empty set, and then written by the call.
    unsafe { before.assume_init() }
}

/// Whether a blocked signal was sent to this process and waits.
pub fn is_pending(signal: i32) -> bool {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: writes a whole set.
    unsafe { libc::sigpending(set.as_mut_ptr()) };
    // SAFETY: zeroed, which is the empty set, and then written by the call.
    unsafe { libc::sigismember(set.as_ptr(), signal) == 1 }
}

/// Blocks these for this thread, and no others.
pub(super) fn set_signal_mask(mask: &libc::sigset_t) {
    // SAFETY: a valid set; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Takes on the state that every mode needs, whatever was inherited: mask, dispositions (an ignored SIGCHLD would
/// have the kernel reap our pins), close-on-exec of nothing, subreaper, not dumpable. Closes every
/// descriptor from `first_closed` on. Returns whether we are a subreaper.
pub fn become_mode(first_closed: Option<u32>) -> bool {
    block_all_signals();
    for signal in 1..=64 {
        // SIGKILL and SIGSTOP are always at their default, and say so.
        let _ = raw::set_disposition(signal, libc::SIG_DFL);
    }
    if let Some(first) = first_closed {
        close_from(first);
    }
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok()
}

/// Leaves of our command line, as others see it, nothing but the name: a pattern that finds the runner by a word of its
/// command's (pkill -f) does not find its keeper. Where there is no usable /proc it stays.
pub fn hide_arguments() {
    let Some((start, end)) = table::own_arguments() else { return };
    let start = start as *mut u8;
    // SAFETY: the kernel says that the arguments are there: strings, each with its NUL, in memory of ours that is mapped
    // for ever. What the standard library made of them are copies.
    let name = unsafe { std::ffi::CStr::from_ptr(start.cast()) };
    let kept = name.to_bytes_with_nul().len();
    let rest = (end - start as usize).saturating_sub(kept);
    // SAFETY: behind the first string and before the end, as just computed; nobody else reads it.
    unsafe { start.wrapping_add(kept).write_bytes(0, rest) };
}

/// As many open files as we may have. For a process that executes nothing.
pub fn allow_all_descriptors() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let all = rustix::process::Rlimit { current: limit.maximum, maximum: limit.maximum };
    let _ = rustix::process::setrlimit(rustix::process::Resource::Nofile, all);
}

/// Whether a keeper that waits for a call may be put behind whoever wakes it (SCHED_BATCH, sched(7)).
///
/// A message by a socket wakes its reader on the sender's processor, and there the reader usually goes first: the host
/// would stand still while its keeper starts the command. A batch process waits until the host has come to its own
/// next wait. For the call itself, and for the command, the policy is the usual one again.
pub struct Manners {
    /// Only over the default policy: any other was somebody's choice.
    usual: bool,
}

impl Manners {
    /// Of this process, as it was started.
    pub fn new() -> Manners {
        // SAFETY: asks for this process's own policy.
        Manners { usual: unsafe { libc::sched_getscheduler(0) } == libc::SCHED_OTHER }
    }

    /// Before waiting for a call.
    pub fn stand_back(&self) {
        self.take_on(libc::SCHED_BATCH);
    }

    /// A call has come.
    pub fn step_forward(&self) {
        self.take_on(libc::SCHED_OTHER);
    }

    fn take_on(&self, policy: i32) {
        if self.usual {
            let parameters = libc::sched_param { sched_priority: 0 };
            // SAFETY: a valid struct to read. What a filter refuses costs time only.
            unsafe { libc::sched_setscheduler(0, policy, &parameters) };
        }
    }
}

impl Default for Manners {
    fn default() -> Self {
        Manners::new()
    }
}

/// After the fork: subreaper is not inherited over fork (prctl(2)), dispositions, mask and dumpable are. The
/// keeper leaves the helper's group, which the host's other tools may signal, and its session, in which another keeper's
/// command could join the group of this one's; unless its command is to be born there.
pub fn become_keeper(stays_in_group: bool) -> bool {
    if !stays_in_group {
        leave_session();
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok()
}

fn close_from(first: u32) {
    // SAFETY: called before this process has made any descriptor of its own from `first` on.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if closed == 0 {
        return;
    }
    // Kernels before 5.9, or a filter that refuses close_range.
    let highest =
        rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(65_536).min(65_536);
    for fd in first..highest as u32 {
        // SAFETY: as above.
        unsafe { libc::close(fd as i32) };
    }
}

/// What sent a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The kernel: the terminal, a timer, a child's end.
    Kernel,
    /// This process: SIGPIPE of a write of its own.
    Ourselves,
    /// Another process, which need not have a pid in our pid namespace.
    Process,
}

/// A signal that was sent to this process.
#[derive(Debug, Clone, Copy)]
pub struct SignalInfo {
    /// Which one.
    pub signal: i32,
    /// By what.
    pub origin: Origin,
}

/// Signals as a descriptor (signalfd(2)). They must be blocked.
pub struct SignalSource(OwnedFd);

impl SignalSource {
    /// Opens it for these signals.
    pub fn new(signals: &[i32]) -> io::Result<SignalSource> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: writes the whole set.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        for &signal in signals {
            // SAFETY: the set was initialised above.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: the set is valid; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(SignalSource(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Opens it for every signal that can be caught.
    pub fn of_all() -> io::Result<SignalSource> {
        // The kernel leaves out SIGKILL and SIGSTOP, the C library the two that are its own.
        SignalSource::new(&(1..=64).collect::<Vec<_>>())
    }

    /// Takes one pending signal.
    pub fn take(&self) -> Option<SignalInfo> {
        // signalfd_siginfo: ssi_signo at 0, ssi_code at 8, ssi_pid at 12.
        let mut info = [0u8; 128];
        let read = rustix::io::read(&self.0, &mut info).ok()?;
        let word = |at: usize| i32::from_ne_bytes([info[at], info[at + 1], info[at + 2], info[at + 3]]);
        // The pid says nothing of the kernel: it is 0 as well for a process outside of our pid namespace (sigaction(2)).
        let origin = match (word(8), word(12)) {
            (1.., _) => Origin::Kernel,
            (_, pid) if pid == std::process::id() as i32 => Origin::Ourselves,
            _ => Origin::Process,
        };
        (read == info.len()).then(|| SignalInfo { signal: word(0), origin })
    }
}

impl AsFd for SignalSource {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The descriptor that we were started with under this number, close-on-exec from now on. To be called once for each.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // SAFETY: F_SETFD fails on a number that is not open and changes nothing else.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: open, as just shown, and by the contract of this function nobody else in this process owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The control socket that the host put on descriptor 3, if it is one. To be called once.
pub fn inherited_control() -> Option<OwnedFd> {
    let control = inherited(3).ok()?;
    rustix::net::sockopt::socket_type(&control)
        .is_ok_and(|kind| kind == rustix::net::SocketType::STREAM)
        .then_some(control)
}

/// The two sides of a fork.
pub enum Forked {
    /// We are the new process.
    Child,
    /// We are the old one.
    Parent(Pid),
}

/// fork(2). A failure never becomes a number.
pub fn fork() -> io::Result<Forked> {
    // SAFETY: the helper has one thread, so the child may go on running any code.
    let pid = unsafe { libc::fork() };
    match pid {
        0 => Ok(Forked::Child),
        _ => Pid::new(pid).map(Forked::Parent).ok_or_else(io::Error::last_os_error),
    }
}

/// A pin: a child that exits at once and is not reaped, a member of our group as it is now.
pub fn make_pin() -> io::Result<Pid> {
    let pin = match Pid::new(raw::pin() as i32) {
        Some(pin) => pin,
        // A filter may refuse what shares our memory. What else went wrong goes wrong here as well.
        None => match fork()? {
            // SAFETY: ends the new process, which has done nothing.
            Forked::Child => unsafe { libc::_exit(0) },
            Forked::Parent(pin) => pin,
        },
    };
    if await_end(pin) {
        return Ok(pin);
    }
    let error = io::Error::last_os_error();
    reap(pin);
    Err(error)
}

/// A new group in our session, led and held by a pin.
pub fn make_group() -> io::Result<Group> {
    let pin = make_pin()?;
    let group = Group::new(pin, pin);
    give_group(pin);
    if group_of(pin) == Some(pin) {
        return Ok(group);
    }
    reap(pin);
    Err(io::ErrorKind::Unsupported.into())
}

/// Moves to a group of our own. Whether we are in it.
pub fn leave_group() -> bool {
    let _ = rustix::process::setpgid(None, None);
    leads_own_group()
}

/// Ends this process by a signal's default action, without a core file. Returns where that does nothing (as
/// process 1, or for a signal that does not end a process).
pub fn raise_default(signal: i32) {
    let _ = rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
    );
    let _ = raw::set_disposition(signal, libc::SIG_DFL);
    // SAFETY: a signal to ourselves, by raise(3), not by number.
    unsafe { libc::raise(signal) };
    // This one alone: of others that are waiting one could come first.
    let mut set = MaybeUninit::uninit();
    // SAFETY: writes the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: the set was written.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: the set was written, the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::Delivery;

    #[test]
    fn a_group_that_is_made_is_its_own_until_the_pin_is_reaped() {
        let group = make_group().unwrap();
        assert!(group.has(group.id()));
        assert!(!group.has(Pid::own().unwrap()));
        assert_eq!(group.signal(0), Delivery::Sent);
        assert!(reap(group.id()).is_some());
        assert!(!group.has(group.id()));
        assert_eq!(group.signal(0), Delivery::Refused);
    }
}
