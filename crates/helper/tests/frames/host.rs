//! A host made of raw frames: it starts the real executable, and says to helper and keepers whatever a test wants.

use std::fs;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use holdfast_core::commitment::Commitment;
use holdfast_core::socket::{self, Received};
use holdfast_wire::{
    Background, Decoder, EndFacts, Frame, FromHelper, FromKeeper, NO_DESCRIPTOR, Spec, ToHelper, ToKeeper,
};
use rustix::event::{PollFd, PollFlags, Timespec};

pub const HELPER: &str = env!("CARGO_BIN_EXE_holdfast-helper");
const PATIENCE: Duration = Duration::from_secs(10);

/// Waits until the descriptor is readable or has ended.
fn readable(fd: BorrowedFd<'_>, patience: Duration) -> bool {
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
        let pidfd = rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty()).unwrap();
        Watched { pid, pidfd }
    }

    pub fn is_alive(&self) -> bool {
        !readable(self.pidfd.as_fd(), Duration::ZERO)
    }

    /// Through the pidfd, which names the process and not a number.
    pub fn kill(&self) {
        rustix::process::pidfd_send_signal(&self.pidfd, rustix::process::Signal::KILL).unwrap();
    }

    pub fn assert_gone(&self, what: &str) {
        assert!(readable(self.pidfd.as_fd(), PATIENCE), "{what}: {} lives", self.pid);
    }
}

/// A folder of its own, and a mark that every command of the test carries in its environment.
pub struct Ground {
    folder: PathBuf,
    pub mark: String,
}

