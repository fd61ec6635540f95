//! The gate: what keeps a program from being run, and that nothing of it runs then. The starter is examples/behind_guard.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::Timespec;

use crate::common::{Ground, HELPER, Watched, stat, until};
use crate::processes::{Lines, guards_of, works};

const NOT_STARTED: i32 = 2;
const NO_GUARD: i32 = 4;

/// A starter, its marked child behind the gate, and its guard.
pub struct Starter {
    child: Child,
    pub process: Watched,
    /// Standard input of the program.
    pub input: Option<ChildStdin>,
    pub said: Lines,
}

impl Starter {
    pub fn spawn(command: &mut Command) -> Starter {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Starter {
            process: Watched::new(child.id() as i32),
            input: child.stdin.take(),
            said: Lines::new(child.stdout.take().unwrap()),
            child,
        }
    }

    /// Of the first thread: the new process and the guard.
    pub fn children(&self) -> Vec<i32> {
        let pid = self.process.pid;
        let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        list.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }

    pub fn reap(&mut self) -> ExitStatus {
        self.process.assert_gone("the starter");
        self.child.wait().unwrap()
    }
}

/// `behind_guard <helper> <program>`, in the ground's folder and with its mark.
pub fn behind_guard(ground: &Ground, helper: impl AsRef<Path>, program: &[&str]) -> Command {
    behind_guard_with(&[], ground, helper, program)
}

fn behind_guard_with(
    options: &[&str],
    ground: &Ground,
    helper: impl AsRef<Path>,
    program: &[&str],
) -> Command {
    let starter = Path::new(HELPER).with_file_name("examples/behind_guard");
    assert!(starter.exists(), "cargo test builds it, unless a test is named in front of `--`");
    let mut command = ground.of(&[starter]);
    command.args(options).arg(helper.as_ref()).args(program).env("PATH", "/usr/bin:/bin");
    command
}

/// What the program does.
pub const PROGRAM: [&str; 3] = ["sh", "-c", "echo ran >> ran; read -r line"];

fn executable(ground: &Ground, name: &str, text: &str) -> PathBuf {
    let path = ground.folder.join(name);
    // Not by this process; see `everybodys_helper`.
    let write = "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\"";
    assert!(works(&["sh", "-c", write, path.to_str().unwrap(), text]));
    path
}

/// Exit status and all that was said; nothing ran, and nobody is left.
fn assert_nothing_runs(ground: &Ground, command: &mut Command) -> (Option<i32>, String) {
    let mut starter = Starter::spawn(command);
    let said = starter.said.rest().join("\n");
    let status = starter.reap();
    assert_eq!(ground.ran(), "", "{said}");
    assert_eq!(ground.marked(), [], "{said}");
    (status.code(), said)
}

#[test]
fn a_program_runs_behind_its_guard_and_what_it_leaves_is_ended() {
    let ground = Ground::new();
    let script = "echo ran >> ran; sleep 60 & read -r line; exit 7";
    let mut starter = Starter::spawn(&mut behind_guard(&ground, HELPER, &["sh", "-c", script]));
    let started = starter.said.next().unwrap();
    let [leader, guard] = started.strip_prefix("started ").map(numbers).unwrap()[..] else {
        panic!("{started}")
    };
    // The starter, the program, and what it leaves.
    until("all run", || ground.marked().len() == 3);
    assert_eq!(stat(leader)[2], leader.to_string());
    assert_eq!(stat(guard)[2], guard.to_string());
    assert_eq!(guards_of(leader), [guard]);
    starter.input.take().unwrap().write_all(b"\n").unwrap();
    assert_eq!(starter.said.rest(), ["ended Some(Code(7)) Some(Code(0))"]);
    assert!(starter.reap().success());
    assert_eq!(ground.ran(), "ran\n");
    assert_eq!(ground.marked(), []);
}

