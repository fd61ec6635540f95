//! The spawn helper at its border: what it is started with, and a host that says the wrong thing.

use std::fs::File;
use std::process::{Command, Stdio};

use crate::common::{Ground, HELPER, Watched, children_of, until};
use crate::host::{Helper, frame, start_with};
use holdfast_wire::{FromHelper, MAX_MESSAGE, Mechanism, ToHelper, VERSION};

const USAGE: i32 = 64;
const OS_FILE: i32 = 72;
const WANT: u8 = 32;

#[test]
fn the_first_word_is_its_version() {
    let mut helper = Helper::start();
    assert_eq!(
        helper.next(),
        Some(FromHelper::Hello { version: VERSION.into(), mechanism: Mechanism::Subreaper })
    );
    assert!(helper.assert_leaves().success());
}

#[test]
fn a_command_line_that_it_does_not_know_is_a_usage_error() {
    for args in [&[][..], &["__keeper"], &["__spawn-helper", "x"], &["--version", "x"], &[""]] {
        let output = Command::new(HELPER).args(args).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(USAGE), "{args:?}");
        assert!(!output.stderr.is_empty());
    }
    let output = Command::new(HELPER).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{VERSION}\n"));
}

#[test]
fn without_a_socket_on_3_it_leaves() {
    let mut child = start_with(File::open("/dev/null").unwrap().into());
    let process = Watched::new(child.id() as i32);
    process.assert_gone("the helper");
    assert_eq!(child.wait().unwrap().code(), Some(OS_FILE));

    let status =
        Command::new("/bin/sh").arg("-c").arg("exec \"$0\" __spawn-helper 3<&-").arg(HELPER).status();
    assert_eq!(status.unwrap().code(), Some(OS_FILE));
}

#[test]
fn a_wrong_word_ends_it_and_its_idle_keepers() {
    let mut cut = Vec::new();
    ToHelper::Want(1).put(&mut cut);
    cut.pop();
    let wrong = [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0; 64],
        frame(MAX_MESSAGE as u32 + 2, WANT, &[]),
        frame(u32::MAX, WANT, &[]),
        frame(4, WANT, &[1, 0, 0]),
        frame(6, WANT, &[1, 0, 0, 0, 0]),
        frame(1, 1, &[]),
        cut,
    ];
    for bytes in wrong {
        let (mut helper, mut keeper) = Helper::with_keeper();
        helper.say(&bytes);
        helper.close();
        // A keeper belongs to whoever holds its socket: it goes when that does.
        assert!(keeper.process.is_alive());
        keeper.close();
        keeper.process.assert_gone("the keeper");
        assert!(helper.assert_leaves().success());
    }
}

/// The host's end is still open: nothing but the wrong word itself tells the helper to leave.
#[test]
fn a_wrong_word_alone_is_a_lost_host() {
    for bytes in [vec![0; 5], frame(1, 200, &[]), frame(u32::MAX, WANT, &[])] {
        let mut helper = Helper::start();
        assert!(matches!(helper.next(), Some(FromHelper::Hello { .. })));
        helper.say(&bytes);
        helper.process.assert_gone("the helper");
        assert_eq!(helper.next(), None);
    }
}

#[test]
fn a_host_that_closes_before_anything_leaves_nothing() {
    for _ in 0..20 {
        let helper = Helper::start();
        assert!(helper.assert_leaves().success());
    }
}

#[test]
fn keepers_that_nobody_took_leave_with_the_host() {
    let mut helper = Helper::start();
    let mut bytes = Vec::new();
    ToHelper::Want(5).put(&mut bytes);
    helper.say(&bytes);
    until("five keepers", || children_of(helper.process.pid).len() == 5);
    let keepers: Vec<Watched> = children_of(helper.process.pid).into_iter().map(Watched::new).collect();
    helper.close();
    for keeper in &keepers {
        keeper.assert_gone("a keeper");
    }
    assert!(helper.assert_leaves().success());
}

#[test]
fn a_lost_keepers_brood_is_ended_and_reported() {
    let ground = Ground::new();
    let (mut helper, keeper) = Helper::with_keeper();
    // Another keeper's call is not touched.
    let mut other = helper.keeper();
    let directory = ground.directory();
    let other_ground = Ground::new();
    other.say(&other_ground.spec("exec sleep 60"), &[&directory]);
    keeper.say(&ground.spec("sleep 60 & setsid sleep 60 & exec sleep 60"), &[&directory]);
    until("both run", || ground.marked().len() == 3 && !other_ground.marked().is_empty());
    keeper.process.kill();
    let Some(FromHelper::KeeperEnded { keeper: pid, facts }) = helper.next() else {
        panic!("no report");
    };
    assert_eq!(pid, keeper.process.pid);
    assert_eq!(ground.marked(), []);
    assert_eq!(
        (facts.outcome, facts.by, facts.reason),
        (holdfast_wire::Outcome::Ended, holdfast_wire::By::Helper, holdfast_wire::Reason::KeeperGone)
    );
    assert_eq!(other_ground.marked().len(), 1);
    other.close();
    other.process.assert_gone("the other keeper");
    assert_eq!(other_ground.marked(), []);
    drop(keeper);
    assert!(helper.assert_leaves().success());
}

#[test]
fn an_idle_keeper_that_dies_is_no_report_and_the_next_one_comes() {
    let (mut helper, keeper) = Helper::with_keeper();
    keeper.process.kill();
    keeper.process.assert_gone("the keeper");
    // It is reaped, and what is said next is about the new one.
    let mut next = helper.keeper();
    until("one child", || children_of(helper.process.pid) == [next.process.pid]);
    next.close();
    drop(keeper);
    assert!(helper.assert_leaves().success());
}
