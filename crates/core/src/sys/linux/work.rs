//! Whether a process is at work, whether it writes to one of a call's pipes, and what it does with a signal (proc(5)).
//!
//! Observations, which can be out of date when they are acted on: they decide when a process of the call is signalled,
//! and never which process that is. What cannot be read counts as not at work.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;

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

/// The folders of its threads below /proc.
fn threads_of(pid: Pid) -> Option<Vec<String>> {
    let process = format!("/proc/{}", pid.raw());
    let tasks = format!("{process}/task");
    if has_one_thread(&tasks) {
        return Some(vec![process]);
    }
    let entries = fs::read_dir(&tasks).ok()?.flatten();
    Some(entries.map(|entry| format!("{tasks}/{}", entry.file_name().to_string_lossy())).collect())
}

/// Which pipe it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PipeId {
    device: u64,
    inode: u64,
}

impl PipeId {
    /// The pipe behind a descriptor of ours, if it is one.
    pub fn of(fd: BorrowedFd<'_>) -> Option<PipeId> {
        let about = rustix::fs::fstat(fd).ok()?;
        let is_pipe = FileType::from_raw_mode(about.st_mode) == FileType::Fifo;
        is_pipe.then_some(PipeId { device: about.st_dev, inode: about.st_ino })
    }

    /// The pipe behind a descriptor with this number that we were started with, if it is open for writing.
    pub fn of_inherited(number: i32) -> Option<PipeId> {
        PipeId::of_output(&format!("/proc/self/fd/{number}"))
    }

    /// The pipe behind another process's descriptor, if it is open for writing.
    pub fn of_process(pid: Pid, number: i32) -> Option<PipeId> {
        PipeId::of_output(&format!("/proc/{}/fd/{number}", pid.raw()))
    }

    fn of_output(path: &str) -> Option<PipeId> {
        let about = fs::metadata(path).ok()?;
        let is_pipe = about.file_type().is_fifo() && is_for_writing(path);
        is_pipe.then(|| PipeId { device: about.dev(), inode: about.ino() })
    }

    fn is_at(self, path: &str) -> bool {
        fs::metadata(path).is_ok_and(|about| (self.device, self.inode) == (about.dev(), about.ino()))
    }
}

/// A pipe that is looked at without being held open: neither reader nor writer of it is waited for because of this.
pub struct PipeView {
    /// Opened with O_PATH.
    place: OwnedFd,
    id: PipeId,
}

/// What a pipe holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Level {
    /// Bytes to be read.
    pub bytes: u64,
    /// A writer would have to wait.
    pub is_full: bool,
}

impl PipeView {
    /// Views of those of these pipes that one of the processes can write to.
    pub fn of_any(pipes: &[PipeId], list: &[Pid]) -> Vec<PipeView> {
        let mut views: Vec<PipeView> = Vec::new();
        if pipes.is_empty() {
            return views;
        }
        for path in list.iter().flat_map(|&pid| paths_in(pid).unwrap_or_default()) {
            let is_new = |id: &&PipeId| id.is_at(&path) && views.iter().all(|view| view.id != **id);
            if let Some(&id) = pipes.iter().find(is_new)
                && is_for_writing(&path)
            {
                views.extend(PipeView::open(&path, id));
            }
        }
        views
    }

    fn open(path: &str, id: PipeId) -> Option<PipeView> {
        // Not a named one: a process that waits for its other end would be woken by our looks.
        if !fs::read_link(path).ok()?.to_str()?.starts_with("pipe:") {
            return None;
        }
        let place = File::options().read(true).custom_flags(libc::O_PATH).open(path).ok()?;
        let about = place.metadata().ok()?;
        let is_it = (id.device, id.inode) == (about.dev(), about.ino());
        is_it.then(|| PipeView { place: place.into(), id })
    }

    /// Which one it is.
    pub fn id(&self) -> PipeId {
        self.id
    }

