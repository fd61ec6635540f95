//! Processes: looking, signalling, reaping. The two rules (docs/design) are kept here and nowhere else.
//!
//! Rule 1, pinned: [`kill_child`] signals a number only after waitid(2) has said, at that moment, that it is our
//! unreaped child. Helper and keepers have one thread and SIGCHLD at its default, so nobody can reap it between
//! that answer and the signal. [`Group::signal`] does the same for the group's pin. Everything else goes through
//! a pidfd.
//!
//! Rule 2, outside: [`Group::signal`] compares the group with our own before it signals.
#![expect(unsafe_code, reason = "waitid with WNOWAIT, __WALL and rusage, and kill, have no safe wrapper")]

use std::collections::HashMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use holdfast_wire::{Exit, Usage};
use rustix::process::PidfdFlags;

use super::handle::Handle;
use super::table;
use super::terminal::own_group;
use super::user::LimitedUser;

/// A process id that can name a process other than init: never 1, 0 or negative, so that no signal sent to it
/// can turn into a broadcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pid(i32);

impl Pid {
    /// The id, unless it is 1 or less.
    pub fn new(raw: i32) -> Option<Pid> {
        (raw > 1).then_some(Pid(raw))
    }

    /// Our own. As process 1 of a namespace we have none that anyone may signal.
    pub fn own() -> Option<Pid> {
        Pid::new(std::process::id() as i32)
    }

    /// As the system writes it.
    pub fn raw(self) -> i32 {
        self.0
    }

    pub(super) fn rustix(self) -> Option<rustix::process::Pid> {
        rustix::process::Pid::from_raw(self.0)
    }
}

/// What waitid(2) says of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// Our child, alive.
    Live,
    /// Our child, a zombie all of whose threads have ended.
    Dead(Exit),
    /// Not our child, or reaped.
    NotOurs,
}

/// What became of a signal to one process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kill {
    /// Sent.
    Sent,
    /// It is a zombie; nothing was sent.
    Dead,
    /// It is not our child; nothing was sent.
    NotOurs,
    /// The system refused (a setuid program).
    Denied,
}

/// A reaped child.
#[derive(Debug, Clone, Copy)]
pub struct Reaped {
    /// The number it had.
    pub pid: Pid,
    /// How it ended.
    pub exit: Exit,
    /// What it used, with the children that it waited for.
    pub usage: Usage,
}

/// waitid(2) with rusage. `Ok(None)`: children, but none in the state asked for.
fn waitid(kind: libc::idtype_t, id: u32, options: i32) -> io::Result<Option<(Reaped, i32)>> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let found = waitid_into(kind, id, options, usage.as_mut_ptr())?;
    // SAFETY: zeroed, which is a valid rusage, and then written by the kernel.
    let usage = convert(&unsafe { usage.assume_init() });
    Ok(found.map(|(reaped, code)| (Reaped { usage, ..reaped }, code)))
}

/// The same; a null `usage` is not asked for, which is the greater part of what a look costs.
fn waitid_into(
    kind: libc::idtype_t,
    id: u32,
    options: i32,
    usage: *mut libc::rusage,
) -> io::Result<Option<(Reaped, i32)>> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: `info`, and `usage` unless null, are valid for writes of their type for the length of the call.
        let result = unsafe { libc::syscall(libc::SYS_waitid, kind, id, info.as_mut_ptr(), options, usage) };
        if result == 0 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    // SAFETY: zeroed, which is a valid siginfo_t, and then written by the kernel.
    let info = unsafe { info.assume_init() };
    // SAFETY: waitid filled in the fields of a child's siginfo, or left the zeroes.
    let pid = unsafe { info.si_pid() };
    // SAFETY: as above.
    let status = unsafe { info.si_status() };
    let Some(pid) = Pid::new(pid) else { return Ok(None) };
    let exit = if info.si_code == libc::CLD_EXITED { Exit::Code(status) } else { Exit::Signal(status) };
    Ok(Some((Reaped { pid, exit, usage: Usage::default() }, info.si_code)))
}

