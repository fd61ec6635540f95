//! A keeper whose host says the wrong thing, in the wrong order, or not to the end. Nothing of a spec that did not
//! arrive whole may run, and nothing that ran may be left: shown by a marker file, the process table, and the helper,
//! which leaves only after its last child.

use std::process::Command;

use crate::common::{Ground, children_of, until};
use crate::host::{Helper, Keeper, frame};
use holdfast_core::channel::commitment::StartProgress;
use holdfast_core::sys;
use holdfast_wire::{
    By, Exit, FromHelper, FromKeeper, MAX_MESSAGE, MAX_SPEC, Outcome, Reason, Step, ToHelper, ToKeeper,
};
use rustix::pipe::PipeFlags;

const SPEC: u8 = 1;
const SIGNAL: u8 = 2;
const EBADF: i32 = 9;
/// Bounded, should the test die. Three processes, none of which waits for another: who is killed in wait4(2) may still
/// take its dead child with it, and that one is then not counted.
const LONG: &str = "echo ran >> ran; sleep 60 & setsid sleep 60 & exec sleep 60";

/// The keeper leaves, nothing was started, nothing is left.
fn assert_nothing_ran(ground: &Ground, helper: Helper, keeper: Keeper) {
    keeper.process.assert_gone("the keeper");
    assert_eq!(keeper.commitment.take(), StartProgress::default());
    until("the helper has no child", || children_of(helper.process.pid).is_empty());
    drop(keeper);
    assert!(helper.assert_leaves().success());
    assert_eq!(ground.ran(), "");
    assert_eq!(ground.marked(), []);
}

/// The keeper serves a call as if nothing had been.
fn assert_serves(ground: &Ground, keeper: &mut Keeper) {
    keeper.say(&ground.spec("echo served >> ran; exit 7"), &[&ground.directory()]);
    let (messages, facts) = keeper.until_the_end();
    assert_eq!(messages.first(), Some(&FromKeeper::Started));
    assert!(matches!(messages.get(1), Some(FromKeeper::Exited { exit: Exit::Code(7), .. })), "{messages:?}");
    assert_eq!((facts.outcome, facts.by, facts.reason), (Outcome::Ended, By::Keeper, Reason::Exit));
    assert!(ground.ran().ends_with("served\n"));
    let told = keeper.commitment.take();
    assert!(told.committed && told.pid.is_some());
}

#[test]
fn a_whole_spec_runs_and_leaves_nothing() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    assert_serves(&ground, &mut keeper);
    assert_serves(&ground, &mut keeper);
    assert_eq!(ground.ran(), "served\nserved\n");
    keeper.close();
    keeper.process.assert_gone("the keeper");
    assert!(helper.assert_leaves().success());
    assert_eq!(ground.marked(), []);
}

#[test]
fn a_spec_byte_by_byte_runs_once() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    let bytes = ground.spec("echo ran >> ran");
    let directory = ground.directory();
    for (at, byte) in bytes.iter().enumerate() {
        let along: &[_] = if at == 0 { &[&directory] } else { &[] };
        keeper.say(&[*byte], along);
    }
    let (_, facts) = keeper.until_the_end();
    assert_eq!(facts.outcome, Outcome::Ended);
    assert_eq!(ground.ran(), "ran\n");
    keeper.close();
    assert!(helper.assert_leaves().success());
}

#[test]
fn a_spec_cut_at_any_byte_and_closed_runs_nothing() {
    let ground = Ground::new();
    let mut helper = Helper::start();
    helper.next();
    let bytes = ground.spec(LONG);
    let directory = ground.directory();
    // A keeper each, a few at a time.
    let cuts: Vec<usize> = (1..bytes.len()).collect();
    for some in cuts.chunks(8) {
        let mut keepers: Vec<Keeper> = some.iter().map(|_| helper.keeper()).collect();
        for (keeper, &cut) in keepers.iter_mut().zip(some) {
            keeper.say(&bytes[..cut], &[&directory]);
            keeper.close();
        }
        for (keeper, cut) in keepers.iter().zip(some) {
            keeper.process.assert_gone(&format!("cut at {cut}"));
            assert_eq!(keeper.commitment.take(), StartProgress::default(), "cut at {cut}");
        }
    }
    until("the helper has no child", || children_of(helper.process.pid).is_empty());
    assert!(helper.assert_leaves().success());
    assert_eq!(ground.ran(), "");
    assert_eq!(ground.marked(), []);
}

