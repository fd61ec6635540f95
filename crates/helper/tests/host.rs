//! The host's side against keepers that break off, or say the wrong thing or in the wrong order. The helper is this test
//! program itself, started again by a script ([`fake_helper`]). Whatever it says: a call has one end, which comes last,
//! a spec is sent a second time only when the first provably came to nothing, and what cannot be known is called unclear.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use holdfast_core::channel::commitment::Commitment;
use holdfast_core::host::{EnvId, Event, Host, Place, Request};
use holdfast_core::sys;
use holdfast_wire::{
    Background, By, Decoder, EndFacts, Exit, FromHelper, FromKeeper, Lifetime, Mechanism, Outcome, Reason,
    Settle, Step, ToKeeper, Usage, VERSION,
};
use rustix::event::{PollFd, PollFlags, Timespec};

/// Beyond the host's own patience with a keeper that is lost.
const PATIENCE: Duration = Duration::from_secs(20);
const CODE: i32 = 7;

// ---- the fake
/// What a keeper does with its first spec, in order.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Act {
    Commit,
    Pid,
    Say(Word),
    /// Bytes that are no message.
    Bytes(&'static [u8]),
    /// The first half of the report of the end.
    HalfAnEnd,
    /// The socket ends.
    Close,
    /// The helper reports the end of this keeper's call.
    Report,
    /// The helper's socket ends.
    HelperLeaves,
}
use Act::*;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Word {
    Started,
    Failed,
    Exited,
    Taken,
    Stopped,
    Ended,
    CutOff,
}

const OVERSIZED: Act = Bytes(&[0xff, 0xff, 0xff, 0xff, 18]);
const NO_LENGTH: Act = Bytes(&[0, 0, 0, 0, 18]);
const UNKNOWN: Act = Bytes(&[1, 0, 0, 0, 200]);
/// `started` with a byte too many.
const TOO_LONG: Act = Bytes(&[2, 0, 0, 0, 18, 0]);
/// `exited` that ends too early.
const TOO_SHORT: Act = Bytes(&[2, 0, 0, 0, 20, 0]);
/// A message that only a host says.
const WRONG_WAY: Act = Bytes(&[5, 0, 0, 0, 4, 0, 0, 0, 0]);

const GOOD: &[Act] = &[Commit, Pid, Say(Word::Started), Say(Word::Exited), Say(Word::Ended)];

/// By name: what the first keeper does, and what every later one does.
const PLAYS: &[(&str, &[Act], &[Act])] = &[
    ("good", GOOD, GOOD),
    ("close", &[Close], GOOD),
    ("close-all", &[Close], &[Close]),
    ("commit-close", &[Commit, Close, Report], GOOD),
    ("commit-close-alone", &[Commit, HelperLeaves, Close], GOOD),
    ("pid-close", &[Commit, Pid, Close, Report], GOOD),
    ("started-close", &[Commit, Pid, Say(Word::Started), Close, Report], GOOD),
    ("report-first", &[Commit, Pid, Say(Word::Started), Report, Close], GOOD),
    ("exited-close", &[Commit, Pid, Say(Word::Started), Say(Word::Exited), Close, Report], GOOD),
    ("half-an-end", &[Commit, Pid, Say(Word::Started), Say(Word::Exited), HalfAnEnd, Close, Report], GOOD),
    ("started-close-alone", &[Commit, Pid, Say(Word::Started), HelperLeaves, Close], GOOD),
    ("oversized", &[Commit, Say(Word::Started), OVERSIZED, Report], GOOD),
    ("no-length", &[Commit, Say(Word::Started), NO_LENGTH, Report], GOOD),
    ("unknown", &[Commit, Say(Word::Started), UNKNOWN, Report], GOOD),
    ("too-long", &[Commit, TOO_LONG, Report], GOOD),
    ("too-short", &[Commit, Say(Word::Started), TOO_SHORT, Report], GOOD),
    ("wrong-way", &[Commit, Say(Word::Started), WRONG_WAY, Report], GOOD),
    ("ended-only", &[Commit, Pid, Say(Word::Ended)], GOOD),
    ("exited-first", &[Commit, Pid, Say(Word::Exited), Say(Word::Started), Say(Word::Ended)], GOOD),
    (
        "ended-twice",
        &[Commit, Pid, Say(Word::Started), Say(Word::Exited), Say(Word::Ended), Say(Word::Ended)],
        GOOD,
    ),
    (
        "on-and-on",
        &[
            Commit,
            Pid,
            Say(Word::Taken),
            Say(Word::Stopped),
            Say(Word::Started),
            Say(Word::Started),
            Say(Word::Failed),
            Say(Word::Exited),
            Say(Word::Exited),
            Say(Word::Ended),
            Say(Word::Started),
        ],
        GOOD,
    ),
    ("cut-off", &[Commit, Pid, Say(Word::Started), Say(Word::Exited), Say(Word::CutOff)], GOOD),
    ("failed", &[Commit, Pid, Say(Word::Failed), Say(Word::Ended)], GOOD),
];