fn convert(usage: &libc::rusage) -> Usage {
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Usage {
        user: micros(usage.ru_utime),
        system: micros(usage.ru_stime),
        max_rss: usage.ru_maxrss as u64 * 1024,
    }
}

const LOOK: i32 = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
const REAP: i32 = libc::WEXITED | libc::WNOHANG | libc::__WALL;

/// Whether the number is our unreaped child, and whether that lives. Takes nothing away.
pub fn look(pid: Pid) -> Look {
    looked(waitid_into(libc::P_PID, pid.0 as u32, LOOK, std::ptr::null_mut()))
}

fn looked(answer: io::Result<Option<(Reaped, i32)>>) -> Look {
    match answer {
        Ok(None) => Look::Live,
        Ok(Some((dead, _))) => Look::Dead(dead.exit),
        Err(_) => Look::NotOurs,
    }
}

/// A zombie child of ours as reaping it would show it, and leaves it.
pub fn inspect(pid: Pid) -> Option<Reaped> {
    waitid(libc::P_PID, pid.0 as u32, LOOK).ok().flatten().map(|(dead, _)| dead)
}

/// The same of the process behind a descriptor, where `pid` is its number if it is our child at all.
pub fn look_behind(handle: &Handle, pid: Pid) -> Look {
    match handle.pidfd() {
        Some(fd) => looked(waitid_into(libc::P_PIDFD, fd.as_raw_fd() as u32, LOOK, std::ptr::null_mut())),
        // By number: and the descriptor is of the one that has it, if that has not ended.
        None if handle.number() == Some(pid) => look(pid),
        None => Look::NotOurs,
    }
}

/// The session of a process; None where that is outside of our pid namespace.
pub fn session_of(pid: Pid) -> Option<Pid> {
    // SAFETY: no memory is involved, and nothing is signalled.
    Pid::new(unsafe { libc::getsid(pid.0) })
}

/// Whether a process is in our session, as far as numbers tell: of those outside of our pid namespace all are 0.
pub fn is_in_our_session(pid: Pid) -> bool {
    // SAFETY: no memory is involved, and nothing is signalled.
    let own = unsafe { libc::getsid(0) };
    // SAFETY: as above.
    own >= 0 && own == unsafe { libc::getsid(pid.0) }
}

/// Signals our live child (rule 1).
pub fn kill_child(pid: Pid, signal: i32) -> Kill {
    match look(pid) {
        Look::Live => {
            // SAFETY: no memory is involved. Rule 1: `look` has just shown that `pid` is our unreaped child.
            let result = unsafe { libc::kill(pid.0, signal) };
            if result == 0 { Kill::Sent } else { Kill::Denied }
        }
        Look::Dead(_) => Kill::Dead,
        Look::NotOurs => Kill::NotOurs,
    }
}

/// Waits for the end of this child, and leaves it unreaped.
pub fn await_end(pid: Pid) -> bool {
    let options = libc::WEXITED | libc::WNOWAIT | libc::__WALL;
    waitid_into(libc::P_PID, pid.0 as u32, options, std::ptr::null_mut()).is_ok()
}

/// Reaps this child if it is a zombie.
pub fn reap(pid: Pid) -> Option<Reaped> {
    waitid(libc::P_PID, pid.0 as u32, REAP).ok().flatten().map(|(reaped, _)| reaped)
}

/// Reaps any zombie child. `Ok(None)`: children are left, all alive. `Err`: with ECHILD, no child at all.
pub fn reap_any() -> io::Result<Option<Reaped>> {
    Ok(waitid(libc::P_ALL, 0, REAP)?.map(|(reaped, _)| reaped))
}

