//! Whether a process is at work, whether it writes to one of a call's pipes, and what it does with a signal (proc(5)).
//!
//! Observations, which can be out of date when they are acted on: they decide when a process of the call is signalled, and
//! never which process that is. What cannot be read counts as not at work.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use super::proc_fs::{has_one_thread, in_status};
use crate::sys::unix::pid::Pid;

/// What the threads of a process do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Work {
    /// One of them runs, would run if it had a processor, or waits for a disk.
    pub is_busy: bool,
    /// How often they have been switched away from so far. Unchanged: none of them has run in between.
    pub switches: u64,
}

/// `None`: it is gone, or is not to be seen.
pub fn work_of(pid: Pid) -> Option<Work> {
    let mut all = Work { is_busy: false, switches: 0 };
    let mut text = String::new();
    for task in threads_of(pid)? {
        text.clear();
        // It may have ended since it was listed.
        let Ok(mut file) = File::open(format!("{task}/status")) else { continue };
        if file.read_to_string(&mut text).is_err() {
            continue;
        }
        all.is_busy |= in_status(&text, "State").is_some_and(|state| state.starts_with(['R', 'D']));
        for kind in ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"] {
            let count = in_status(&text, kind).and_then(|count| count.parse().ok());
            all.switches = all.switches.wrapping_add(count.unwrap_or(0));
        }
    }
    Some(all)
}

/// Their folders.
fn threads_of(pid: Pid) -> Option<Vec<String>> {
    let process = format!("/proc/{}", pid.raw());
    let tasks = format!("{process}/task");
    if has_one_thread(&tasks) {
        return Some(vec![process]);
    }
    let entries = fs::read_dir(&tasks).ok()?.flatten();
    Some(entries.map(|entry| format!("{tasks}/{}", entry.file_name().to_string_lossy())).collect())
}

/// A pipe that is looked at without being held open: neither reader nor writer of it is waited for because of this.
pub struct PipeView {
    /// O_PATH.
    place: OwnedFd,
    identity: (u64, u64),
}

impl PipeView {
    /// Of a descriptor, if that is of a pipe.
    pub fn of(fd: BorrowedFd<'_>) -> Option<PipeView> {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let place = File::options().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
        let about = place.metadata().ok()?;
        let identity = (about.dev(), about.ino());
        about.file_type().is_fifo().then(|| PipeView { place: place.into(), identity })
    }

    /// How many bytes it holds. `None`: it cannot be told.
    pub fn level(&self) -> Option<u64> {
        let path = format!("/proc/self/fd/{}", self.place.as_raw_fd());
        // As a writer for the length of this look: a reader too many would keep others from being told that nobody reads.
        let pipe = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        rustix::io::ioctl_fionread(pipe).ok()
    }
}

/// Whether a thread of the process waits for room in one of these pipes.
pub fn is_writing_to(pid: Pid, pipes: &[PipeView]) -> bool {
    let is_one = |fd: u64| {
        let about = fs::metadata(format!("/proc/{}/fd/{fd}", pid.raw()));
        about.is_ok_and(|about| pipes.iter().any(|pipe| pipe.identity == (about.dev(), about.ino())))
    };
    blocked_calls(pid).iter().filter_map(|call| written_to(call)).any(is_one)
}

/// Whether a process handles this signal: catches it, or blocks it to read it (signalfd(2)) or to wait for it
/// (sigwaitinfo(2)). False where that cannot be told.
pub fn handles(pid: Pid, signal: i32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{}/status", pid.raw())) else { return false };
    let mask =
        |name| in_status(&status, name).and_then(|mask| u64::from_str_radix(mask, 16).ok()).unwrap_or(0);
    let handled = mask("SigCgt") | mask("SigBlk");
    (1..=64).contains(&signal) && (handled & 1 << (signal - 1) != 0 || is_awaiting_signals(pid))
}

/// Whether a thread of the process waits for signals. Those that it waits for show as neither caught nor blocked.
fn is_awaiting_signals(pid: Pid) -> bool {
    blocked_calls(pid).iter().any(|call| number_of(call) == Some(libc::SYS_rt_sigtimedwait))
}

/// The system calls that its threads are blocked in, with their arguments, as far as they are to be seen.
fn blocked_calls(pid: Pid) -> Vec<String> {
    let threads = threads_of(pid).unwrap_or_default();
    threads.iter().filter_map(|task| fs::read_to_string(format!("{task}/syscall")).ok()).collect()
}

/// "running", and -1 outside of a system call.
fn number_of(call: &str) -> Option<libc::c_long> {
    call.split_ascii_whitespace().next()?.parse().ok()
}

/// The descriptor that a blocked system call writes to, by its number and arguments.
fn written_to(call: &str) -> Option<u64> {
    let argument = match number_of(call)? {
        libc::SYS_write | libc::SYS_writev | libc::SYS_sendfile => 0,
        libc::SYS_tee => 1,
        libc::SYS_splice => 2,
        _ => return None,
    };
    u64::from_str_radix(call.split_ascii_whitespace().nth(argument + 1)?.strip_prefix("0x")?, 16).ok()
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_descriptor_of_a_blocked_write() {
        let line = |number| format!("{number} 0x1 0x7ffe 0x5 0x0 0x0 0x0 0x7ffd 0x7f00");
        assert_eq!(written_to(&line(libc::SYS_write)), Some(1));
        assert_eq!(written_to(&line(libc::SYS_splice)), Some(5));
        assert_eq!(written_to(&line(libc::SYS_read)), None);
        assert_eq!(["running", "-1 0x7ffd 0x7f00", "", "x"].map(written_to), [None; 4]);
    }

    #[test]
    fn a_pipe_is_looked_at_and_not_held() {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let view = PipeView::of(write.as_fd()).unwrap();
        assert_eq!(view.level(), Some(0));
        rustix::io::write(&write, b"12345").unwrap();
        assert_eq!(view.level(), Some(5));
        drop(write);
        let mut bytes = [0; 8];
        assert_eq!(rustix::io::read(&read, &mut bytes), Ok(5));
        // The end of the file, although the view is there.
        assert_eq!(rustix::io::read(&read, &mut bytes), Ok(0));
        drop(read);
        assert_eq!(view.level(), Some(0));
        assert!(PipeView::of(File::open("/dev/null").unwrap().as_fd()).is_none());
    }
}