    /// What the pipe holds now. `None`: not known.
    pub fn level(&self) -> Option<Level> {
        let path = format!("/proc/self/fd/{}", self.place.as_raw_fd());
        // As a writer for the length of this look: one more reader would keep a writer from the error that no reader is
        // left.
        let pipe = File::options().write(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
        let bytes = rustix::io::ioctl_fionread(&pipe).ok()?;
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut source = [PollFd::new(&pipe, PollFlags::OUT)];
        let ready = rustix::event::poll(&mut source, Some(&now)).ok()?;
        Some(Level { bytes, is_full: ready == 0 })
    }

    /// Whether the process can write to it. True where that is not to be seen.
    pub fn is_open_in(&self, pid: Pid) -> bool {
        let Some(paths) = paths_in(pid) else { return true };
        paths.iter().any(|path| self.id.is_at(path) && is_for_writing(path))
    }

    /// Whether a thread of the process waits for room in it. With poll(2) and its like it may wait for anything: then
    /// it counts if it could write here and would have to wait.
    pub fn is_awaited_by(&self, pid: Pid, level: Level) -> bool {
        blocked_calls(pid).iter().any(|call| match writing_of(call) {
            Some(Writing::To(fd)) => self.id.is_at(&format!("/proc/{}/fd/{fd}", pid.raw())),
            Some(Writing::ToAny) => level.is_full && self.is_open_in(pid),
            None => false,
        })
    }
}

/// The descriptors of a process.
fn paths_in(pid: Pid) -> Option<Vec<String>> {
    let folder = format!("/proc/{}/fd", pid.raw());
    let entries = fs::read_dir(&folder).ok()?.flatten();
    Some(entries.map(|entry| format!("{folder}/{}", entry.file_name().to_string_lossy())).collect())
}

/// Whether a link in a folder of descriptors (proc_pid_fd(5)) is one that is open for writing.
fn is_for_writing(path: &str) -> bool {
    fs::symlink_metadata(path).is_ok_and(|link| link.mode() & 0o200 != 0)
}

/// Whether a process handles this signal: catches it, or blocks it to read it (signalfd(2)) or to wait for it
/// (sigwaitinfo(2)). False where that is not known.
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

/// The number of a system call. `None` for "running", -1 for a thread that is blocked outside of one.
fn number_of(call: &str) -> Option<libc::c_long> {
    call.split_ascii_whitespace().next()?.parse().ok()
}

/// What a blocked system call may wait to write to.
#[derive(Debug, PartialEq, Eq)]
enum Writing {
    /// This descriptor.
    To(u64),
    /// One of several.
    ToAny,
}

/// What a call with this line in /proc writes to. `None`: it does not write.
fn writing_of(call: &str) -> Option<Writing> {
    let argument = match number_of(call)? {
        libc::SYS_write | libc::SYS_writev | libc::SYS_pwritev2 | libc::SYS_vmsplice | libc::SYS_sendfile => {
            0
        }
        libc::SYS_tee => 1,
        libc::SYS_splice => 2,
        number if WAITS_FOR_ANY.contains(&number) => return Some(Writing::ToAny),
        _ => return None,
    };
    let fd = call.split_ascii_whitespace().nth(argument + 1)?.strip_prefix("0x")?;
    u64::from_str_radix(fd, 16).ok().map(Writing::To)
}

/// epoll_pwait2(2) where the libc crate does not name it.
const SYS_EPOLL_PWAIT2: libc::c_long = 441;
const WAITS_FOR_ANY: &[libc::c_long] = &[
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_pwait,
    SYS_EPOLL_PWAIT2,
    libc::SYS_io_uring_enter,
];

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_descriptor_of_a_blocked_write() {
        let line = |number| format!("{number} 0x1 0x7ffe 0x5 0x0 0x0 0x0 0x7ffd 0x7f00");
        assert_eq!(writing_of(&line(libc::SYS_write)), Some(Writing::To(1)));
        assert_eq!(writing_of(&line(libc::SYS_splice)), Some(Writing::To(5)));
        assert_eq!(writing_of(&line(libc::SYS_ppoll)), Some(Writing::ToAny));
        assert_eq!(writing_of(&line(libc::SYS_read)), None);
        assert_eq!(["running", "-1 0x7ffd 0x7f00", "", "x"].map(writing_of), [None, None, None, None]);
    }

    #[test]
    fn a_pipe_is_looked_at_and_not_held() {
        let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let own = Pid::own().unwrap();
        let id = PipeId::of(write.as_fd()).unwrap();
        assert_eq!(PipeId::of_process(own, write.as_raw_fd()), Some(id));
        assert_eq!(PipeId::of_process(own, read.as_raw_fd()), None);
        let [view] = <[PipeView; 1]>::try_from(PipeView::of_any(&[id], &[own, own])).ok().unwrap();
        assert_eq!(view.level(), Some(Level::default()));
        rustix::io::write(&write, b"12345").unwrap();
        assert_eq!(view.level(), Some(Level { bytes: 5, is_full: false }));
        assert!(view.is_open_in(own));
        rustix::io::ioctl_fionbio(&write, true).unwrap();
        while rustix::io::write(&write, &[0; 4096]).is_ok() {}
        assert!(view.level().unwrap().is_full);
        drop(write);
        assert!(!view.is_open_in(own));
        let mut bytes = vec![0; 1 << 20];
        assert!(rustix::io::read(&read, &mut bytes).unwrap() > 5);
        rustix::io::ioctl_fionbio(&read, true).unwrap();
        while rustix::io::read(&read, &mut bytes).is_ok_and(|count| count > 0) {}
        // The end of the file, although the view is there.
        assert_eq!(rustix::io::read(&read, &mut bytes), Ok(0));
        drop(read);
        assert_eq!(view.level(), Some(Level::default()));
        assert!(PipeId::of(File::open("/dev/null").unwrap().as_fd()).is_none());
    }

    #[test]
    fn a_named_pipe_is_left_alone() {
        let path = std::env::temp_dir().join(format!("holdfast-fifo-{}", std::process::id()));
        rustix::fs::mknodat(rustix::fs::CWD, &path, FileType::Fifo, 0o600.into(), 0).unwrap();
        let fifo = File::options().read(true).write(true).open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let id = PipeId::of(fifo.as_fd()).unwrap();
        assert!(PipeView::of_any(&[id], &[Pid::own().unwrap()]).is_empty());
    }
}