/// Reaps the child behind a descriptor, if it has ended; `pid` is its number if it is our unreaped child at all. True when
/// there is nothing (more) to reap.
pub fn reap_behind(handle: &Handle, pid: Pid) -> bool {
    match handle.pidfd() {
        Some(fd) => !matches!(waitid(libc::P_PIDFD, fd.as_raw_fd() as u32, REAP), Ok(None)),
        None => handle.number() != Some(pid) || reap(pid).is_some(),
    }
}

/// Shows a zombie child and leaves it.
pub fn peek_any() -> io::Result<Option<Pid>> {
    Ok(waitid(libc::P_ALL, 0, LOOK)?.map(|(dead, _)| dead.pid))
}

/// Takes the news that a child was stopped.
pub fn take_any_stop() -> Option<Pid> {
    let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
    waitid(libc::P_ALL, 0, options).ok().flatten().map(|(stopped, _)| stopped.pid)
}

/// Takes the news that this child was stopped.
pub fn stopped(pid: Pid) -> bool {
    let options = libc::WSTOPPED | libc::WNOHANG | libc::__WALL;
    matches!(waitid(libc::P_PID, pid.0 as u32, options), Ok(Some((_, libc::CLD_STOPPED))))
}

/// Takes the news that this child was continued.
pub fn continued(pid: Pid) -> bool {
    let options = libc::WCONTINUED | libc::WNOHANG | libc::__WALL;
    matches!(waitid(libc::P_PID, pid.0 as u32, options), Ok(Some((_, libc::CLD_CONTINUED))))
}

/// The process group of a process, zombies included. An answer and no more: whoever signals by it pins first.
pub fn group_of(pid: Pid) -> Option<Pid> {
    // SAFETY: no memory is involved, and nothing is signalled.
    let group = unsafe { libc::getpgid(pid.0) };
    Pid::new(group)
}

/// Whether the pid is in use, if only by a zombie.
pub fn exists(pid: Pid) -> bool {
    // SAFETY: no memory is involved, and nothing is signalled.
    let group = unsafe { libc::getpgid(pid.0) };
    group != -1
}

/// Makes a child that has not executed a program yet the leader of a group of its own (setpgid(2)).
pub fn give_group(pid: Pid) {
    let _ = rustix::process::setpgid(pid.rustix(), pid.rustix());
}

/// A process group whose number is held by a pin.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    id: Pid,
    pin: Pid,
}

impl Group {
    /// The group `id`, held by `pin`, an unreaped child of ours that is (or is about to become) a member.
    pub fn new(id: Pid, pin: Pid) -> Group {
        Group { id, pin }
    }

    /// The group's number.
    pub fn id(&self) -> Pid {
        self.id
    }

    /// Whether the number is the group's: the pin is an unreaped child of ours and a member.
    fn is_held(&self) -> bool {
        look(self.pin) != Look::NotOurs && group_of(self.pin) == Some(self.id)
    }

    /// Whether a process is a member. That the number is the group's is shown after the look at the process.
    pub fn has(&self, pid: Pid) -> bool {
        group_of(pid) == Some(self.id) && self.is_held()
    }

    /// Signals the group, if at this moment the pin is an unreaped child of ours and a member (rule 1), and we are not
    /// (rule 2).
    pub fn signal(&self, signal: i32) -> Delivery {
        if !self.is_held() || own_group() == Some(self.id) {
            return Delivery::Refused;
        }
        // SAFETY: no memory is involved. Rules 1 and 2 have just been checked; `id` is 2 or more, so the minus
        // sign names one group.
        let result = unsafe { libc::kill(-self.id.0, signal) };
        Delivery::from_result(if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) })
    }
}

/// What became of a signal to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivery {
    /// To one at least (zombies count).
    Sent,
    /// There is nobody in it.
    Nobody,
    /// The system refused it for everyone in it.
    Denied,
    /// Nothing was sent: the group is not held, or we are in it.
    Refused,
}

