//! Whom the guard ends, whom it cannot, and what it says where it cannot tell.

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use crate::common::{Ground, HELPER, Watched, children_of, stat, until};
use crate::namespace::is_inside;
use crate::processes::{
    AS_NOBODY, ENDED, Guard, LEADER_ON_3, Leader, REFUSED, Report, SURVIVORS, TWO, UNCONFIRMED, command,
    everybodys_helper, guard_command, is_root, member, outsider, skip, works,
};

/// From the first SIGKILL until survivors are reported.
const BUDGET: Duration = Duration::from_secs(5);

const NO_PROC: [&str; 5] = ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /proc && exec \"$0\" \"$@\""];
const HIDING_PROC: [&str; 5] =
    ["unshare", "-m", "sh", "-c", "mount -t proc -o hidepid=2 proc /proc && exec \"$0\" \"$@\""];

/// By a pin and by a pidfd.
fn guards(leader: &Leader) -> [Guard; 2] {
    [
        Guard::ready(&mut member(&[], leader, &[]), "pin"),
        Guard::ready(&mut outsider(leader.pidfd(), leader.pid(), &[]), "pidfd"),
    ]
}

/// Both guards hold the group, and one of them is told to end it, each in turn.
fn for_each_hold(ground: &Ground, leader: impl Fn() -> Leader, check: impl Fn(&Report)) {
    for which in [0, 1] {
        let leader = leader();
        let marked: Vec<Watched> = ground.marked().into_iter().map(Watched::new).collect();
        let mut guards = guards(&leader);
        guards[which].say("end 9 0\n");
        let [by_pin, by_pidfd] = guards;
        let (told, mut other) = if which == 0 { (by_pin, by_pidfd) } else { (by_pidfd, by_pin) };
        let report = told.report();
        assert_eq!(ground.marked(), []);
        for member in marked {
            assert!(!member.is_alive(), "{}", member.pid);
        }
        assert_eq!(report.facts(), (Some(ENDED), "ended", "end"));
        check(&report);
        other.close();
        assert_eq!(other.report().code, Some(ENDED));
    }
}

#[test]
fn two_hundred_members_are_ended_within_the_budget() {
    let ground = Ground::new();
    let script = "i=1; while [ $i -lt 200 ]; do sleep 60 & i=$((i + 1)); done; wait";
    let check = |report: &Report| assert!(report.proof < BUDGET, "{:?}", report.proof);
    for_each_hold(&ground, || Leader::start(&ground, script, 200), check);
}

#[test]
fn c03_members_that_ignore_every_signal_are_ended() {
    let ground = Ground::new();
    let script = "trap '' HUP INT QUIT TERM TSTP TTIN TTOU PIPE USR1 USR2 ALRM CONT CHLD
        sleep 60 & sleep 60 & echo up >> ran; while :; do wait; done";
    let leader = || {
        let leader = Leader::start(&ground, script, 3);
        until("the trap is set", || ground.ran().contains("up"));
        leader
    };
    for_each_hold(&ground, leader, |_| ());
}

#[test]
fn c22_members_that_are_stopped_are_ended_and_hear_the_first_signal() {
    let ground = Ground::new();
    let start = || {
        let leader = Leader::start(&ground, TWO, 2);
        for pid in ground.marked() {
            Watched::new(pid).signal(Signal::STOP);
            until("it is stopped", || stat(pid)[0] == "T");
        }
        leader
    };
    for_each_hold(&ground, start, |_| ());

    let leader = start();
    let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
    guard.say("end 15 60000\n");
    // Before the grace is over, for which `report` does not wait.
    assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
    assert_eq!(ground.marked(), []);
}

#[test]
fn c20_who_left_the_group_is_ended_as_long_as_the_chain_of_parents_holds() {
    let ground = Ground::new();
    let script = "setsid sh -c 'setsid sh -c \"setsid sleep 60 & wait\" & wait' & wait";
    // The leader, two shells and a sleeper. They are ended by what hangs on a member.
    let check = |report: &Report| assert_eq!(report.leftovers.len(), 3);
    let leader = || {
        let leader = Leader::start(&ground, script, 4);
        let leads = |pid: &i32| stat(*pid).get(2) == Some(&pid.to_string());
        until("each leads a group", || ground.marked().iter().filter(|pid| leads(pid)).count() == 4);
        leader
    };
    for_each_hold(&ground, leader, check);
}

