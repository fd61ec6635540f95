//! Guard, host, and the leader of the group. The host is this test program itself, started again.

use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::common::{Ground, Watched, until};
use crate::guard::assert_pinned;
use crate::processes::{Guard, Leader, Lines, command, member, member_with, outsider};

use super::{POINT, await_stop, go_on};

/// Four members, in two generations.
const FOUR: &str = "sleep 60 & (sleep 60 & wait) & wait";
const HOST: &str = "GUARDING_HOST";

const POINTS: [(&str, &str); 9] = [
    ("pin", "guard-joined"),
    ("pin", "guard-pinned"),
    ("pin", "guard-left"),
    ("pin", "guard-holds"),
    ("pin", "guard-ready"),
    ("pin", "guard-ends"),
    ("pidfd", "guard-holds"),
    ("pidfd", "guard-ready"),
    ("pidfd", "guard-ends"),
];

/// Not a test: a host with a leader, and a guard for it. It passes on what the guard says, and to the guard what it is
/// told itself. At the end of that it ends, and the group with it.
#[test]
fn host() {
    let Ok(by) = std::env::var(HOST) else { return };
    let mut leader = Leader::spawn(command(&["sh", "-c", FOUR]).process_group(0));
    println!("leader {}", leader.pid());
    let mut guard = match by.as_str() {
        "pin" => member_with(leader.pidfd(), &leader, &["--end-on-exit"]),
        _ => outsider(leader.pidfd(), leader.pid(), &["--end-on-exit"]),
    };
    let guard = Guard::start(guard.env(POINT, std::env::var(POINT).unwrap()));
    println!("guard {}", guard.process.pid);
    let (mut words, mut said) = guard.into_ends();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::iter::from_fn(|| said.next()).for_each(|line| println!("said {line}"));
            println!("guard gone");
        });
        for line in std::io::stdin().lock().lines() {
            match line.unwrap().as_str() {
                "reap" => {
                    leader.reap();
                    println!("reaped");
                }
                word => words.write_all(format!("{word}\n").as_bytes()).unwrap(),
            }
        }
        drop((words, leader));
    });
}

/// All three, the guard at its point.
struct Case {
    ground: Ground,
    child: Child,
    host: Watched,
    orders: Option<ChildStdin>,
    said: Lines,
    leader: Watched,
    guard: Watched,
}

impl Case {
    fn at(by: &str, point: &str) -> Case {
        let ground = Ground::new();
        let mut host = Command::new(std::env::current_exe().unwrap());
        host.args(["--exact", "stops::guard::host", "--nocapture"]).env(HOST, by).env(POINT, point);
        host.env("MARK", &ground.mark).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = host.spawn().unwrap();
        let mut said = Lines::new(child.stdout.take().unwrap());
        let mut number = |word: &str| -> i32 {
            let line = await_line(&mut said, |line| line.starts_with(word));
            line[word.len() + 1..].parse().unwrap()
        };
        let (leader, guard) = (Watched::new(number("leader")), Watched::new(number("guard")));
        let mut orders = child.stdin.take().unwrap();
        if point == "guard-ends" {
            orders.write_all(b"end 9 0\n").unwrap();
        }
        await_stop(&guard, point);
        let host = Watched::new(child.id() as i32);
        let case = Case { ground, host, orders: Some(orders), said, leader, guard, child };
        until("all members", || case.members().len() == 4);
        case
    }

    /// The host is marked, too.
    fn members(&self) -> Vec<i32> {
        let mut marked = self.ground.marked();
        marked.retain(|&pid| pid != self.host.pid);
        marked
    }

    /// The host's own end. What it says last.
    fn close(mut self) -> Vec<String> {
        self.orders = None;
        let said = self.said.rest();
        self.host.assert_gone("the host");
        self.child.wait().unwrap();
        until("nobody is left", || self.ground.marked().is_empty());
        said
    }
}

fn await_line(said: &mut Lines, is_it: impl Fn(&str) -> bool) -> String {
    let line = std::iter::from_fn(|| said.next()).find(|line| is_it(line));
    line.expect("a line that did not come")
}

#[test]
fn a_host_that_dies_leaves_nothing() {
    for (by, point) in POINTS {
        let mut case = Case::at(by, point);
        case.host.kill();
        case.child.wait().unwrap();
        go_on(&case.guard);
        case.guard.assert_gone("the guard");
        assert_eq!(case.ground.marked(), [], "{by}, {point}");
    }
}

/// To replace it is the host's.
#[test]
fn a_guard_that_dies_ends_nobody_and_the_host_sees_it() {
    for (by, point) in POINTS {
        let mut case = Case::at(by, point);
        case.guard.kill();
        let last = await_line(&mut case.said, |line| line == "guard gone" || line.starts_with("said ended"));
        assert_eq!(last, "guard gone", "{by}, {point}");
        assert_eq!(case.members().len(), 4, "{by}, {point}");
        case.close();
    }
}

#[test]
fn a_leader_that_dies_leaves_nothing() {
    for (by, point) in POINTS {
        let mut case = Case::at(by, point);
        case.leader.kill();
        case.leader.assert_gone("the leader");
        go_on(&case.guard);
        let reason = if point == "guard-ends" { "end" } else { "exit" };
        let ended = format!("said ended {reason} ");
        await_line(&mut case.said, |line| line.starts_with(&ended));
        assert_eq!(case.members(), [], "{by}, {point}");
        case.close();
    }
}

/// As Node does at once. Until the guard has shown that it holds the group of this leader, it may be another one's.
#[test]
fn a_leader_that_is_reaped_before_the_group_is_held_is_refused_and_after_that_leaves_nothing() {
    for (by, point) in POINTS {
        let mut case = Case::at(by, point);
        case.leader.kill();
        case.orders.as_mut().unwrap().write_all(b"reap\n").unwrap();
        await_line(&mut case.said, |line| line == "reaped");
        go_on(&case.guard);
        let last = await_line(&mut case.said, |line| {
            line.starts_with("said ended ") || line.starts_with("said refused ")
        });
        if ["guard-joined", "guard-pinned", "guard-left"].contains(&point) {
            assert_eq!(last, "said refused dead", "{by}, {point}");
            assert_eq!(case.members().len(), 3, "{by}, {point}");
            case.members().into_iter().map(Watched::new).for_each(|member| member.kill());
        } else {
            assert!(last.starts_with("said ended "), "{by}, {point}: {last}");
            assert_eq!(case.members(), [], "{by}, {point}");
        }
        case.close();
    }
}

#[test]
fn it_is_outside_and_its_pin_inside_before_it_says_that_it_is_ready() {
    let ground = Ground::new();
    let leader = Leader::start(&ground, FOUR, 4);
    let mut guard = Guard::start(member(&[], &leader, &[]).env(POINT, "guard-holds"));
    await_stop(&guard.process, "guard-holds");
    assert_pinned(guard.process.pid, leader.pid());
    assert!(!guard.said.is_there(), "it has said something");
    go_on(&guard.process);
    assert_eq!(guard.said.next().unwrap(), "ready pin");
    guard.close();
    assert_eq!(guard.report().facts(), (Some(0), "ended", "host-gone"));
    assert_eq!(ground.marked(), []);
}