#[test]
fn an_oversized_frame_ends_the_keeper() {
    let sizes = [
        (MAX_SPEC as u32 + 2, SPEC),
        (u32::MAX, SPEC),
        (MAX_MESSAGE as u32 + 2, SIGNAL),
        (u32::MAX, 0xff),
        (0, SPEC),
    ];
    for (length, kind) in sizes {
        let ground = Ground::new();
        let (helper, keeper) = Helper::with_keeper();
        // A good spec right behind it must not be found.
        let bytes = [frame(length, kind, &[]), ground.spec(LONG)].concat();
        keeper.say(&bytes, &[&ground.directory()]);
        assert_nothing_ran(&ground, helper, keeper);
    }
}

#[test]
fn garbage_ends_the_keeper() {
    let spec_of = |fill: u8| frame(65, SPEC, &[fill; 64]);
    let mut want = Vec::new();
    ToHelper::Want(1).put(&mut want);
    let mut started = Vec::new();
    FromKeeper::Started.put(&mut started);
    let wrong = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 4096],
        vec![0; 4096],
        spec_of(0),
        spec_of(1),
        spec_of(0xff),
        // A kind that nobody has, a message for somebody else, one with a byte too many.
        frame(1, 200, &[]),
        want,
        started,
        frame(7, SIGNAL, &[15, 0, 0, 0, 0, 0]),
    ];
    for bytes in wrong {
        let ground = Ground::new();
        let (helper, keeper) = Helper::with_keeper();
        keeper.say(&[bytes, ground.spec(LONG)].concat(), &[&ground.directory()]);
        assert_nothing_ran(&ground, helper, keeper);
    }
}

#[test]
fn a_spec_without_its_descriptors_is_refused_and_the_keeper_stays() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    keeper.say(&ground.spec(LONG), &[]);
    let (messages, facts) = keeper.until_the_end();
    assert_eq!(messages, [FromKeeper::Failed { step: Step::Stdio, errno: EBADF }]);
    assert_eq!((facts.outcome, facts.reason), (Outcome::Ended, Reason::NotStarted));
    assert_eq!(keeper.commitment.take(), StartProgress::default());
    assert_eq!(ground.ran(), "");

    // One too few of three: the two that came must not be taken for the next call's.
    let three = ground.spec_with(LONG, |spec| {
        spec.descriptors = 3;
        spec.places = &[1, 2, 2];
    });
    keeper.say(&three, &[&ground.directory(), &ground.directory()]);
    let (_, facts) = keeper.until_the_end();
    assert_eq!(facts.reason, Reason::NotStarted);
    assert_eq!(ground.ran(), "");
    assert_serves(&ground, &mut keeper);

    keeper.close();
    assert!(helper.assert_leaves().success());
    assert_eq!(ground.marked(), []);
}

#[test]
fn a_second_spec_is_a_lost_host() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    let (first, second) = (ground.spec(LONG), ground.spec("echo second >> ran"));
    let directory = ground.directory();
    keeper.say(&[first, second].concat(), &[&directory, &directory]);
    let (_, facts) = keeper.until_the_end();
    assert_eq!((facts.outcome, facts.reason), (Outcome::Ended, Reason::HostGone));
    assert_eq!(ground.marked(), []);
    keeper.process.assert_gone("the keeper");
    assert!(helper.assert_leaves().success());
    assert!(!ground.ran().contains("second"));
}

#[test]
fn a_second_spec_while_the_first_runs_is_a_lost_host() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    let directory = ground.directory();
    keeper.say(&ground.spec(LONG), &[&directory]);
    until("the first runs", || ground.marked().len() == 3);
    keeper.say(&ground.spec("echo second >> ran"), &[&directory]);
    let (_, facts) = keeper.until_the_end();
    assert_eq!((facts.outcome, facts.reason), (Outcome::Ended, Reason::HostGone));
    assert_eq!(facts.leftover_count, 2);
    assert_eq!(ground.marked(), []);
    assert_eq!(ground.ran(), "ran\n");
    keeper.process.assert_gone("the keeper");
    assert!(helper.assert_leaves().success());
}

/// A process with our ids that has a copy of our end, as a child has after a fork without exec.
#[test]
fn what_another_process_sends_starts_nothing() {
    let ground = Ground::new();
    let (helper, keeper) = Helper::with_keeper();
    keeper.say_by_another(&ground.spec(LONG));
    assert_nothing_ran(&ground, helper, keeper);

    // Nor what it finishes, and nothing that comes after it.
    let (helper, keeper) = Helper::with_keeper();
    let bytes = ground.spec(LONG);
    let (ours, theirs) = bytes.split_at(bytes.len() - 1);
    keeper.say(ours, &[&ground.directory()]);
    keeper.say_by_another(theirs);
    assert_nothing_ran(&ground, helper, keeper);

    let (helper, keeper) = Helper::with_keeper();
    let mut signal = Vec::new();
    ToKeeper::put_signal(&mut signal, 15, false);
    keeper.say_by_another(&signal);
    keeper.say(&bytes, &[&ground.directory()]);
    assert_nothing_ran(&ground, helper, keeper);
}

