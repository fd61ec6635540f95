//! A process named by a descriptor and not by its number: a pidfd (pidfd_open(2)), or the process's folder below /proc
//! where pidfds are refused, which pidfd_send_signal(2) takes as well. What is signalled through it is that process, or
//! no process, for as long as the descriptor is open.
#![expect(unsafe_code, reason = "pidfd_send_signal with signal 0 or with flags has no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::PidfdFlags;

use super::child::{REAP, reap, waitid};
use super::pidfd_info::info;
use super::proc_fs::{self, Stat};
use crate::sys::unix::child::{ChildState, LOOK, child_state, state_of};
use crate::sys::unix::group::Delivery;
use crate::sys::unix::io::is_readable;
use crate::sys::unix::pid::{Pid, leads_own_group};

/// PIDFD_SIGNAL_PROCESS_GROUP: the group that the process leads or led (Linux 6.9).
const PROCESS_GROUP: u32 = 4;

/// A process, named by a descriptor.
#[derive(Debug)]
pub struct Handle {
    fd: OwnedFd,
    /// A folder: it cannot be polled.
    is_folder: bool,
}

impl Handle {
    /// Opens the process that has this pid now. The caller has to show afterwards that it is the one that was meant.
    pub fn open(pid: Pid) -> io::Result<Handle> {
        let number = pid.rustix().ok_or(io::ErrorKind::InvalidInput)?;
        match rustix::process::pidfd_open(number, PidfdFlags::empty()) {
            Ok(fd) => Ok(Handle { fd, is_folder: false }),
            Err(rustix::io::Errno::SRCH) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
            Err(error) if proc_fs::is_ours() => {
                let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
                match rustix::fs::open(format!("/proc/{}", pid.raw()), flags, Mode::empty()) {
                    Ok(fd) => Ok(Handle { fd, is_folder: true }),
                    Err(rustix::io::Errno::NOENT) => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                    Err(_) => Err(error.into()),
                }
            }
            Err(error) => Err(error.into()),
        }
    }

    /// A handle from a pidfd.
    pub(super) fn from_pidfd(fd: OwnedFd) -> Handle {
        Handle { fd, is_folder: false }
    }

    /// A handle from a descriptor of either kind that another process has passed to us.
    pub fn from_descriptor(fd: OwnedFd) -> Handle {
        let status = rustix::fs::fstat(&fd).map(|status| rustix::fs::FileType::from_raw_mode(status.st_mode));
        Handle { is_folder: status == Ok(rustix::fs::FileType::Directory), fd }
    }

    /// Another descriptor of the same process.
    pub fn try_clone(&self) -> io::Result<Handle> {
        Ok(Handle { fd: self.fd.try_clone()?, is_folder: self.is_folder })
    }