pub fn numbers(text: &str) -> Vec<i32> {
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

#[test]
fn c60_a_program_that_cannot_be_executed_is_not_started() {
    let ground = Ground::new();
    let script = executable(&ground, "script", "#!/no/such/interpreter\n");
    let plain = ground.folder.join("plain");
    fs::write(&plain, "echo ran >> ran\n").unwrap();
    let cases = [
        ("/no/such/program", "program: No such file or directory"),
        ("no-such-program", "program: No such file or directory"),
        ("", "program: No such file or directory"),
        ("/", "program: Permission denied"),
        (plain.to_str().unwrap(), "program: Permission denied"),
        (script.to_str().unwrap(), "interpreter: No such file or directory"),
    ];
    for (program, expected) in cases {
        let (code, said) = assert_nothing_runs(&ground, &mut behind_guard(&ground, HELPER, &[program]));
        assert_eq!(code, Some(NOT_STARTED), "{program:?}: {said}");
        assert!(said.starts_with(&format!("not started: {expected}")), "{said}");
    }
}

#[test]
fn without_a_guard_nothing_runs() {
    let ground = Ground::new();
    let text = ground.folder.join("text");
    fs::write(&text, "no program").unwrap();
    let script = |name: &str, line: &str| executable(&ground, name, &format!("#!/bin/sh\n{line}\n"));
    let cases: [(PathBuf, &str); 8] = [
        // It cannot be started.
        ("/no/such/helper".into(), "No such file or directory"),
        (text, "Permission denied"),
        (ground.folder.clone(), "Permission denied"),
        // It leaves without a word, with half a word, or with another one.
        ("/bin/true".into(), "unexpected end of file"),
        (script("half", "printf 'ready pi'"), "unexpected end of file"),
        (script("refuses", "echo refused dead"), "refused dead"),
        (script("other", "echo already pin"), "already pin"),
        // It says more than any word.
        (script("endless", "exec yes | tr -d '\\n'"), "y"),
    ];
    for (helper, expected) in &cases {
        let mut command = behind_guard(&ground, helper, &PROGRAM);
        let (code, said) = assert_nothing_runs(&ground, &mut command);
        assert_eq!(code, Some(NO_GUARD), "{helper:?}: {said}");
        assert!(said.starts_with("no guard: ") && said.contains(expected), "{helper:?}: {said}");
    }
}

/// Neither ready nor gone.
#[test]
fn a_guard_that_says_nothing_is_none_after_a_while() {
    let ground = Ground::new();
    let helper = executable(&ground, "hangs", "#!/bin/sh\nexec sleep 60\n");
    let (code, said) = assert_nothing_runs(&ground, &mut behind_guard(&ground, helper, &PROGRAM));
    assert_eq!((code, said.as_str()), (Some(NO_GUARD), "no guard: timed out"));
}

/// Each one's new process has a copy of the other one's gate.
#[test]
fn two_threads_whose_guards_fail_do_not_wait_for_each_other() {
    let ground = Ground::new();
    let mut starter = Starter::spawn(&mut behind_guard_with(&["--twice"], &ground, "/bin/true", &PROGRAM));
    let said = starter.said.rest();
    let left: Vec<Watched> = ground.marked().into_iter().map(Watched::new).collect();
    left.iter().for_each(Watched::kill);
    let status = starter.reap();
    assert_eq!(left.len(), 0, "{said:?}");
    assert!(status.success(), "{status}: {said:?}");
    assert!(said.iter().all(|line| line.starts_with("no guard: ")), "{said:?}");
    assert_eq!(ground.ran(), "");
}

/// The gate and the pipe for its failure would get their numbers.
#[test]
fn without_input_and_output_of_its_own_the_starter_knows_what_runs() {
    let ground = Ground::new();
    let mut command = behind_guard_with(&["--closed"], &ground, HELPER, &["/no/such/program"]);
    let (code, said) = assert_nothing_runs(&ground, &mut command);
    assert_eq!(code, Some(NOT_STARTED), "{said}");
    assert!(said.starts_with("not started: program: No such file or directory"), "{said}");

    let program = ["sh", "-c", "echo ran >> ran; echo said; exit 7"];
    let mut starter = Starter::spawn(&mut behind_guard_with(&["--closed"], &ground, HELPER, &program));
    let said = starter.said.rest();
    assert!(starter.reap().success());
    assert!(said.iter().any(|line| line == "said"), "{said:?}");
    assert!(said.iter().any(|line| line == "ended Some(Code(7)) Some(Code(0))"), "{said:?}");
    assert_eq!(ground.ran(), "ran\n");
}

/// As one does that the host forks at that moment, and that executes nothing.
#[test]
fn whoever_else_holds_the_new_processs_pipes_does_not_hold_up_the_starter_for_long() {
    let ground = Ground::new();
    // In place of a fork: the guard opens them, and has them held by processes that are not of the group.
    let hold = "for fd in /proc/$3/fd/*; do case ${fd##*/} in 0 | 1 | 2) continue ;; esac
        case $(readlink $fd) in pipe:*) (setsid sh -c 'exec > \"$1\"; echo $$ >> \"$0\"; exec sleep 20' \
            FOLDER/holders $fd </dev/null >/dev/null 2>&1 & ) ;; esac; done
        until [ $(wc -l < FOLDER/holders) -ge 2 ]; do :; done";
    let hold = hold.replace("FOLDER", &ground.folder.display().to_string());
    let text = format!("#!/bin/sh\n: > {0}/holders\n{hold}\nexec {HELPER} \"$@\"\n", ground.folder.display());
    let helper = executable(&ground, "holds", &text);
    let mut starter = Starter::spawn(&mut behind_guard(&ground, helper, &PROGRAM));
    // `next` does not wait for so long as they live.
    let started = starter.said.next().unwrap();
    let holders = fs::read_to_string(ground.folder.join("holders")).unwrap();
    let holders: Vec<Watched> = numbers(&holders).into_iter().map(Watched::new).collect();
    assert!(started.starts_with("started "), "{started}");
    for holder in &holders {
        let output = fs::read_link(format!("/proc/{}/fd/1", holder.pid)).unwrap();
        assert!(output.to_string_lossy().starts_with("pipe:"), "{output:?}");
        holder.kill();
    }
    starter.input = None;
    starter.said.rest();
    assert!(starter.reap().success());
    assert_eq!(ground.ran(), "ran\n");
}

