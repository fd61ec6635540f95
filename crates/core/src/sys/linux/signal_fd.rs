//! Signals as a descriptor.
#![expect(unsafe_code, reason = "signalfd has no safe wrapper")]

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

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
    /// The signal's number.
    pub signal: i32,
    /// What sent it.
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
        // SAFETY: a fresh descriptor without another owner.
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
        // The pid says nothing of the kernel: it is 0 as well for a process outside of our pid namespace
        // (sigaction(2)).
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