/// More children than a page of the list of them holds.
#[test]
fn c20_a_thousand_who_left_the_group_are_ended() {
    let Some((ground, leader)) = leader_of_leavers(1_000) else { return };
    let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
    guard.say("end 9 0\n");
    let report = guard.report();
    assert_eq!(ground.marked(), []);
    assert_eq!(report.facts(), (Some(ENDED), "ended", "end"));
    assert!(report.proof < BUDGET, "{:?}", report.proof);
}

#[test]
fn c53_whoever_left_the_group_and_cannot_be_held_is_not_taken_for_ended() {
    let few = ["prlimit", "--nofile=64:64"];
    if !works(&[&few[..], &["true"]].concat()) {
        return skip("needs prlimit");
    }
    let Some((ground, leader)) = leader_of_leavers(100) else { return };
    let mut guard = Guard::ready(&mut member(&few, &leader, &[]), "pin");
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(UNCONFIRMED), "unconfirmed", "end"));
    leader.process.assert_gone("the leader");
    ground.marked().into_iter().map(Watched::new).for_each(|left| left.kill());
}

/// So many children of the leader, each in a session of its own.
fn leader_of_leavers(count: usize) -> Option<(Ground, Leader)> {
    if !works(&["perl", "-MPOSIX", "-e", "1"]) {
        skip("needs perl");
        return None;
    }
    let ground = Ground::new();
    let script = format!(
        "alarm 60; for (1..{count}) {{ fork or POSIX::setsid() && alarm(60) || sleep 60 && exit }} sleep 60"
    );
    let leader = Leader::spawn(ground.of(&["perl", "-MPOSIX", "-e", &script]).process_group(0));
    let has_left = |pid: &i32| stat(*pid).get(3) == Some(&pid.to_string());
    until("all have left", || children_of(leader.pid()).iter().filter(|pid| has_left(pid)).count() == count);
    Some((ground, leader))
}

/// Its state is Z, and it runs.
#[test]
fn c26_a_member_whose_first_thread_has_left_is_ended() {
    let script = "
import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
# Of this thread, and not of the process: exit(2).
ctypes.CDLL(None).syscall({'x86_64': 60}.get(platform.machine(), 93), 0)
";
    if !works(&["python3", "-c", "import ctypes"]) {
        return skip("needs python3 with ctypes");
    }
    let ground = Ground::new();
    let leader = Leader::spawn(ground.of(&["python3", "-c", script]).process_group(0));
    until("its first thread has left", || stat(leader.pid())[0] == "Z" && stat(leader.pid())[17] == "2");
    assert!(leader.process.is_alive());
    let mut guard = Guard::ready(&mut member(&[], &leader, &["--end-on-exit"]), "pin");
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
    assert!(!leader.process.is_alive());
}