// ---- the starter dies
/// How far a starter came that was killed.
struct Round {
    /// The child that waited behind the gate.
    leader: i32,
    /// It had opened the gate: written its byte, and perhaps the line that follows.
    opened: bool,
    ran: bool,
}

/// Kills the starter so long after the fork.
fn round(ground: &Ground, after: Duration) -> Round {
    // Should it run, its end is the guard's doing.
    let program = ["sh", "-c", "echo ran >> ran; exec sleep 60"];
    let mut starter = Starter::spawn(&mut behind_guard(ground, HELPER, &program));
    let leader = forked(&starter);
    // Of a zombie it can still be read, by others than root only through a descriptor from before.
    let mut file = File::open(format!("/proc/{}/io", starter.process.pid)).unwrap();
    pause(after);
    starter.process.kill();
    starter.process.assert_gone("the starter");
    let io = io::read_to_string(&mut file).unwrap();
    // It writes nothing before.
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: ")).unwrap();
    starter.reap();
    // The program has its standard output: there is nobody left who has.
    starter.said.rest();
    let ran = ground.ran() != "";
    if ran {
        fs::remove_file(ground.folder.join("ran")).unwrap();
    }
    Round { leader, opened: written != "0", ran }
}

pub fn forked(starter: &Starter) -> i32 {
    let deadline = Instant::now() + crate::common::PATIENCE;
    loop {
        if let [leader, ..] = starter.children()[..] {
            return leader;
        }
        assert!(Instant::now() < deadline, "no fork");
    }
}

fn pause(time: Duration) {
    let _ = rustix::event::poll(&mut [], Some(&Timespec::try_from(time).unwrap()));
}

/// From the fork until it is said that the program runs.
fn usual_time(ground: &Ground) -> Duration {
    let mut times: Vec<Duration> = (0..9)
        .map(|_| {
            // It waits for its standard input, and so can be looked at.
            let mut starter = Starter::spawn(&mut behind_guard(ground, HELPER, &["cat"]));
            forked(&starter);
            let since = Instant::now();
            assert!(starter.said.next().unwrap().starts_with("started "));
            let time = since.elapsed();
            starter.input = None;
            starter.said.rest();
            starter.reap();
            time
        })
        .collect();
    times.sort_unstable();
    times[times.len() / 2]
}

#[test]
fn a_starter_that_is_killed_before_it_opened_the_gate_has_run_nothing_in_a_thousand_rounds() {
    const ROUNDS: u32 = 1_000;
    let ground = Ground::new();
    let mut span = usual_time(&ground);
    let (mut shut, mut ran, mut leaders) = (0, 0, Vec::new());
    for number in 0..ROUNDS {
        // Spread over the span, and in no order: a step of the golden ratio each time.
        let after = span.mul_f64(f64::from(number) * 0.618_034 % 1.0);
        let round = round(&ground, after);
        assert!(
            round.opened || !round.ran,
            "round {number}, {after:?} of {span:?}: it ran, and the gate was shut"
        );
        // The span follows the load, so that one in five comes too late: the whole way is covered.
        span = span.mul_f64(if round.opened { 0.98 } else { 1.005 });
        shut += u32::from(!round.opened);
        ran += u32::from(round.ran);
        leaders.push(round.leader);
    }
    assert!(shut > ROUNDS / 2, "killed before the gate was opened: {shut} of {ROUNDS}, ran: {ran}");
    until("no guard is left", || leaders.iter().all(|&leader| guards_of(leader).is_empty()));
    assert_eq!(ground.marked(), []);
    println!("killed before the gate was opened: {shut} of {ROUNDS}; ran: {ran}");
}
