//! The starter, its keeper, the Engine, and the SDK that has started it: a shell with the starter as its child.

use std::process::{Child, ChildStdin, Stdio};

use crate::common::{Ground, HELPER, Watched, children_of, until};
use crate::processes::Lines;

use super::{POINT, await_stop, go_on};

const ACKNOWLEDGEMENT: &str = "{\"leanctx_session_containment\":1}";

/// With five others: children, one in a session of its own, and two that have lost their parent there.
const LONG: &str = "echo ran >> ran
    sleep 60 & sleep 60 & setsid sleep 60 & (setsid sh -c 'sleep 60 & sleep 60' &)
    exec sleep 60";
const SHORT: &str = "echo ran >> ran; sleep 60 & setsid sleep 60 & exit 3";

struct Case {
    ground: Ground,
    sdk: Child,
    /// Its standard input; the end of it is the SDK's.
    input: Option<ChildStdin>,
    said: Lines,
    starter: Watched,
    keeper: Option<Watched>,
    engine: Option<Watched>,
    is_stopped: bool,
}

impl Case {
    /// Up to the point; without one, until all of it runs.
    fn at(point: Option<&str>) -> Case {
        let ground = Ground::new();
        let engine = if point == Some("starter-ended") { SHORT } else { LONG };
        let mut sdk = ground.of(&["sh", "-c", "\"$0\" \"$@\" & read -r line", HELPER, "__session-starter"]);
        sdk.args(["--ack", "--watch-parent", "--grace", "100", "--", "sh", "-c", engine]);
        sdk.env(POINT, point.unwrap_or(""))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut sdk = sdk.spawn().unwrap();
        let said = Lines::new(sdk.stdout.take().unwrap());
        let only_child = |pid: i32| {
            // A keeper has its pin besides, which is dead.
            let live = || children_of(pid).into_iter().map(Watched::new).find(Watched::is_alive);
            until("a child", || live().is_some());
            live().unwrap()
        };
        let starter = only_child(sdk.id() as i32);
        let (keeper, engine) = match point {
            Some(point) => {
                await_stop(&starter, point);
                (children_of(starter.pid).first().copied().map(Watched::new), None)
            }
            None => {
                let keeper = only_child(starter.pid);
                let engine = only_child(keeper.pid);
                let is_sleep = |pid: &i32| {
                    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "sleep\n")
                };
                until("the whole brood", || ground.marked().iter().filter(|pid| is_sleep(pid)).count() == 6);
                (Some(keeper), Some(engine))
            }
        };
        let is_stopped = point.is_some();
        Case { ground, input: sdk.stdin.take(), sdk, said, starter, keeper, engine, is_stopped }
    }

    /// The victim is dead, whoever stood still goes on, and nobody is left of starter, keeper and brood.
    fn assert_leaves_nothing(&mut self, what: &str, victim: i32) {
        if self.is_stopped {
            go_on(&self.starter);
        }
        self.starter.assert_gone(what);
        let sdk = self.sdk.id() as i32;
        let brood = || self.ground.marked().into_iter().filter(|&pid| pid != sdk).count();
        if victim == self.starter.pid {
            until("the brood is ended", || brood() == 0);
        } else {
            // It left last.
            assert_eq!(brood(), 0, "{what}");
        }
        if let Some(keeper) = &self.keeper {
            keeper.assert_gone(what);
        }
    }

    /// What the SDK has read, with its own end.
    fn close(mut self) -> (Vec<String>, String) {
        self.input = None;
        let said = self.said.rest();
        self.sdk.wait().unwrap();
        assert_eq!(self.ground.marked(), []);
        (said, self.ground.ran())
    }
}

#[test]
fn a_starter_that_dies_before_its_engine_runs_has_run_nothing() {
    for point in ["starter-arrived", "starter-covered", "starter-acknowledged"] {
        let mut case = Case::at(Some(point));
        assert_eq!(case.keeper.is_some(), point != "starter-arrived", "{point}");
        case.starter.kill();
        case.assert_leaves_nothing(point, case.starter.pid);
        let (said, ran) = case.close();
        assert_eq!(ran, "", "{point}");
        let acknowledged: &[&str] = if point == "starter-acknowledged" { &[ACKNOWLEDGEMENT] } else { &[] };
        assert_eq!(said, acknowledged, "{point}");
    }
}

#[test]
fn a_keeper_that_dies_before_its_engine_runs_has_run_nothing() {
    for point in ["starter-covered", "starter-acknowledged"] {
        let mut case = Case::at(Some(point));
        let keeper = case.keeper.as_ref().unwrap();
        keeper.kill();
        case.assert_leaves_nothing(point, keeper.pid);
        assert_eq!(case.close().1, "", "{point}");
    }
}

#[test]
fn an_sdk_that_dies_while_its_starter_starts_leaves_nothing() {
    for point in ["starter-arrived", "starter-covered", "starter-acknowledged", "starter-ended"] {
        let mut case = Case::at(Some(point));
        case.sdk.kill().unwrap();
        case.sdk.wait().unwrap();
        case.assert_leaves_nothing(point, case.sdk.id() as i32);
        case.close();
    }
}

#[test]
fn whoever_dies_while_the_engine_runs_nothing_is_left() {
    for victim in ["starter", "keeper", "engine", "sdk"] {
        let mut case = Case::at(None);
        let process = match victim {
            "starter" => &case.starter,
            "keeper" => case.keeper.as_ref().unwrap(),
            "engine" => case.engine.as_ref().unwrap(),
            _ => &Watched::new(case.sdk.id() as i32),
        };
        process.kill();
        let pid = process.pid;
        if victim == "sdk" {
            case.sdk.wait().unwrap();
        }
        case.assert_leaves_nothing(victim, pid);
        let (said, ran) = case.close();
        assert_eq!((said, ran.as_str()), (vec![ACKNOWLEDGEMENT.to_owned()], "ran\n"), "{victim}");
    }
}

#[test]
fn a_starter_that_dies_when_all_is_ended_leaves_nothing() {
    let mut case = Case::at(Some("starter-ended"));
    assert!(case.keeper.is_none() && case.engine.is_none());
    case.starter.kill();
    case.assert_leaves_nothing("starter-ended", case.starter.pid);
    assert_eq!(case.close().1, "ran\n");
}