fn facts(by: By, reason: Reason) -> EndFacts {
    EndFacts {
        outcome: Outcome::Ended,
        mechanism: Mechanism::Subreaper,
        by,
        reason,
        proof_time: 1,
        usage: Usage::default(),
        leftover_count: 0,
        leftovers: Vec::new(),
        survivors: Vec::new(),
        settle: Settle::Quiet,
    }
}

impl Word {
    fn message(self) -> FromKeeper {
        match self {
            Word::Started => FromKeeper::Started,
            Word::Failed => FromKeeper::Failed { step: Step::Program, errno: 2 },
            Word::Exited => FromKeeper::Exited { exit: Exit::Code(CODE), usage: Usage::default() },
            Word::Taken => FromKeeper::Taken(Mechanism::Subreaper),
            Word::Stopped => FromKeeper::Stopped,
            Word::Ended => FromKeeper::Ended(facts(By::Keeper, Reason::Exit)),
            Word::CutOff => {
                FromKeeper::Ended(EndFacts { settle: Settle::Writing, ..facts(By::Keeper, Reason::Exit) })
            }
        }
    }
}

struct FakeKeeper {
    pid: i32,
    socket: Option<OwnedFd>,
    commitment: Commitment,
    inbox: Decoder,
    descriptors: Vec<OwnedFd>,
}

/// Not a test: what a test starts as its helper, with the socket on 3. Without the variable it does nothing.
#[test]
fn fake_helper() {
    let Ok(name) = std::env::var("FAKE_PLAY") else { return };
    let log = std::env::var("FAKE_LOG").unwrap();
    let (_, first, later) = PLAYS.iter().find(|(known, ..)| *known == name).unwrap();
    let control = sys::inherited_control().unwrap();
    say(&control, &FromHelper::Hello { version: VERSION.into(), mechanism: Mechanism::Subreaper }, &[]);
    let mut helper = FakeHelper { control: Some(control), keepers: Vec::new(), log };
    // The pool takes the last one first; so it does not matter which is which before the spec arrives.
    for serial in 0..3 {
        helper.add_keeper(1_000_000 + serial);
    }
    let mut plays = [*first].into_iter().chain(std::iter::repeat(*later));
    while let Some(index) = helper.next_spec() {
        helper.play(index, plays.next().unwrap());
    }
    std::process::exit(0);
}

struct FakeHelper {
    control: Option<OwnedFd>,
    keepers: Vec<FakeKeeper>,
    log: String,
}

/// How many bytes came, 0 at the end; None: none yet.
fn count_of(received: io::Result<sys::Message>) -> Option<usize> {
    match received {
        Ok(message) => Some(message.count),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        Err(_) => Some(0),
    }
}

fn say(control: &OwnedFd, message: &FromHelper, along: &[&OwnedFd]) {
    let mut bytes = Vec::new();
    message.put(&mut bytes);
    let along: Vec<_> = along.iter().map(|fd| fd.as_fd()).collect();
    let _ = sys::send(control.as_fd(), &bytes, &along);
}

impl FakeHelper {
    fn add_keeper(&mut self, pid: i32) {
        let (host_end, socket) = sys::socket_pair().unwrap();
        let commitment = Commitment::new().unwrap();
        let along = commitment.share().unwrap();
        say(self.control.as_ref().unwrap(), &FromHelper::Keeper(pid), &[&host_end, &along]);
        self.keepers.push(FakeKeeper {
            pid,
            socket: Some(socket),
            commitment,
            inbox: Decoder::default(),
            descriptors: Vec::new(),
        });
    }

