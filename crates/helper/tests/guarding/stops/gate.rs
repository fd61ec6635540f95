//! Starter, guard and the process that waits at the gate.

use crate::common::{Ground, HELPER, Watched, until};
use crate::gate::{PROGRAM, Starter, behind_guard, forked};
use crate::processes::guards_of;

use super::{POINT, await_stop, go_on};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Who {
    Starter,
    Guard,
    /// The new process, later the program.
    Child,
}
use Who::{Child, Guard};

/// Who stops there, whether there is a guard, and whether the gate is open.
const POINTS: [(&str, Who, bool, bool); 10] = [
    ("gate-forked", Who::Starter, false, false),
    ("gate-grouped", Who::Starter, false, false),
    ("gate-guarded", Who::Starter, true, false),
    ("guard-joined", Guard, true, false),
    ("guard-pinned", Guard, true, false),
    ("guard-left", Guard, true, false),
    ("guard-holds", Guard, true, false),
    ("gate-ready", Who::Starter, true, false),
    ("gate-open", Who::Starter, true, true),
    // It has said so.
    ("guard-ready", Guard, true, true),
];

struct Case {
    ground: Ground,
    starter: Starter,
    stopped: Who,
    leader: i32,
    guard: Option<i32>,
    open: bool,
    /// Said before the death.
    started: Option<String>,
}

impl Case {
    /// Up to the point, where one of them stands still; with an open gate up to the program's trace.
    fn at(point: &str) -> Case {
        let &(_, stopped, guarded, open) = POINTS.iter().find(|(known, ..)| *known == point).unwrap();
        let ground = Ground::new();
        let starter = Starter::spawn(behind_guard(&ground, HELPER, &PROGRAM).env(POINT, point));
        let leader = forked(&starter);
        let guard = guarded.then(|| {
            until("a guard", || !guards_of(leader).is_empty());
            guards_of(leader)[0]
        });
        let mut case = Case { ground, starter, stopped, leader, guard, open, started: None };
        await_stop(&case.process(stopped), point);
        if open {
            until("the program runs", || case.ground.ran() != "");
            if stopped == Guard {
                case.started = case.starter.said.next();
            }
        }
        case
    }

    fn process(&self, who: Who) -> Watched {
        Watched::new(match who {
            Who::Starter => self.starter.process.pid,
            Guard => self.guard.unwrap(),
            Child => self.leader,
        })
    }

    /// The one dies, and whoever stood still goes on.
    fn kill(&self, victim: Who) {
        let (dies, stopped) = (self.process(victim), self.process(self.stopped));
        dies.kill();
        dies.assert_gone("the victim");
        go_on(&stopped);
    }

    /// All that is said, and nobody is left.
    fn end(mut self) -> (Vec<String>, String) {
        let said: Vec<String> = self.started.take().into_iter().chain(self.starter.said.rest()).collect();
        self.starter.reap();
        until("the guard has left", || guards_of(self.leader).is_empty());
        assert_eq!(self.ground.marked(), [], "{said:?}");
        (said, self.ground.ran())
    }
}

#[test]
fn a_starter_that_dies_before_the_gate_is_open_has_run_nothing_and_after_that_all_is_ended() {
    for (point, ..) in POINTS {
        let case = Case::at(point);
        let open = case.open;
        case.kill(Who::Starter);
        // The program waits for its standard input, which does not end: it is the guard that ends it.
        let (_, ran) = case.end();
        assert_eq!(ran, if open { "ran\n" } else { "" }, "{point}");
    }
}

#[test]
fn without_a_guard_that_lives_the_gate_stays_shut_and_after_that_the_host_is_told() {
    for (point, _, guarded, open) in POINTS {
        if !guarded {
            continue;
        }
        let mut case = Case::at(point);
        case.kill(Guard);
        if !open {
            let (said, ran) = case.end();
            assert_eq!(said, ["no guard: unexpected end of file"], "{point}");
            assert_eq!(ran, "", "{point}");
            continue;
        }
        // Nobody holds the group now. Its end is the program's own.
        let started = case.started.take().unwrap_or_else(|| case.starter.said.next().unwrap());
        assert!(started.starts_with("started "), "{point}: {started}");
        assert!(case.ground.marked().contains(&case.leader));
        case.starter.input = None;
        let (said, _) = case.end();
        assert_eq!(said, ["ended Some(Code(1)) Some(Signal(9))"], "{point}");
    }
}

#[test]
fn a_waiting_process_that_dies_has_run_nothing() {
    for (point, _, _, open) in POINTS {
        let case = Case::at(point);
        case.kill(Child);
        let (said, ran) = case.end();
        let ended = || {
            assert!(said[0].starts_with("started "), "{point}: {said:?}");
            assert_eq!(said[1..], ["ended Some(Signal(9)) Some(Code(0))"], "{point}");
        };
        match point {
            "gate-forked" => assert_eq!(said, ["not a leader"]),
            _ if open => ended(),
            // The guard finds nobody to guard, and leaves; it is seen to be there or to be gone.
            _ if said == ["no guard: unexpected end of file"] => (),
            _ if !open && said == ["not started: helper: No such process (os error 3)"] => (),
            _ => ended(),
        }
        assert_eq!(ran, if open { "ran\n" } else { "" }, "{point}");
    }
}