    fn send(&self, signal: i32, flags: u32) -> io::Result<()> {
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: no memory is involved. Rule 1: the descriptor names the process, or the group that it leads, and not
        // a number.
        let result =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.fd.as_raw_fd(), signal, none, flags) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Signals the process.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        self.send(signal, 0)
    }

    /// Whether it has not been reaped: until then its number is its own, and so is its group's.
    pub fn is_unreaped(&self) -> bool {
        match self.signal(0).map_err(|error| error.raw_os_error()) {
            Ok(()) => true,
            Err(Some(libc::ESRCH)) => false,
            // It is another user's, or a filter refuses the call.
            Err(_) => self.number().is_some(),
        }
    }

    /// Whether the system refuses to let us signal this process, where it does not refuse that for every process.
    pub fn is_denied(&self) -> bool {
        let denied = self.signal(0).is_err_and(|error| error.raw_os_error() == Some(libc::EPERM));
        denied && Handle::works()
    }

    /// Whether processes can be signalled through descriptors at all: tried on ourselves, without a signal.
    pub fn works() -> bool {
        Pid::own().and_then(|own| Handle::open(own).ok()).is_some_and(|own| own.signal(0).is_ok())
    }

    /// Whether all of its threads have ended. False where that is not known.
    pub fn has_ended(&self) -> bool {
        if self.is_folder {
            return match self.stat() {
                Ok(stat) => stat.is_some_and(|stat| !stat.is_alive()),
                Err(error) => error == rustix::io::Errno::NOENT || error == rustix::io::Errno::SRCH,
            };
        }
        is_readable(&self.fd)
    }

    /// To be polled: readable when it has ended.
    pub(super) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_folder).then(|| self.fd.as_fd())
    }

    fn stat(&self) -> rustix::io::Result<Option<Stat>> {
        let file = rustix::fs::openat(&self.fd, "stat", OFlags::CLOEXEC, Mode::empty())?;
        let mut bytes = [0; 1024];
        let count = rustix::io::read(&file, &mut bytes)?;
        Ok(Stat::parse(&bytes[..count]))
    }

    /// Its pid in our pid namespace; `None` when it was reaped, or that is not known.
    pub fn number(&self) -> Option<Pid> {
        if self.is_folder {
            return self.stat().ok().flatten().map(|stat| stat.pid);
        }
        let number = info(&self.fd).and_then(|(own, _)| Pid::new(own));
        number.or_else(|| proc_fs::pid_of_pidfd(&self.fd).filter(|_| proc_fs::is_ours()))
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The [`child_state`] of the process behind a descriptor. `pid`: its pid, if it is our child at all.
pub fn child_state_behind(handle: &Handle, pid: Pid) -> ChildState {
    match handle.pidfd() {
        Some(fd) => state_of(crate::sys::unix::child::waitid(libc::P_PIDFD, fd.as_raw_fd() as u32, LOOK)),
        // By number: and the descriptor is of the one that has it, if that has not ended.
        None if handle.number() == Some(pid) => child_state(pid),
        None => ChildState::NotOurs,
    }
}

/// Reaps the child behind a descriptor, if it has ended; `pid` is its number if it is our unreaped child at all. True
/// when there is nothing (more) to reap.
pub fn reap_behind(handle: &Handle, pid: Pid) -> bool {
    match handle.pidfd() {
        Some(fd) => !matches!(waitid(libc::P_PIDFD, fd.as_raw_fd() as u32, REAP), Ok(None)),
        None => handle.number() != Some(pid) || reap(pid).is_some(),
    }
}

/// A descriptor that is readable when a child has ended, which we have just started and not reaped.
pub fn end_of_child(pid: Pid) -> Option<OwnedFd> {
    rustix::process::pidfd_open(pid.rustix()?, PidfdFlags::empty()).ok()
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
        Some((handle.number()?.raw(), proc_fs::parent_of(pid)?.raw()))
    });
    Ok((found == Some((pid.raw(), parent.raw()))).then_some(handle))
}

/// A process group named by a descriptor of the process that leads it, or led it before it was reaped.
#[derive(Debug)]
pub struct LedGroup {
    id: Pid,
    leader: Handle,
}

impl LedGroup {
    /// The group with the leader's number, `id`.
    pub fn new(id: Pid, leader: Handle) -> LedGroup {
        LedGroup { id, leader }
    }

    /// Whether this kernel signals groups through a descriptor: tried once, without a signal, on ourselves.
    pub fn is_supported() -> bool {
        let Some(own) = Pid::own().and_then(|own| Handle::open(own).ok()) else { return false };
        // ESRCH: the kernel supports it, and we lead no group.
        matches!(Delivery::from_result(own.send(0, PROCESS_GROUP)), Delivery::Sent | Delivery::Empty)
    }

    /// The group's number.
    pub fn id(&self) -> Pid {
        self.id
    }

    /// Signals the group, unless we could be in it (rule 2): a process that leads a group is in no other, whichever
    /// number this one has. `Empty` is the kernel's answer.
    pub fn signal(&self, signal: i32) -> Delivery {
        if !leads_own_group() || Pid::own() == Some(self.id) {
            return Delivery::Refused;
        }
        Delivery::from_result(self.leader.send(signal, PROCESS_GROUP))
    }
}