    /// The keeper that was sent a whole spec; None when the host is gone.
    fn next_spec(&mut self) -> Option<usize> {
        loop {
            let mut ready = None;
            {
                let mut sources = Vec::new();
                let mut owners = Vec::new();
                if let Some(control) = &self.control {
                    sources.push(PollFd::new(control, PollFlags::IN));
                    owners.push(usize::MAX);
                }
                for (index, keeper) in self.keepers.iter().enumerate() {
                    if let Some(socket) = &keeper.socket {
                        sources.push(PollFd::new(socket, PollFlags::IN));
                        owners.push(index);
                    }
                }
                if sources.is_empty() {
                    return None;
                }
                let minute = Timespec { tv_sec: 60, tv_nsec: 0 };
                rustix::event::poll(&mut sources, Some(&minute)).unwrap();
                for (source, owner) in sources.iter().zip(owners) {
                    if !source.revents().is_empty() {
                        ready = Some(owner);
                    }
                }
            }
            let mut bytes = [0; 65_536];
            match ready? {
                usize::MAX => {
                    // It asks for keepers, and has them already.
                    let control = self.control.as_ref().unwrap();
                    if count_of(sys::receive(control.as_fd(), &mut bytes, &mut Vec::new())) == Some(0) {
                        self.control = None;
                    }
                }
                index => {
                    let keeper = &mut self.keepers[index];
                    let socket = keeper.socket.as_ref().unwrap();
                    match count_of(sys::receive(socket.as_fd(), &mut bytes, &mut keeper.descriptors)) {
                        Some(count @ 1..) => keeper.inbox.feed(&bytes[..count]),
                        _ => keeper.socket = None,
                    }
                    if let Some(frame) = keeper.inbox.next_frame().unwrap()
                        && let ToKeeper::Spec(spec) = ToKeeper::decode(frame).unwrap()
                    {
                        let line = format!(
                            "{} {}/{} {} {} {}\n",
                            spec.file().to_str().unwrap(),
                            keeper.descriptors.len(),
                            spec.descriptors,
                            spec.lifetime.background_grace,
                            spec.lifetime.background_settle,
                            spec.detached
                        );
                        keeper.descriptors.clear();
                        let mut log =
                            fs::OpenOptions::new().create(true).append(true).open(&self.log).unwrap();
                        log.write_all(line.as_bytes()).unwrap();
                        return Some(index);
                    }
                }
            }
        }
    }

    fn play(&mut self, index: usize, acts: &[Act]) {
        for act in acts {
            let keeper = &mut self.keepers[index];
            let mut bytes = Vec::new();
            match act {
                Commit => keeper.commitment.commit().unwrap(),
                Pid => tell_pid(&keeper.commitment, keeper.pid),
                Say(word) => word.message().put(&mut bytes),
                Bytes(some) => bytes.extend_from_slice(some),
                HalfAnEnd => {
                    Word::Ended.message().put(&mut bytes);
                    bytes.truncate(bytes.len() / 2);
                }
                Close => keeper.socket = None,
                Report => {
                    let facts = facts(By::Helper, Reason::KeeperGone);
                    if let Some(control) = &self.control {
                        say(control, &FromHelper::KeeperEnded { keeper: keeper.pid, facts }, &[]);
                    }
                }
                HelperLeaves => self.control = None,
            }
            if let Some(socket) = self.keepers[index].socket.as_ref().filter(|_| !bytes.is_empty()) {
                let _ = sys::send(socket.as_fd(), &bytes, &[]);
            }
        }
    }
}

// ---- the host
struct Stage {
    folder: PathBuf,
    host: &'static Host,
    env: EnvId,
    words: Receiver<()>,
    /// There is one host in a process, with one helper at a time.
    _alone: MutexGuard<'static, ()>,
}