impl Ground {
    pub fn new() -> Ground {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let mark = format!("r{}-{serial}", std::process::id());
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

    /// The frame of a spec that runs this script, with its working directory as the one descriptor.
    pub fn spec(&self, script: &str) -> Vec<u8> {
        self.spec_with(script, |_| ())
    }

    pub fn spec_with(&self, script: &str, change: impl FnOnce(&mut Spec<'_>)) -> Vec<u8> {
        let args = format!("sh\0-c\0{script}");
        let env = format!("PATH=/usr/bin:/bin\0MARK={}", self.mark);
        let mut spec = Spec {
            file: b"/bin/sh",
            args: args.as_bytes(),
            env: env.as_bytes(),
            cwd: b"",
            places: &[NO_DESCRIPTOR; 3],
            descriptors: 1,
            umask: None,
            nice: 0,
            nofile: 1024,
            uid: None,
            gid: None,
            timeout: 0,
            kill_signal: 15,
            grace: 0,
            background: Background::End,
            background_grace: 0,
            same_group: false,
        };
        change(&mut spec);
        let mut bytes = Vec::new();
        ToKeeper::put_spec(&mut bytes, &spec);
        bytes
    }

    pub fn directory(&self) -> OwnedFd {
        fs::File::open(&self.folder).unwrap().into()
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

/// The children of a process, zombies included.
pub fn children_of(parent: i32) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let parent_of = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse().ok());
        parent_of == Some(parent)
    };
    pids().into_iter().filter(is_child).collect()
}

/// The executable in its first mode, and the host's end of its socket.
pub struct Helper {
    child: Child,
    pub process: Watched,
    control: Option<OwnedFd>,
    inbox: Decoder,
    descriptors: Vec<OwnedFd>,
}

/// Starts the executable with this descriptor on 3, as the addon does. (A shell moves it there: between fork and exec
/// this program may run nothing of its own.)
pub fn start_with(control: OwnedFd) -> Child {
    Command::new("/bin/sh")
        .arg("-c")
        .arg("exec 3<&0 </dev/null; exec \"$0\" __spawn-helper")
        .arg(HELPER)
        .env_clear()
        .stdin(Stdio::from(control))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Helper {
    pub fn start() -> Helper {
        let (ours, theirs) = socket::pair().unwrap();
        let child = start_with(theirs);
        let process = Watched::new(child.id() as i32);
        Helper { child, process, control: Some(ours), inbox: Decoder::default(), descriptors: Vec::new() }
    }

    pub fn say(&self, bytes: &[u8]) {
        let sent = socket::send(self.control.as_ref().unwrap().as_fd(), bytes, &[]).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// The helper's next message; None at the end of its socket.
    pub fn next(&mut self) -> Option<FromHelper> {
        let control = self.control.as_ref().unwrap();
        next_frame(control, &mut self.inbox, &mut self.descriptors)
            .map(|frame| FromHelper::decode(&frame).unwrap())
    }

    /// Greeted, and with one keeper.
    pub fn with_keeper() -> (Helper, Keeper) {
        let mut helper = Helper::start();
        assert!(matches!(helper.next(), Some(FromHelper::Hello(_))));
        let keeper = helper.keeper();
        (helper, keeper)
    }

    pub fn keeper(&mut self) -> Keeper {
        let mut bytes = Vec::new();
        ToHelper::Want(1).put(&mut bytes);
        self.say(&bytes);
        let Some(FromHelper::Keeper(pid)) = self.next() else {
            panic!("no keeper");
        };
        assert_eq!(self.descriptors.len(), 2);
        let socket = self.descriptors.remove(0);
        Keeper {
            process: Watched::new(pid),
            socket: Some(socket),
            commitment: Commitment::from_descriptor(self.descriptors.remove(0)),
            inbox: Decoder::default(),
        }
    }

    pub fn close(&mut self) {
        self.control = None;
    }

    /// The helper's own end, and with it the proof that it had no child left.
    pub fn assert_leaves(mut self) -> ExitStatus {
        self.close();
        self.process.assert_gone("the helper");
        self.child.wait().unwrap()
    }
}

/// The host's end of a keeper.
pub struct Keeper {
    pub process: Watched,
    socket: Option<OwnedFd>,
    pub commitment: Commitment,
    inbox: Decoder,
}

impl Keeper {
    /// Sends bytes as they are, and descriptors with the first of them.
    pub fn say(&self, bytes: &[u8], along: &[&OwnedFd]) {
        let along: Vec<_> = along.iter().map(AsFd::as_fd).collect();
        let sent = socket::send(self.socket.as_ref().unwrap().as_fd(), bytes, &along).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// The keeper's next message; None at the end of its socket.
    pub fn next(&mut self) -> Option<FromKeeper> {
        let socket = self.socket.as_ref().unwrap();
        next_frame(socket, &mut self.inbox, &mut Vec::new()).map(|frame| FromKeeper::decode(&frame).unwrap())
    }

    /// Everything up to the report of the end, which is the last of it.
    pub fn until_the_end(&mut self) -> (Vec<FromKeeper>, EndFacts) {
        let mut list = Vec::new();
        loop {
            match self.next() {
                Some(FromKeeper::Ended(facts)) => return (list, facts),
                Some(message) => list.push(message),
                None => panic!("the socket ended before the report, after {list:?}"),
            }
        }
    }

    pub fn close(&mut self) {
        self.socket = None;
    }

    /// The end of what the host says; what the keeper says can still be read.
    pub fn shut_writing(&self) {
        rustix::net::shutdown(self.socket.as_ref().unwrap(), rustix::net::Shutdown::Write).unwrap();
    }
}

fn next_frame(socket: &OwnedFd, inbox: &mut Decoder, descriptors: &mut Vec<OwnedFd>) -> Option<Frame> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(frame) = inbox.next_frame().unwrap() {
            return Some(frame);
        }
        let left = deadline.saturating_duration_since(Instant::now());
        assert!(readable(socket.as_fd(), left), "no message within {PATIENCE:?}");
        let mut bytes = [0; 4096];
        match socket::receive(socket.as_fd(), &mut bytes, descriptors) {
            Received::Bytes(count) => inbox.feed(&bytes[..count]),
            Received::Nothing => (),
            Received::End => return None,
            _ => panic!("descriptors were cut off"),
        }
    }
}

/// A frame of any kind and length, whether or not they fit.
pub fn frame(length: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    [length.to_le_bytes().as_slice(), &[kind], payload].concat()
}
