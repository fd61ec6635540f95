//! Signals of this process: mask and dispositions.
#![expect(unsafe_code, reason = "signal sets and dispositions have no safe wrapper")]

use std::mem::MaybeUninit;
use std::ptr;

/// Blocks every signal for this thread; returns what was blocked before. Helper and keepers run like this (SIGCHLD
/// arrives through a descriptor), and the host's reactor, so that no handler of the host runs on its stack.
pub fn block_all_signals() -> libc::sigset_t {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::zeroed());
    // SAFETY: writes the whole set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: reads the set just written, writes the other one.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr()) };
    // SAFETY: zeroed, which is the empty set, and then written by the call.
    unsafe { before.assume_init() }
}

/// Blocks these for this thread, and no others.
pub(in crate::sys) fn set_signal_mask(mask: &libc::sigset_t) {
    // SAFETY: a valid set; the old mask is not asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, ptr::null_mut()) };
}

/// Whether a blocked signal was sent to this process and waits.
pub fn is_pending(signal: i32) -> bool {
    let mut set = MaybeUninit::zeroed();
    // SAFETY: writes a whole set.
    unsafe { libc::sigpending(set.as_mut_ptr()) };
    // SAFETY: zeroed, which is the empty set, and then written by the call.
    unsafe { libc::sigismember(set.as_ptr(), signal) == 1 }
}

/// Whether a signal is ignored.
pub fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: reads the disposition into a valid place; sets nothing.
    unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroed, then written by the call.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

/// Stops this process, as a shell expects of a job, until it is continued. False for process 1, which cannot be stopped
/// from within its pid namespace.
pub fn stop_ourselves() -> bool {
    // SAFETY: a signal to ourselves, by raise(3), not by number.
    unsafe { libc::raise(libc::SIGSTOP) };
    std::process::id() != 1
}
