//! What a guard has found once it holds until it is dead, whatever becomes of its group and its parent (C80).

use std::fs;
use std::os::unix::process::CommandExt;

use rustix::process::Signal;

use crate::common::{Ground, Watched, stat, until};
use crate::processes::{
    AS_NOBODY, ENDED, Guard, LEADER_ON_3, Leader, SURVIVORS, UNCONFIRMED, everybodys_helper, guard_command,
    is_root, member, outsider, skip, works,
};

/// By a pin, then by a pidfd: a leader with so many processes, and the guard of its group.
fn for_each_hold(script: &str, count: usize, check: impl Fn(&Ground, &Leader, Guard)) {
    for by in ["pin", "pidfd"] {
        let ground = Ground::new();
        let leader = Leader::start(&ground, script, count);
        until("it is up", || ground.ran().contains("up"));
        let mut guard = match by {
            "pin" => member(&[], &leader, &[]),
            _ => outsider(leader.pidfd(), leader.pid(), &[]),
        };
        check(&ground, &leader, Guard::ready(&mut guard, by));
    }
}

fn leads_a_session(pid: i32) -> bool {
    stat(pid).get(3) == Some(&pid.to_string())
}

/// The first signal takes the parents by which they were found.
#[test]
fn c80_what_left_the_group_is_ended_when_the_first_signal_has_taken_its_parent() {
    let script = "setsid sh -c 'trap \"\" TERM; sleep 60 & echo up >> ran; wait; wait' & exec sleep 60";
    for_each_hold(script, 3, |ground, leader, mut guard| {
        let left: Vec<i32> = ground.marked().into_iter().filter(|&pid| pid != leader.pid()).collect();
        guard.say("end 15 60000\n");
        leader.process.assert_gone("the leader");
        guard.say("end 9 0\n");
        let report = guard.report();
        assert_eq!(ground.marked(), []);
        assert_eq!(report.facts(), (Some(ENDED), "ended", "end"));
        assert_eq!((report.leftovers, report.survivors), (left, vec![]));
    });
}

#[test]
fn c80_a_member_that_leaves_the_group_at_the_first_signal_is_ended() {
    let script = "sh -c \"trap 'exec setsid sleep 60' TERM; sleep 60 & echo up >> ran; wait\" & wait";
    for_each_hold(script, 3, |ground, leader, mut guard| {
        guard.say("end 15 60000\n");
        leader.process.assert_gone("the leader");
        until("it has left", || ground.marked().iter().any(|&pid| leads_a_session(pid)));
        guard.say("end 9 0\n");
        let report = guard.report();
        assert_eq!(ground.marked(), []);
        assert_eq!(report.facts(), (Some(ENDED), "ended", "end"));
        assert_eq!((report.leftovers.len(), report.survivors), (2, vec![]));
    });
}

#[test]
fn c80_a_member_that_was_found_during_the_grace_is_ended() {
    if !is_root() {
        return skip("the descriptors of a guard are shown to root only");
    }
    // It is started by the first signal, and leaves the group when it is told to.
    let late = "trap 'exec setsid sleep 60' USR1; echo up >> late; while :; do sleep 60 & wait; done";
    let script = "trap 'sh -c \"$LATE\" & until [ -s late ]; do :; done; exit' TERM
        sleep 60 & echo up >> ran; wait";
    for by in ["pin", "pidfd"] {
        let ground = Ground::new();
        let mut leader = ground.of(&["sh", "-c", script]);
        let leader = Leader::spawn(leader.env("LATE", late).process_group(0));
        until("it is up", || ground.ran().contains("up"));
        let before = Watched::new(crate::common::children_of(leader.pid())[0]);
        let mut guard = match by {
            "pin" => member(&[], &leader, &[]),
            _ => outsider(leader.pidfd(), leader.pid(), &[]),
        };
        let mut guard = Guard::ready(&mut guard, by);
        guard.say("end 15 60000\n");
        leader.process.assert_gone("the leader");
        before.assert_gone("its first child");
        let shell = || ground.marked().into_iter().find(|&pid| has_command(pid, "sh"));
        until("the guard holds it", || shell().is_some_and(|shell| holds(&guard, shell)));
        let shell = shell().unwrap();
        Watched::new(shell).signal(Signal::USR1);
        until("it has left", || leads_a_session(shell));
        guard.say("end 9 0\n");
        assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"), "{by}");
        assert_eq!(ground.marked(), [], "{by}");
    }
}

fn has_command(pid: i32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
}

/// Whether the guard has a pidfd of this process.
fn holds(guard: &Guard, pid: i32) -> bool {
    let line = format!("Pid:\t{pid}\n");
    let descriptors = fs::read_dir(format!("/proc/{}/fdinfo", guard.process.pid)).into_iter().flatten();
    descriptors.flatten().any(|entry| fs::read_to_string(entry.path()).is_ok_and(|text| text.contains(&line)))
}