#[test]
fn another_process_may_signal_and_end_a_call_and_starts_no_second_one() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    keeper.say(&ground.spec(LONG), &[&ground.directory()]);
    until("the command runs", || ground.marked().len() == 3);
    let mut end = Vec::new();
    ToKeeper::put_end(&mut end, 15, 0);
    keeper.say_by_another(&[end, ground.spec(LONG)].concat());
    let (_, facts) = keeper.until_the_end();
    assert_eq!((facts.outcome, facts.reason), (Outcome::Ended, Reason::End));
    keeper.process.assert_gone("the keeper");
    assert!(helper.assert_leaves().success());
    assert_eq!(ground.ran(), "ran\n");
    assert_eq!(ground.marked(), []);
}

#[test]
fn after_the_last_call_a_keeper_starts_nothing() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    let mut last = Vec::new();
    ToKeeper::put_last(&mut last);
    let (first, second) = (ground.spec("echo first >> ran"), ground.spec("echo second >> ran"));
    keeper.say(&[first, last].concat(), &[&ground.directory()]);
    let (_, facts) = keeper.until_the_end();
    assert_eq!((facts.outcome, facts.reason), (Outcome::Ended, Reason::Exit));
    assert!(keeper.commitment.take().committed);
    keeper.say(&second, &[&ground.directory()]);
    keeper.process.assert_gone("the keeper");
    assert_eq!(keeper.commitment.take(), StartProgress::default());
    assert!(helper.assert_leaves().success());
    assert_eq!(ground.ran(), "first\n");
}

/// Pid and ids of a host that is outside of the helper's namespaces arrive as 0 and as the overflow ids.
#[test]
fn a_host_outside_of_the_helpers_namespaces_starts_commands() {
    for namespaces in [&["--pid", "--kill-child"][..], &["--user"], &["--user", "--pid", "--kill-child"]] {
        let command = [&["unshare"], namespaces].concat();
        if !Command::new(command[0]).args(&command[1..]).arg("true").status().is_ok_and(|it| it.success()) {
            println!("skipped: {command:?} is not allowed here");
            continue;
        }
        let ground = Ground::new();
        let mut helper = Helper::start_below(&command);
        assert!(matches!(helper.next(), Some(FromHelper::Hello { .. })));
        let mut keeper = helper.foreign_keeper();
        keeper.say(&ground.spec("echo ran >> ran"), &[&ground.directory()]);
        let (_, facts) = keeper.until_the_end();
        assert_eq!((facts.outcome, facts.reason), (Outcome::Ended, Reason::Exit), "{namespaces:?}");
        assert_eq!(ground.ran(), "ran\n");
        keeper.close();
        assert!(helper.assert_leaves().success());
    }
}

/// Nothing says who sent what came before the receiver asked for that.
#[test]
fn bytes_without_a_sender_start_nothing() {
    let helper = Helper::start_on(sys::socket_pair().unwrap());
    let mut bytes = Vec::new();
    ToHelper::Want(1).put(&mut bytes);
    helper.say(&bytes);
    helper.process.assert_gone("the helper");
}

#[test]
fn words_about_a_call_that_is_not_there_change_nothing() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    let mut early = Vec::new();
    ToKeeper::put_end(&mut early, 9, 0);
    ToKeeper::put_signal(&mut early, 9, false);
    ToKeeper::put_signal(&mut early, 9, true);
    ToKeeper::put_hand_over(&mut early, 0);
    keeper.say(&early, &[]);
    assert_serves(&ground, &mut keeper);
    // The same, crossing the report of a call that is over.
    keeper.say(&early, &[]);
    assert_serves(&ground, &mut keeper);
    // A hand-over's descriptors go with it, and are not the next call's working directory.
    let mut late = Vec::new();
    ToKeeper::put_hand_over(&mut late, 1);
    keeper.say(&late, &[&std::fs::File::open("/dev/null").unwrap().into()]);
    assert_serves(&ground, &mut keeper);
    keeper.close();
    assert!(helper.assert_leaves().success());
}

