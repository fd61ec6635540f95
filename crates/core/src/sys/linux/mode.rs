//! What every mode of the helper takes on at its start, and its end by a signal.
#![expect(unsafe_code, reason = "signals to ourselves, and our own arguments, have no safe wrapper")]

use std::mem::MaybeUninit;
use std::ptr;

use super::descriptors::close_from;
use super::proc_fs;
use super::raw;
use crate::sys::unix::pid::leave_session;
use crate::sys::unix::signals::block_all_signals;

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

/// Truncates the visible command line to `argv[0]`, so that `pkill -f` with a word of the command does not hit the
/// keeper. Where there is no usable /proc it stays.
pub fn hide_arguments() {
    let Some((start, end)) = proc_fs::own_arguments() else { return };
    let start = start as *mut u8;
    // SAFETY: the arguments are there, as /proc/self/stat has it: strings, each with its NUL, in memory of ours that is
    // mapped for ever. What the standard library made of them are copies.
    let name = unsafe { std::ffi::CStr::from_ptr(start.cast()) };
    let kept = name.to_bytes_with_nul().len();
    let rest = (end - start as usize).saturating_sub(kept);
    // SAFETY: behind the first string and before the end, as just computed; no other code of this process reads it.
    unsafe { start.wrapping_add(kept).write_bytes(0, rest) };
}

/// After the fork: subreaper is not inherited over fork (prctl(2)), dispositions, mask and dumpable are. The keeper
/// leaves the helper's group, which the host's other tools may signal, and its session, in which another keeper's
/// command could join the group of this one's; unless its command is to be born there.
pub fn become_keeper(stays_in_group: bool) -> bool {
    if !stays_in_group {
        leave_session();
    }
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).is_ok()
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