/// As sudo(8): the signal is refused, and it exits when its command is gone.
#[test]
fn c80_a_process_that_refuses_signals_and_exits_when_the_others_are_gone_is_no_survivor() {
    if !is_root() || !works(&[&AS_NOBODY[..], &["true"]].concat()) {
        return skip("another user needs root and setpriv");
    }
    let ground = Ground::new();
    let line = everybodys_helper(&ground);
    let before = [&AS_NOBODY[..], &["sh", "-c", &line]].concat();
    let nobody = AS_NOBODY.join(" ");
    // It needs some time to exit; all it starts for that refuses signals, too.
    let follows = format!("{nobody} sleep 60; for i in 1 2 3 4 5 6 7 8 9; do /bin/true; done; :");
    let leader = Leader::start(&ground, &follows, 2);
    let refuses = Watched::new(leader.pid());
    until("its child is another user's", || {
        let children = crate::common::children_of(leader.pid());
        children.iter().any(|&pid| has_command(pid, "sleep"))
    });
    let mut guard = Guard::ready(&mut member(&before, &leader, &[]), "pin");
    guard.say("end 9 0\n");
    let report = guard.report();
    assert_eq!(report.facts(), (Some(ENDED), "ended", "end"), "{report:?}");
    assert!(!refuses.is_alive());
    assert_eq!(ground.marked(), []);
}

#[test]
fn c80_members_in_a_pid_namespace_of_their_own_are_counted_and_ended() {
    let namespace = ["unshare", "-p", "-f"];
    if !works(&[&namespace[..], &["true"]].concat()) {
        return skip("no pid namespace can be made here");
    }
    // In the group, and in a session of its own.
    let script = "unshare -p -f sh -c 'sleep 60 & setsid sleep 60 & sleep 60 & echo up >> ran; wait' & wait";
    for_each_hold(script, 6, |ground, _, mut guard| {
        until("one has left", || ground.marked().iter().any(|&pid| leads_a_session(pid)));
        guard.say("end 9 0\n");
        let report = guard.report();
        assert_eq!(ground.marked(), []);
        assert_eq!(report.facts(), (Some(ENDED), "ended", "end"));
        assert_eq!((report.leftovers.len(), report.survivors), (5, vec![]));
    });
}

/// The first process of a pid namespace does not end before its members are reaped, by whatever parent.
#[test]
fn c80_a_first_process_whose_member_is_not_reaped_is_a_survivor_and_named() {
    let namespace = ["unshare", "-p", "-f"];
    if !works(&[&namespace[..], &["true"]].concat()) || !works(&["nsenter", "--version"]) {
        return skip("needs a pid namespace of its own, and nsenter");
    }
    let script = "exec unshare -p -f sh -c 'echo up >> ran; sleep 60; :'";
    let ground = Ground::new();
    let leader = Leader::start(&ground, script, 3);
    until("it is up", || ground.ran().contains("up"));
    let first = crate::common::children_of(leader.pid())[0].to_string();
    // Of no group that is ended: it enters the namespace, and does not reap.
    let outer = Ground::new();
    let entered = Leader::spawn(outer.of(&["nsenter", "-p", "-t", &first, "sleep", "60"]).process_group(0));
    until("it has entered", || outer.marked().iter().any(|&pid| has_command(pid, "sleep")));
    entered.process.signal(Signal::STOP);
    until("it is stopped", || stat(entered.pid())[0] == "T");
    let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
    guard.say("end 9 0\n");
    let report = guard.report();
    assert_eq!(report.facts(), (Some(SURVIVORS), "survivors", "end"));
    assert_eq!(report.survivors, [first.parse::<i32>().unwrap()]);
    assert_eq!(report.leftovers.len(), 1);
    entered.process.kill();
    until("the namespace has ended", || {
        stat(report.survivors[0]).is_empty() || stat(report.survivors[0])[0] == "Z"
    });
}

/// Of a kernel without them (CONFIG_PROC_CHILDREN). What is mounted over the folder has no list either.
#[test]
fn c80_without_lists_of_children_what_left_the_group_is_found_by_the_whole_table() {
    if !works(&["unshare", "-m", "mount", "-t", "tmpfs", "none", "/proc/1/task"]) {
        return skip("needs a mount namespace of its own");
    }
    // The second one lets nothing of the table be read that is no list and no member.
    for (more, status, word) in
        [("true", ENDED, "ended"), ("mount --bind /proc/$$/mem /proc/%/stat", UNCONFIRMED, "unconfirmed")]
    {
        let ground = Ground::new();
        let leader = Leader::start(&ground, "setsid sleep 60 & exec sleep 60", 2);
        let pid = leader.pid();
        let [left] = crate::common::children_of(pid)[..] else { panic!("one child") };
        let left = Watched::new(left);
        until("one has left", || leads_a_session(left.pid));
        let more = more.replace('%', &std::process::id().to_string());
        let script = format!("mount -t tmpfs none /proc/{pid}/task && {more} && exec \"$0\" \"$@\"");
        let before = [&LEADER_ON_3[..], &["unshare", "-m", "sh", "-c", &script]].concat();
        let mut guard = guard_command(&before, pid, &["--by-pidfd"]);
        let mut guard = Guard::ready(guard.process_group(0).stderr(leader.pidfd()), "pidfd");
        guard.say("end 9 0\n");
        assert_eq!(guard.report().facts(), (Some(status), word, "end"));
        assert!(!leader.process.is_alive());
        assert_eq!(left.is_alive(), status != ENDED);
        if left.is_alive() {
            left.kill();
        }
    }
}