#[test]
fn a_host_that_closes_right_after_the_spec_leaves_nothing() {
    let ground = Ground::new();
    let mut helper = Helper::start();
    helper.next();
    let directory = ground.directory();
    for _ in 0..50 {
        let mut keeper = helper.keeper();
        keeper.say(&ground.spec(LONG), &[&directory]);
        keeper.close();
        keeper.process.assert_gone("the keeper");
        assert_eq!(ground.marked(), []);
    }
    until("the helper has no child", || children_of(helper.process.pid).is_empty());
    assert!(helper.assert_leaves().success());
}

#[test]
fn a_host_that_closes_while_the_command_runs_leaves_nothing() {
    let ground = Ground::new();
    let (mut helper, mut keeper) = Helper::with_keeper();
    keeper.say(&ground.spec(LONG), &[&ground.directory()]);
    until("the command runs", || ground.marked().len() == 3);
    // The helper first: it leaves last all the same.
    helper.close();
    assert!(keeper.process.is_alive());
    keeper.close();
    keeper.process.assert_gone("the keeper");
    assert_eq!(ground.marked(), []);
    assert!(helper.assert_leaves().success());
}

#[test]
fn a_host_that_shuts_its_side_before_the_spec_is_read_until_the_end_runs_nothing() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    let bytes = ground.spec(LONG);
    keeper.say(&bytes[..bytes.len() - 1], &[&ground.directory()]);
    keeper.shut_writing();
    assert_eq!(keeper.next(), None);
    assert_nothing_ran(&ground, helper, keeper);
}

#[test]
fn every_message_arrives_although_nothing_is_read_until_the_socket_is_full() {
    // Answers of 6 bytes each, more than a socket holds.
    const QUESTIONS: usize = 60_000;
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    keeper.say(&ground.spec(LONG), &[&ground.directory()]);
    until("the command runs", || ground.marked().len() == 3);
    let mut bytes = Vec::new();
    for _ in 0..QUESTIONS {
        ToKeeper::put_hand_over(&mut bytes, 0);
    }
    ToKeeper::put_end(&mut bytes, 9, 0);
    keeper.say_at_length(&bytes);
    let (messages, facts) = keeper.until_the_end();
    let answers = messages.iter().filter(|message| matches!(message, FromKeeper::Taken(_)));
    assert_eq!(answers.count(), QUESTIONS);
    assert_eq!((facts.outcome, facts.reason), (Outcome::Ended, Reason::End));
    assert_serves(&ground, &mut keeper);
    keeper.close();
    assert!(helper.assert_leaves().success());
    assert_eq!(ground.marked(), []);
}

#[test]
fn a_kept_pipe_that_is_never_empty_keeps_the_keeper_from_nothing() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    keeper.say(&ground.spec(LONG), &[&ground.directory()]);
    until("the command runs", || ground.marked().len() == 3);
    assert_eq!(keeper.next(), Some(FromKeeper::Started));
    let mut bytes = Vec::new();
    ToKeeper::put_hand_over(&mut bytes, 2);
    let endless = || std::fs::File::open("/dev/zero").unwrap().into();
    keeper.say(&bytes, &[&endless(), &endless()]);
    assert!(matches!(keeper.next(), Some(FromKeeper::Taken(_))));
    let mut bytes = Vec::new();
    ToKeeper::put_end(&mut bytes, 9, 0);
    keeper.say(&bytes, &[]);
    let (_, facts) = keeper.until_the_end();
    assert_eq!((facts.outcome, facts.reason, facts.leftover_count), (Outcome::Ended, Reason::End, 2));
    keeper.close();
    assert!(helper.assert_leaves().success());
    assert_eq!(ground.marked(), []);
}

#[test]
fn a_hand_over_without_its_descriptors_is_not_taken_in_part_either() {
    let ground = Ground::new();
    let (helper, mut keeper) = Helper::with_keeper();
    keeper.say(&ground.spec(LONG), &[&ground.directory()]);
    assert_eq!(keeper.next(), Some(FromKeeper::Started));
    let (reader, writer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
    let mut bytes = Vec::new();
    ToKeeper::put_hand_over(&mut bytes, 2);
    keeper.say(&bytes, &[&reader]);
    assert!(matches!(keeper.next(), Some(FromKeeper::NotTaken(_))));
    // It is for the host to read on: the keeper has let go of the one that came.
    drop(reader);
    // What another test forks in this process has a copy until it executes its program.
    let is_closed = || rustix::io::write(&writer, b"x") == Err(rustix::io::Errno::PIPE);
    until("no reader is left", is_closed);
    keeper.close();
    keeper.process.assert_gone("the keeper");
    assert!(helper.assert_leaves().success());
    assert_eq!(ground.marked(), []);
}