/// Within the number that their user may have.
#[test]
fn c21_members_that_fork_without_pause_are_ended_within_the_budget() {
    if !is_inside("members::c21_members_that_fork_without_pause_are_ended_within_the_budget") {
        return;
    }
    let user = ["setpriv", "--reuid", "65533", "--regid", "65533", "--clear-groups"];
    if !is_root() || !works(&[&user[..], &["prlimit", "--nproc=9:9", "perl", "-MPOSIX", "-e", "1"]].concat())
    {
        return skip("another user needs root, setpriv and prlimit; and perl is needed");
    }
    let storms = [
        // Each forks and forks, and every second one dies at once. All that may be are there.
        ("alarm 30; my $pid = fork; exit if defined $pid && !$pid && rand() < 0.5", "--nproc=60:60", 45),
        // Each child leaves the group. They become more while they are looked for.
        ("my $pid = fork; if (!$pid) { alarm 30; POSIX::setsid(); sleep 30; exit }", "--nproc=2000:2000", 5),
    ];
    let ground = Ground::new();
    for ((storm, limit, many), by) in storms.into_iter().flat_map(|storm| [(storm, "pin"), (storm, "pidfd")])
    {
        let storm = format!("$SIG{{CHLD}} = 'IGNORE'; alarm 30; for (;;) {{ {storm} }}");
        let mut leader =
            ground.of(&[&user[..], &["prlimit", limit, "perl", "-MPOSIX", "-e", &storm]].concat());
        let leader = Leader::spawn(leader.process_group(0));
        let mut guard = match by {
            "pin" => Guard::ready(&mut member(&[], &leader, &[]), by),
            _ => Guard::ready(&mut outsider(leader.pidfd(), leader.pid(), &[]), by),
        };
        until("so many", || ground.marked().len() > many);
        guard.say("end 9 0\n");
        let report = guard.report();
        assert_eq!(ground.marked(), [], "{storm}");
        assert_eq!(report.facts(), (Some(ENDED), "ended", "end"), "{storm}");
        assert!(report.proof < BUDGET, "{storm}: {:?}", report.proof);
    }
}

// ---- whom it cannot end
#[test]
fn members_of_another_user_are_survivors_at_once_and_live_on() {
    if !is_root() || !works(&[&AS_NOBODY[..], &["true"]].concat()) {
        return skip("another user needs root and setpriv");
    }
    let ground = Ground::new();
    let line = everybodys_helper(&ground);
    let before = [&AS_NOBODY[..], &["sh", "-c", &line]].concat();
    let leader = Leader::start(&ground, TWO, 2);
    let mut guard = Guard::ready(&mut member(&before, &leader, &[]), "pin");
    guard.say("end 9 0\n");
    let report = guard.report();
    assert_eq!(report.facts(), (Some(SURVIVORS), "survivors", "end"));
    assert!(report.proof < BUDGET / 2, "{:?}", report.proof);
    assert_eq!(sorted(report.survivors), sorted(ground.marked()));
    assert_eq!((ground.marked().len(), report.leftovers), (2, vec![]));
}

#[test]
fn of_members_of_two_users_one_is_ended_and_the_other_a_survivor() {
    if !is_root() || !works(&[&AS_NOBODY[..], &["true"]].concat()) {
        return skip("another user needs root and setpriv");
    }
    let ground = Ground::new();
    let line = everybodys_helper(&ground);
    let before = [&AS_NOBODY[..], &["sh", "-c", &line]].concat();
    let script = format!("{} sleep 60 & exec sleep 60", AS_NOBODY.join(" "));
    let leader = Leader::start(&ground, &script, 2);
    let follower = children_of(leader.pid())[0];
    let follower = Watched::new(follower);
    until("it is another user's", || is_nobodys(follower.pid));
    let mut guard = Guard::ready(&mut member(&before, &leader, &[]), "pin");
    guard.say("end 9 0\n");
    let report = guard.report();
    assert_eq!(report.facts(), (Some(SURVIVORS), "survivors", "end"));
    assert!(report.proof < BUDGET / 2, "{:?}", report.proof);
    assert_eq!((report.survivors, report.leftovers), (vec![leader.pid()], vec![follower.pid]));
    assert!(!follower.is_alive() && leader.process.is_alive());
}