impl Delivery {
    pub(super) fn from_result(result: io::Result<()>) -> Delivery {
        match result.map_err(|error| error.raw_os_error()) {
            Ok(()) => Delivery::Sent,
            Err(Some(libc::ESRCH)) => Delivery::Nobody,
            Err(Some(libc::EPERM)) => Delivery::Denied,
            Err(_) => Delivery::Refused,
        }
    }
}

/// A deeper descendant: its descriptor is opened first, after which it must still be a child of `parent`. An error: it
/// is there and cannot be held.
pub fn handle_of_descendant(pid: Pid, parent: Pid) -> io::Result<Option<Handle>> {
    let handle = match Handle::open(pid) {
        Ok(handle) => handle,
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
        Err(error) => return Err(error),
    };
    let found = info(&handle).or_else(|| {
        // A /proc of another pid namespace counts differently: the number must mean the same process in both.
        Some((handle.number()?.raw(), table::parent_of(pid)?.raw()))
    });
    Ok((found == Some((pid.0, parent.0))).then_some(handle))
}

/// Why a number stands for a process of the family, and can be asked whether it still does.
enum Tie {
    /// Our unreaped child.
    Child,
    /// In the pinned group.
    Member,
    /// Below somebody of the family; the pidfd was open before that was shown.
    Below(OwnedFd),
}

impl Tie {
    fn holds(&self, pid: Pid, group: Option<&Group>) -> bool {
        match self {
            Tie::Child => look(pid) != Look::NotOurs,
            Tie::Member => group.is_some_and(|group| group.has(pid)),
            // Until it is reaped its number is nobody else's.
            Tie::Below(fd) => info(fd).is_some_and(|(own, _)| own == pid.0),
        }
    }
}

/// What [`kill_family`] has found.
#[derive(Default)]
pub struct Family {
    /// Sent SIGKILL.
    pub signalled: Vec<Pid>,
    /// Left alone: set-uid programs.
    pub shared: Vec<(Pid, Handle)>,
}

/// Sends SIGKILL to everything below `children` that is not in the group, by a look at every number given out since
/// `first`, which is about a tenth of what the process table costs for each. What is not this `user`'s alone is left to
/// the caller, members of the group as well.
///
/// A number is signalled through a pidfd of which the kernel says that its parent has a number of the family, and only
/// if that number then still stands for the one that was taken into the family. Parents mostly have the lower number;
/// whoever is missed is found later. None where the kernel does not tell, or there are too many numbers.
pub fn kill_family(
    children: impl Iterator<Item = Pid>,
    first: Pid,
    group: Option<&Group>,
    user: Option<&LimitedUser>,
) -> Option<Family> {
    let numbers = table::numbers_since(first)?;
    let mut family: HashMap<Pid, Tie> = children.map(|pid| (pid, Tie::Child)).collect();
    let mut found = Family::default();
    for pid in numbers {
        let Some(in_group) = group_of(pid) else { continue };
        if family.contains_key(&pid) {
            continue;
        }
        if group.is_some_and(|group| group.id == in_group) {
            family.insert(pid, Tie::Member);
            // Held first, and a member after that: so it is that process.
            if user.is_some_and(|user| user.shares(pid, None))
                && let Ok(handle) = Handle::open(pid)
                && group.is_some_and(|group| group.has(pid))
            {
                found.shared.push((pid, handle));
            }
            continue;
        }
        let fd = match rustix::process::pidfd_open(pid.rustix()?, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::MFILE | rustix::io::Errno::NFILE) => return Some(found),
            Err(_) => continue,
        };
        let Some(told) = ask(&fd) else {
            // It has died in between, or the kernel does not know the question.
            if io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
                continue;
            }
            return None;
        };
        let (own, parent) = numbers_in(&told);
        let tie = Pid::new(parent).and_then(|parent| Some((parent, family.get(&parent)?)));
        if own == pid.0
            && let Some((parent, tie)) = tie
            && tie.holds(parent, group)
        {
            if user.is_some_and(|user| uids_in(&told).is_some_and(|uids| user.is_shared(uids))) {
                found.shared.extend(fd.try_clone().map(|fd| (pid, Handle::from_pidfd(fd))));
            } else if rustix::process::pidfd_send_signal(fd.as_fd(), rustix::process::Signal::KILL).is_ok() {
                found.signalled.push(pid);
            }
            family.insert(pid, Tie::Below(fd));
        }
    }
    Some(found)
}