impl Stage {
    fn new(play: &str) -> Stage {
        static ALONE: Mutex<()> = Mutex::new(());
        static EXE: OnceLock<PathBuf> = OnceLock::new();
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = std::env::temp_dir().join(format!("holdfast-host-{}-{play}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let exe = EXE.get_or_init(|| std::env::current_exe().unwrap());
        let script = format!(
            "#!/bin/sh\nexport FAKE_PLAY={play} FAKE_LOG='{}'\nexec '{}' --exact fake_helper --nocapture\n",
            folder.join("log").display(),
            exe.display()
        );
        let path = folder.join("holdfast-helper");
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let host = Host::get().unwrap();
        host.reset_helper();
        let (sender, words) = channel();
        let sender = Mutex::new(sender);
        let env = host.attach(Box::new(move || {
            let _ = sender.lock().unwrap_or_else(PoisonError::into_inner).send(());
        }));
        Stage { folder, host, env, words, _alone: alone }
    }

    fn helper(&self) -> PathBuf {
        self.folder.join("holdfast-helper")
    }

    /// One call, to its end.
    fn call(&self) -> Vec<Event> {
        let request = Request {
            helper: self.helper(),
            file: "/bin/never",
            args: "never",
            env: "A=b",
            cwd: "",
            stdio: &[Place::Ignore, Place::Pipe, Place::Pipe],
            lifetime: Lifetime {
                timeout: 0,
                kill_signal: 15,
                grace: 0,
                background: Background::End,
                background_grace: 3,
                background_settle: 4,
            },
            uid: None,
            gid: None,
            detached: true,
            best_effort: false,
        };
        let begun = self.host.start(self.env, &request);
        let mut events = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        while !events.iter().any(|event| matches!(event, Event::Ended(_))) {
            events.extend(self.host.receive(begun.call));
            if events.iter().any(|event| matches!(event, Event::Ended(_))) {
                break;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(self.words.recv_timeout(left).is_ok(), "no end within {PATIENCE:?}, after {events:?}");
            self.host.take(self.env);
        }
        for pipe in begun.pipes.into_iter().flatten() {
            self.host.close(pipe);
        }
        assert!(matches!(events.last(), Some(Event::Ended(_))), "{events:?}");
        assert_eq!(events.iter().filter(|event| matches!(event, Event::Ended(_))).count(), 1);
        assert!(self.host.receive(begun.call).is_empty());
        events
    }

    /// A line for each whole spec that a keeper was sent: the program, descriptors there and wanted, and some options.
    fn log(&self) -> Vec<String> {
        read_lines(&self.folder.join("log"))
    }
}

fn read_lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.host.reset_helper();
        self.host.detach(self.env);
        let _ = fs::remove_dir_all(&self.folder);
    }
}

const SENT: &str = "/bin/never 3/3 3 4 true";

fn end_of(events: &[Event]) -> &EndFacts {
    match events.last() {
        Some(Event::Ended(facts)) => facts,
        other => panic!("not an end: {other:?}"),
    }
}

fn assert_end(events: &[Event], outcome: Outcome, by: By, reason: Reason) {
    let end = end_of(events);
    assert_eq!((end.outcome, end.by, end.reason), (outcome, by, reason), "{events:?}");
}

fn exits(events: &[Event]) -> Vec<Option<Exit>> {
    let exit = |event: &Event| match event {
        Event::Exited(exit, _) => Some(*exit),
        _ => None,
    };
    events.iter().filter_map(exit).collect()
}

/// `Some(unclear)` for a call that was refused.
fn refusal(events: &[Event]) -> Option<bool> {
    events.iter().find_map(|event| match event {
        Event::Refused { unclear, .. } => Some(*unclear),
        _ => None,
    })
}

fn refusal_text(events: &[Event]) -> &str {
    let text = events.iter().find_map(|event| match event {
        Event::Refused { tried, .. } => Some(tried.as_str()),
        _ => None,
    });
    text.unwrap()
}

#[test]
fn a_good_keeper_is_believed() {
    let stage = Stage::new("good");
    for calls in 1..=3 {
        let events = stage.call();
        assert!(matches!(events.first(), Some(Event::Started(Some(_)))));
        assert_eq!(exits(&events), [Some(Exit::Code(CODE))]);
        assert_end(&events, Outcome::Ended, By::Keeper, Reason::Exit);
        assert_eq!(stage.log(), vec![SENT; calls]);
    }
}

#[test]
fn output_that_was_cut_off_is_told() {
    let stage = Stage::new("cut-off");
    assert_eq!(end_of(&stage.call()).settle, Settle::Writing);
    assert_eq!(end_of(&stage.call()).settle, Settle::Quiet);
}

#[test]
fn a_keeper_that_closes_without_a_word_is_no_start_and_the_call_goes_to_another() {
    let stage = Stage::new("close");
    let events = stage.call();
    assert_eq!(refusal(&events), None, "{events:?}");
    assert_eq!(exits(&events), [Some(Exit::Code(CODE))]);
    assert_end(&events, Outcome::Ended, By::Keeper, Reason::Exit);
    // With all its descriptors, both times.
    assert_eq!(stage.log(), [SENT, SENT]);
}

#[test]
fn two_keepers_that_close_without_a_word_are_a_refusal() {
    let stage = Stage::new("close-all");
    let events = stage.call();
    assert_eq!(refusal(&events), Some(false), "{events:?}");
    assert_end(&events, Outcome::Ended, By::Host, Reason::NotStarted);
    assert_eq!(stage.log(), [SENT, SENT]);
    assert_ne!(refusal_text(&events), "", "the error has to say what was tried");
}

#[test]
fn a_keeper_that_closes_after_its_commitment_is_unclear_and_never_repeated() {
    for play in ["commit-close", "pid-close"] {
        let stage = Stage::new(play);
        let events = stage.call();
        assert_eq!(refusal(&events), Some(true), "{play}: {events:?}");
        assert_eq!(exits(&events), []);
        assert_end(&events, Outcome::Ended, By::Helper, Reason::KeeperGone);
        assert_eq!(stage.log(), [SENT]);
    }
}

#[test]
fn without_a_helper_to_report_it_the_end_of_a_lost_keepers_call_is_unconfirmed() {
    let stage = Stage::new("commit-close-alone");
    let events = stage.call();
    assert_eq!(refusal(&events), Some(true), "{events:?}");
    assert_end(&events, Outcome::Unconfirmed, By::Host, Reason::KeeperGone);
    assert_eq!(stage.log(), [SENT]);
    drop(stage);

    let stage = Stage::new("started-close-alone");
    let events = stage.call();
    assert_eq!(refusal(&events), None);
    assert_eq!(exits(&events), [None]);
    assert_end(&events, Outcome::Unconfirmed, By::Host, Reason::KeeperGone);
    assert_eq!(stage.log(), [SENT]);
}

#[test]
fn a_keeper_that_is_lost_while_the_command_runs_leaves_no_status_and_the_helpers_report() {
    for play in ["started-close", "report-first"] {
        let stage = Stage::new(play);
        let events = stage.call();
        assert!(matches!(events.first(), Some(Event::Started(_))), "{play}");
        assert_eq!(refusal(&events), None);
        assert_eq!(exits(&events), [None]);
        assert_end(&events, Outcome::Ended, By::Helper, Reason::KeeperGone);
        assert_eq!(stage.log(), [SENT]);
    }
}

#[test]
fn a_keeper_that_is_lost_after_the_exit_leaves_the_status_that_it_told() {
    for play in ["exited-close", "half-an-end"] {
        let stage = Stage::new(play);
        let events = stage.call();
        assert_eq!(exits(&events), [Some(Exit::Code(CODE))], "{play}");
        assert_end(&events, Outcome::Ended, By::Helper, Reason::KeeperGone);
        assert_eq!(stage.log(), [SENT]);
    }
}

#[test]
fn a_keeper_that_says_what_is_no_message_is_lost() {
    for play in ["oversized", "no-length", "unknown", "too-short", "wrong-way"] {
        let stage = Stage::new(play);
        let events = stage.call();
        assert!(matches!(events.first(), Some(Event::Started(_))), "{play}");
        assert_eq!(exits(&events), [None], "{play}");
        assert_end(&events, Outcome::Ended, By::Helper, Reason::KeeperGone);
        assert_eq!(stage.log(), [SENT]);
    }
    let stage = Stage::new("too-long");
    let events = stage.call();
    assert_eq!(refusal(&events), Some(true));
    assert_end(&events, Outcome::Ended, By::Helper, Reason::KeeperGone);
    assert_eq!(stage.log(), [SENT]);
}

#[test]
fn words_out_of_order_still_make_one_call_with_one_end() {
    for play in ["ended-only", "exited-first", "ended-twice", "on-and-on", "failed"] {
        let stage = Stage::new(play);
        let events = stage.call();
        assert_end(&events, Outcome::Ended, By::Keeper, Reason::Exit);
        assert_eq!(stage.log(), [SENT], "{play}");
        // And the next one is none the worse.
        let events = stage.call();
        assert_eq!(exits(&events), [Some(Exit::Code(CODE))], "{play}");
        assert_eq!(end_of(&events).outcome, Outcome::Ended);
        assert_eq!(stage.log(), [SENT, SENT], "{play}");
    }
}

/// As a new process does, by the descriptor alone.
fn tell_pid(commitment: &Commitment, pid: i32) {
    rustix::io::write(commitment, &u64::try_from(pid).unwrap().to_ne_bytes()).unwrap();
}