/// It left the group; its parent, a member, became another user after it was born.
#[test]
fn a_survivor_may_be_one_who_left_the_group() {
    if !is_root() || !works(&[&AS_NOBODY[..], &["true"]].concat()) {
        return skip("another user needs root and setpriv");
    }
    let ground = Ground::new();
    let line = everybodys_helper(&ground);
    let before = [&AS_NOBODY[..], &["sh", "-c", &line]].concat();
    let script = format!("setsid sleep 60 & exec {} sleep 60", AS_NOBODY.join(" "));
    let leader = Leader::start(&ground, &script, 2);
    until("it is another user's", || is_nobodys(leader.pid()));
    let [left] = children_of(leader.pid())[..] else { panic!("one child") };
    let left = Watched::new(left);
    until("it has left", || stat(left.pid)[3] == left.pid.to_string());
    let mut guard = Guard::ready(&mut member(&before, &leader, &[]), "pin");
    guard.say("end 9 0\n");
    let report = guard.report();
    assert_eq!(report.facts(), (Some(SURVIVORS), "survivors", "end"));
    assert!(report.proof < BUDGET / 2, "{:?}", report.proof);
    assert_eq!((report.survivors, report.leftovers), (vec![left.pid], vec![]));
    assert!(left.is_alive() && !leader.process.is_alive());
    left.kill();
}

fn is_nobodys(pid: i32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap().contains("\nUid:\t65534\t")
}

fn sorted(mut list: Vec<i32>) -> Vec<i32> {
    list.sort_unstable();
    list
}

// ---- where it cannot tell
#[test]
fn c52_without_a_process_table_the_group_is_ended_and_that_is_unconfirmed() {
    if !works(&[&NO_PROC[..], &["true"]].concat()) {
        return skip("needs a mount namespace of its own");
    }
    let ground = Ground::new();
    let leader = Leader::start(&ground, TWO, 2);
    let members: Vec<Watched> = ground.marked().into_iter().map(Watched::new).collect();
    let mut guard = Guard::ready(&mut member(&NO_PROC, &leader, &["--end-on-exit"]), "pin");
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(UNCONFIRMED), "unconfirmed", "end"));
    for member in members {
        member.assert_gone("a member");
    }
}

/// The kernel tells that the group is empty, once it is reaped. But what left it could not be looked for.
#[test]
fn c52_without_a_process_table_an_empty_group_shows_nothing_of_what_left_it() {
    if !works(&[&NO_PROC[..], &["true"]].concat()) {
        return skip("needs a mount namespace of its own");
    }
    let ground = Ground::new();
    // Alone: when an orphan is reaped is up to process 1.
    let mut leader = Leader::start(&ground, "exec sleep 60", 1);
    let before = [&LEADER_ON_3[..], &NO_PROC].concat();
    let mut guard = guard_command(&before, leader.pid(), &["--by-pidfd"]);
    let mut guard = Guard::ready(guard.process_group(0).stderr(leader.pidfd()), "pidfd");
    guard.say("end 9 0\n");
    leader.reap();
    assert_eq!(guard.report().facts(), (Some(UNCONFIRMED), "unconfirmed", "end"));
    assert_eq!(ground.marked(), []);
}

/// By a pidfd nothing is sent. By a pin something is: to the pin.
#[test]
fn without_a_process_table_members_of_another_user_are_never_taken_for_ended() {
    if !is_root() || !works(&[&NO_PROC[..], &AS_NOBODY, &["true"]].concat()) {
        return skip("needs root, setpriv and a mount namespace of its own");
    }
    let ground = Ground::new();
    let line = everybodys_helper(&ground);
    let nobody = [&NO_PROC[..], &AS_NOBODY, &["sh", "-c", &line]].concat();
    let leader = Leader::start(&ground, TWO, 2);
    let before = [&LEADER_ON_3[..], &nobody].concat();
    let mut guard = guard_command(&before, leader.pid(), &["--by-pidfd"]);
    let mut guard = Guard::ready(guard.process_group(0).stderr(leader.pidfd()), "pidfd");
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(REFUSED), "refused", "end"));
    let mut guard = Guard::ready(&mut member(&nobody, &leader, &[]), "pin");
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(UNCONFIRMED), "unconfirmed", "end"));
    assert_eq!(ground.marked().len(), 2);
}

