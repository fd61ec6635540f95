//! What every test of the executable needs: facts of the process table, processes by pidfd, a ground to stand on.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{PidfdFlags, Signal};

pub const HELPER: &str = env!("CARGO_BIN_EXE_holdfast-helper");
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until the descriptor is readable or has ended.
pub fn readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
    let timeout = Timespec::try_from(patience).unwrap();
    let mut sources = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    matches!(rustix::event::poll(&mut sources, Some(&timeout)), Ok(1))
}

/// Waits for a fact of the process table.
pub fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !fact() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        let pause = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
        let _ = rustix::event::poll(&mut [], Some(&pause));
    }
}

/// A process by its pidfd, taken while it was known to live.
pub struct Watched {
    pub pid: i32,
    pidfd: OwnedFd,
}

impl Watched {
    pub fn new(pid: i32) -> Watched {
        let number = rustix::process::Pid::from_raw(pid).unwrap();
        let pidfd = rustix::process::pidfd_open(number, PidfdFlags::empty()).unwrap();
        Watched { pid, pidfd }
    }

    pub fn is_alive(&self) -> bool {
        !readable(self.pidfd.as_fd(), Duration::ZERO)
    }

    /// Through the pidfd, which names the process and not a number. False when it was reaped.
    pub fn signal(&self, signal: Signal) -> bool {
        match rustix::process::pidfd_send_signal(&self.pidfd, signal) {
            Ok(()) => true,
            Err(rustix::io::Errno::SRCH) => false,
            Err(error) => panic!("signal to {}: {error}", self.pid),
        }
    }

    pub fn kill(&self) {
        assert!(self.signal(Signal::KILL), "{} was reaped", self.pid);
    }

    pub fn assert_gone(&self, what: &str) {
        assert!(readable(self.pidfd.as_fd(), PATIENCE), "{what}: {} lives", self.pid);
    }
}

/// A folder of its own, and a mark that every command of the test carries in its environment.
pub struct Ground {
    pub folder: PathBuf,
    pub mark: String,
}

impl Ground {
    pub fn new() -> Ground {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        // Tests in pid namespaces of their own have the same numbers.
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos();
        let mark = format!("r{}-{serial}-{now}", std::process::id());
        let folder = std::env::temp_dir().join(format!("holdfast-{mark}"));
        fs::create_dir_all(&folder).unwrap();
        Ground { folder, mark }
    }

    /// What commands have written into the marker file; empty when nothing ran.
    pub fn ran(&self) -> String {
        match fs::read_to_string(self.folder.join("ran")) {
            Ok(text) => text,
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
                String::new()
            }
        }
    }

    /// Whoever carries the mark and is not on its way out.
    pub fn marked(&self) -> Vec<i32> {
        let mark = format!("MARK={}\0", self.mark);
        let holds = |pid: &i32| {
            let bytes = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            bytes.windows(mark.len()).any(|window| window == mark.as_bytes())
        };
        pids().into_iter().filter(holds).collect()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub fn pids() -> Vec<i32> {
    let entries = fs::read_dir("/proc").unwrap();
    entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// State, parent, group and so on (proc(5)); empty where there is no such process.
pub fn stat(pid: i32) -> Vec<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split_whitespace().map(str::to_owned).collect()
}

/// The children of a process, zombies included.
pub fn children_of(parent: i32) -> Vec<i32> {
    let parent = parent.to_string();
    pids().into_iter().filter(|&pid| stat(pid).get(1) == Some(&parent)).collect()
}
