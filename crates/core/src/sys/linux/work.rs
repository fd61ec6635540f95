//! Whether a process is at work, whether it writes to one of a call's pipes, and what it does with a signal (proc(5)). These are observations for
//! politeness: nothing is signalled by them, and what cannot be read counts as not at work.
#![expect(
    unsafe_code,
    reason = "the ioctl that tells how full a pipe is has no safe wrapper that says so by an error"
)]

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use super::process::Pid;

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
        for line in text.lines() {
            match line.split_once(':') {
                Some(("State", state)) => all.is_busy |= state.trim_start().starts_with(['R', 'D']),
                Some(("voluntary_ctxt_switches" | "nonvoluntary_ctxt_switches", count)) => {
                    all.switches = all.switches.wrapping_add(count.trim().parse().unwrap_or(0));
                }
                _ => (),
            }
        }
    }
    Some(all)
}

/// Their folders.
fn threads_of(pid: Pid) -> Option<Vec<String>> {
    let process = format!("/proc/{}", pid.raw());
    let tasks = format!("{process}/task");
    // Nearly every process has one thread. A directory has two links, and one for each folder in it.
    if fs::metadata(&tasks).ok()?.nlink() <= 3 {
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
    pub fn level(&self) -> Option<u32> {
        let path = format!("/proc/self/fd/{}", self.place.as_raw_fd());
        // As a writer for the length of this look: a reader too many would keep others from being told that nobody reads.
        let pipe = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let mut level: libc::c_int = 0;
        // SAFETY: the request writes one int.
        let result = unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut level) };
        (result == 0).then_some(level as u32)
    }
}

/// Whether a thread of the process waits for room in one of these pipes.
pub fn is_writing_to(pid: Pid, pipes: &[PipeView]) -> bool {
    let waits = |task: &String| {
        let call = fs::read_to_string(format!("{task}/syscall")).ok();
        let fd = call.and_then(|call| written_to(&call));
        let about = fd.and_then(|fd| fs::metadata(format!("/proc/{}/fd/{fd}", pid.raw())).ok());
        about.is_some_and(|about| pipes.iter().any(|pipe| pipe.identity == (about.dev(), about.ino())))
    };
    threads_of(pid).is_some_and(|tasks| tasks.iter().any(waits))
}

/// Whether a process handles this signal: catches it, or blocks it to read it (signalfd(2)) or to wait for it
/// (sigwaitinfo(2)). False where that cannot be told.
pub fn handles(pid: Pid, signal: i32) -> bool {
    let Ok(status) = fs::read_to_string(format!("/proc/{}/status", pid.raw())) else { return false };
    let masks = status.lines().filter_map(|line| {
        let (name, mask) = line.split_once(':')?;
        ["SigCgt", "SigBlk"].contains(&name).then(|| u64::from_str_radix(mask.trim(), 16).ok())?
    });
    let handled = masks.fold(0, |all, mask| all | mask);
    (1..=64).contains(&signal) && (handled & 1 << (signal - 1) != 0 || is_awaiting_signals(pid))
}

/// Whether a thread of the process waits for signals. Those that it waits for show as neither caught nor blocked.
fn is_awaiting_signals(pid: Pid) -> bool {
    let waits = |task: &String| {
        let call = fs::read_to_string(format!("{task}/syscall")).ok();
        call.and_then(|call| number_of(&call)) == Some(libc::SYS_rt_sigtimedwait)
    };
    threads_of(pid).is_some_and(|tasks| tasks.iter().any(waits))
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