/// What the kernel tells of the process behind a pidfd (PIDFD_GET_INFO, Linux 6.13): struct pidfd_info in its first size,
/// which is mask and cgroup id (64 bits each), pid, tgid, ppid, then real, effective and saved ids, of user and group in
/// turn, and more.
fn ask(fd: impl AsFd) -> Option<[u32; 16]> {
    const GET_INFO: libc::Ioctl = 0xC040_FF0B_u32 as libc::Ioctl;
    let mut info = [0u32; 16];
    info[0] = OF_PIDS | OF_IDS;
    // SAFETY: the request's number says 64 bytes, and so many are valid for writes.
    let result = unsafe { libc::ioctl(fd.as_fd().as_raw_fd(), GET_INFO, info.as_mut_ptr()) };
    (result == 0).then_some(info)
}

/// PIDFD_INFO_PID and PIDFD_INFO_CREDS: what is asked for, and what the answer holds.
const OF_PIDS: u32 = 1;
const OF_IDS: u32 = 2;

/// Number and parent of the process behind a pidfd, where the kernel tells.
pub(super) fn info(fd: impl AsFd) -> Option<(i32, i32)> {
    ask(fd).as_ref().map(numbers_in)
}

fn numbers_in(info: &[u32; 16]) -> (i32, i32) {
    (info[5] as i32, info[6] as i32)
}

/// Real, effective and saved user id of the process behind a pidfd, where the kernel tells.
pub(super) fn uids_behind(fd: impl AsFd) -> Option<[u32; 3]> {
    uids_in(&ask(fd)?)
}

fn uids_in(info: &[u32; 16]) -> Option<[u32; 3]> {
    (info[0] & OF_IDS != 0).then_some([info[7], info[9], info[11]])
}

/// A pidfd of a child that we have just started and not reaped.
pub fn pidfd_of_child(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid.rustix()?, PidfdFlags::empty()).ok()
}

/// A pidfd of our parent, unless it is gone or the kernel has none.
pub fn pidfd_of_parent() -> Option<OwnedFd> {
    Parent::watch()?.pidfd
}

/// Our parent, and how its end is seen: by a pidfd, or where that is refused by a look at its number now and then. Not
/// by the parent-death signal, which fires when the *thread* that started us ends (prctl(2)), and not by the number 1,
/// which a parent may have.
pub struct Parent {
    number: i32,
    pidfd: Option<OwnedFd>,
}

impl Parent {
    /// Its number now; 0 where it is outside of our pid namespace.
    pub fn number() -> i32 {
        rustix::process::getppid().map_or(0, |parent| parent.as_raw_nonzero().get())
    }

    /// None where there is none to be seen.
    pub fn watch() -> Option<Parent> {
        let parent = rustix::process::getppid()?;
        let pidfd = rustix::process::pidfd_open(parent, PidfdFlags::empty()).ok();
        // Only now is it known to be a pidfd of our parent, and not of whoever has its number since.
        let number = parent.as_raw_nonzero().get();
        (Parent::number() == number).then_some(Parent { number, pidfd })
    }

    /// To be polled: readable when it is gone.
    pub fn pidfd(&self) -> Option<&OwnedFd> {
        self.pidfd.as_ref()
    }

    /// How soon to look again where there is no pidfd.
    pub fn look_again(&self) -> Option<Duration> {
        self.pidfd.is_none().then_some(Duration::from_millis(200))
    }

    /// Whether it is gone: whoever has lost its parent has another one by then.
    pub fn is_gone(&self) -> bool {
        Parent::number() != self.number
    }
}
