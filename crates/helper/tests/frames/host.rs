//! A host made of raw frames: it starts the real executable, and says to helper and keepers whatever a test wants.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use holdfast_core::channel::commitment::Commitment;
use holdfast_core::sys;
use holdfast_wire::{
    Background, Decoder, EndFacts, Frame, FromHelper, FromKeeper, Lifetime, NO_DESCRIPTOR, Spec, ToHelper,
    ToKeeper,
};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::common::{Ground, HELPER, PATIENCE, Watched, readable};

impl Ground {
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
            lifetime: Lifetime {
                timeout: 0,
                kill_signal: 15,
                grace: 0,
                background: Background::End,
                background_grace: 0,
                background_settle: 0,
            },
            same_group: false,
            detached: false,
            cwd_is_open: false,
            program: NO_DESCRIPTOR,
        };
        change(&mut spec);
        let mut bytes = Vec::new();
        ToKeeper::put_spec(&mut bytes, &spec).unwrap();
        bytes
    }

    pub fn directory(&self) -> OwnedFd {
        fs::File::open(&self.folder).unwrap().into()
    }
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
    start_below(&[], control)
}

fn start_below(command: &[&str], control: OwnedFd) -> Child {
    Command::new("/bin/sh")
        .arg("-c")
        .arg("exec 3<&0 </dev/null; exec \"$@\" __spawn-helper")
        .arg("sh")
        .args(command)
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
        Helper::start_on(sys::control_pair().unwrap())
    }

    pub fn start_on((ours, theirs): (OwnedFd, OwnedFd)) -> Helper {
        Helper::of(start_with(theirs), ours)
    }

    /// By a command that executes the helper, or waits for it.
    pub fn start_below(command: &[&str]) -> Helper {
        let (ours, theirs) = sys::control_pair().unwrap();
        Helper::of(start_below(command, theirs), ours)
    }

    fn of(child: Child, ours: OwnedFd) -> Helper {
        let process = Watched::new(child.id() as i32);
        Helper { child, process, control: Some(ours), inbox: Decoder::default(), descriptors: Vec::new() }
    }

    pub fn say(&self, bytes: &[u8]) {
        let sent = sys::send(self.control.as_ref().unwrap().as_fd(), bytes, &[]).unwrap();
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
        assert!(matches!(helper.next(), Some(FromHelper::Hello { .. })));
        let keeper = helper.keeper();
        (helper, keeper)
    }

    pub fn keeper(&mut self) -> Keeper {
        self.keeper_by(Watched::new)
    }

    /// One whose pid is another namespace's: in its place the helper is watched.
    pub fn foreign_keeper(&mut self) -> Keeper {
        let helper = self.process.pid;
        self.keeper_by(|_| Watched::new(helper))
    }

    fn keeper_by(&mut self, watch: impl FnOnce(i32) -> Watched) -> Keeper {
        let mut bytes = Vec::new();
        ToHelper::Want(1).put(&mut bytes);
        self.say(&bytes);
        let Some(FromHelper::Keeper(pid)) = self.next() else {
            panic!("no keeper");
        };
        assert_eq!(self.descriptors.len(), 2);
        let socket = self.descriptors.remove(0);
        Keeper {
            process: watch(pid),
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
        let sent = sys::send(self.socket.as_ref().unwrap().as_fd(), bytes, &along).unwrap();
        assert_eq!(sent, bytes.len());
    }

    /// The same by a child of ours, which has ended when this returns.
    pub fn say_by_another(&self, bytes: &[u8]) {
        let (read, write) = std::io::pipe().unwrap();
        let socket = self.socket.as_ref().unwrap().try_clone().unwrap();
        let mut child = Command::new("/bin/cat").stdin(read).stdout(socket).spawn().unwrap();
        { write }.write_all(bytes).unwrap();
        assert!(child.wait().unwrap().success());
    }

    /// The same for more than the socket takes at once. Nothing is read meanwhile.
    pub fn say_at_length(&self, mut bytes: &[u8]) {
        let socket = self.socket.as_ref().unwrap();
        while !bytes.is_empty() {
            let timeout = Timespec::try_from(PATIENCE).unwrap();
            let mut room = [PollFd::new(socket, PollFlags::OUT)];
            assert_eq!(rustix::event::poll(&mut room, Some(&timeout)), Ok(1), "the keeper reads no more");
            match sys::send(socket.as_fd(), bytes, &[]) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
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
        match sys::receive(socket.as_fd(), &mut bytes, descriptors) {
            Ok(message) if message.truncated => panic!("descriptors were cut off"),
            Ok(message) if message.count > 0 => inbox.feed(&bytes[..message.count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Ok(_) | Err(_) => return None,
        }
    }
}

/// A frame of any kind and length, whether or not they fit.
pub fn frame(length: u32, kind: u8, payload: &[u8]) -> Vec<u8> {
    [length.to_le_bytes().as_slice(), &[kind], payload].concat()
}