#[test]
fn c50_a_process_table_that_hides_others_is_none() {
    if !is_root() || !works(&[&HIDING_PROC[..], &AS_NOBODY, &["true"]].concat()) {
        return skip("needs root, setpriv and a mount namespace of its own");
    }
    let ground = Ground::new();
    let line = everybodys_helper(&ground);
    let before = [&HIDING_PROC[..], &AS_NOBODY, &["sh", "-c", &line]].concat();
    let mut leader = ground.of(&[&AS_NOBODY[..], &["sh", "-c", TWO]].concat());
    let leader = Leader::spawn(leader.process_group(0));
    until("both members", || ground.marked().len() == 2);
    let members: Vec<Watched> = ground.marked().into_iter().map(Watched::new).collect();
    let mut guard = Guard::ready(&mut member(&before, &leader, &["--end-on-exit"]), "pin");
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(UNCONFIRMED), "unconfirmed", "end"));
    for member in members {
        member.assert_gone("a member");
    }
}

/// That process 1 can be seen shows nothing where it is the guard's own user's.
#[test]
fn c50_a_process_table_that_hides_others_but_not_process_1_is_none() {
    // Process 1 starts a member as root and becomes nobody, whom others of that user can see once it executes something.
    let root = "
my $nobody = shift;
system('mount -t proc -o hidepid=2 proc /proc') == 0 or exit 98;
POSIX::setsid();
my $member = fork;
exec 'sleep', '60' if !$member && POSIX::setpgid(0, 0);
POSIX::setpgid($member, $member);
$) = '65534 65534'; POSIX::setgid(65534); POSIX::setuid(65534);
exec $^X, '-MPOSIX', '-e', $nobody, $member, @ARGV;
";
    // Its status is the guard's; 99 when the member does not live, 96 when all is as it should be without a guard.
    let nobody = "
my $member = shift;
my $look = fork;
exit(-e '/proc/1/stat' && !-e qq(/proc/$member/stat) ? 96 : 97) if !$look;
waitpid $look, 0;
exit($? >> 8) if !@ARGV;
my $guard = fork;
exec @ARGV, '__group-guard', '--group', $member if !$guard && POSIX::setpgid(0, $member);
waitpid $guard, 0;
my $status = $? >> 8;
exit(waitpid($member, POSIX::WNOHANG()) == 0 ? $status : 99);
";
    let namespace = ["unshare", "-p", "-f", "-m", "--kill-child", "perl", "-MPOSIX", "-e", root, nobody];
    if !is_root() || command(&namespace).status().ok().and_then(|status| status.code()) != Some(96) {
        return skip("needs root, perl, and namespaces of its own with a process table that hides");
    }
    let ground = Ground::new();
    assert!(works(&["cp", HELPER, ground.folder.to_str().unwrap()]));
    let helper = ground.folder.join("holdfast-helper").display().to_string();
    let mut guard = command(&[&namespace[..], &[&helper]].concat());
    guard.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut guard = Guard::ready(&mut guard, "pin");
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(UNCONFIRMED), "unconfirmed", "end"));
}

/// Each member would have to be found in it. (As on a kernel that cannot signal a group by a pidfd.)
#[test]
fn c52_a_group_that_can_only_be_held_by_its_members_is_refused_without_a_process_table() {
    let ground = Ground::new();
    let filter = ground.folder.join("filter").display().to_string();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../__test__/fixtures/filter.c");
    let older = [filter.as_str(), "no-group-signal", "--"];
    if !works(&["cc", "-o", &filter, source]) || !works(&[&NO_PROC[..], &older, &["true"]].concat()) {
        return skip("needs a C compiler, seccomp, and a mount namespace of its own");
    }
    let leader = Leader::start(&ground, TWO, 2);
    let of = |before: &[&str]| {
        let before = [&LEADER_ON_3[..], before, &older].concat();
        let mut guard = guard_command(&before, leader.pid(), &["--by-pidfd"]);
        guard.process_group(0).stderr(leader.pidfd());
        guard
    };
    let report = Guard::start(&mut of(&NO_PROC)).report();
    assert_eq!(report.facts(), (Some(REFUSED), "refused", "table"));
    assert_eq!(ground.marked().len(), 2);
    // With one it is held, and ended.
    let mut guard = Guard::ready(&mut of(&[]), "members");
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
    assert_eq!(ground.marked(), []);
}
