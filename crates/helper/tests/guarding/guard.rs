//! The guard by its command line: what it refuses, what it is told, and whose end it sees.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::common::{Ground, HELPER, Watched, children_of, stat, until};
use crate::namespace::{choose_next_number, is_inside};
use crate::processes::{
    ENDED, Guard, Leader, Lines, REFUSED, Report, TWO, USAGE, command, everybodys_helper, guard_command,
    is_root, member, member_with, outsider, pidfd_of, skip, works,
};

/// Two members who say what they hear, once they can.
const HEARS: &str = "trap 'echo term >> ran; exit' TERM; sleep 60 & echo up >> ran; wait";

fn two(ground: &Ground) -> Leader {
    Leader::start(ground, TWO, 2)
}

fn hearing(ground: &Ground) -> Leader {
    let leader = Leader::start(ground, HEARS, 2);
    until("the trap is set", || ground.ran() == "up\n");
    leader
}

fn assert_refuses(command: &mut Command, why: &str) {
    let report = Guard::start(command).report();
    assert_eq!(report.facts(), (Some(REFUSED), "refused", why), "{command:?}");
}

// ---- what it refuses
#[test]
fn c30_a_wrong_command_line_is_64_and_nothing_is_signalled() {
    let ground = Ground::new();
    let leader = two(&ground);
    let pid = leader.pid();
    let group = pid.to_string();
    let numbers = ["", "0", "1", "-1", "x", "2147483648", "4294967296", "99999999999999999999", "0x10"];
    let forms =
        [format!("-{pid}"), format!("+{pid}"), format!(" {pid}"), format!("{pid}.0"), format!("{pid}\n")];
    let mut lines: Vec<Vec<&str>> = vec![vec![], vec!["--group"], vec!["--end-on-exit"], vec![&group]];
    lines.extend(numbers.iter().map(|number| vec!["--group", *number]));
    lines.extend(forms.iter().map(|number| vec!["--group", number.as_str()]));
    let more = [&["--grace"][..], &["--grace", "-1"], &["--grace", "1s"], &["--frobnicate"], &["--"], &["x"]];
    lines.extend(more.iter().map(|more| [&["--group", &group], *more].concat()));
    for line in lines {
        // As a member, so that what it does by mistake would show.
        let mut guard = Command::new(HELPER);
        guard.arg("__group-guard").args(&line).process_group(pid).stdin(Stdio::null());
        let output = guard.output().unwrap();
        assert_eq!(output.status.code(), Some(USAGE), "{line:?}");
        assert_eq!(output.stdout, b"", "{line:?}");
        let cried = String::from_utf8(output.stderr).unwrap();
        assert!(cried.starts_with("holdfast: ") && cried.contains("usage: __group-guard"), "{cried}");
    }
    assert_eq!(ground.marked().len(), 2);
}

#[test]
fn a_group_that_it_is_no_member_of_is_refused() {
    let ground = Ground::new();
    let leader = two(&ground);
    // In this session, in another one, and of nobody.
    assert_refuses(guard_command(&[], leader.pid(), &["--end-on-exit"]).process_group(0), "member");
    let other_ground = Ground::new();
    let other = Leader::spawn(&mut other_ground.of(&["setsid", "sh", "-c", TWO]));
    until("all of the other session", || other_ground.marked().len() == 2);
    assert_eq!(stat(other.pid())[3], other.pid().to_string(), "it leads a session");
    assert_refuses(guard_command(&[], other.pid(), &["--end-on-exit"]).process_group(0), "member");
    assert_refuses(guard_command(&[], i32::MAX, &[]).process_group(0), "member");
    // Neither is it started there: a process of another session cannot join.
    let error = member(&[], &other, &[]).spawn().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
    assert_eq!((ground.marked().len(), other_ground.marked().len()), (2, 2));
}

/// It could not get out of it, and would signal itself.
#[test]
fn a_group_that_it_leads_is_refused() {
    let line = "exec \"$0\" __group-guard --group $$ --end-on-exit";
    let mut guard = command(&["sh", "-c", line, HELPER]);
    assert_refuses(guard.process_group(0).stdout(Stdio::piped()), "member");
}

#[test]
fn a_descriptor_that_is_not_the_leaders_is_refused() {
    let ground = Ground::new();
    let leader = two(&ground);
    let follower = children_of(leader.pid())[0];
    let another = two(&Ground::new());
    // Of a member that does not lead, under its number and under the group's; of another leader.
    assert_refuses(&mut outsider(pidfd_of(follower), follower, &["--end-on-exit"]), "dead");
    assert_refuses(&mut outsider(pidfd_of(follower), leader.pid(), &["--end-on-exit"]), "member");
    assert_refuses(&mut outsider(another.pidfd(), leader.pid(), &["--end-on-exit"]), "member");
    // Of no process at all, or closed.
    assert_refuses(
        &mut outsider(File::open("/dev/null").unwrap(), leader.pid(), &["--end-on-exit"]),
        "unheld",
    );
    let mut closed = guard_command(
        &["sh", "-c", "exec \"$0\" \"$@\" 3<&-"],
        leader.pid(),
        &["--by-pidfd", "--end-on-exit"],
    );
    assert_refuses(closed.process_group(0), "unheld");
    assert_refuses(closed.process_group(leader.pid()), "unheld");
    assert_eq!(ground.marked().len(), 2);
}

#[test]
fn a_leader_that_was_reaped_before_the_group_was_held_is_refused() {
    // From outside: nobody is left.
    let ground = Ground::new();
    let mut leader = Leader::start(&ground, "exec sleep 60", 1);
    let pidfd = leader.pidfd();
    leader.process.kill();
    leader.reap();
    assert_refuses(&mut outsider(pidfd, leader.pid(), &["--end-on-exit"]), "dead");

    // As a member: whether the group is still the one that was meant cannot be told.
    let mut leader = two(&ground);
    let pidfd = leader.pidfd();
    leader.process.kill();
    leader.reap();
    assert_refuses(&mut member_with(pidfd, &leader, &["--end-on-exit"]), "dead");
    assert_eq!(ground.marked().len(), 1);
    Watched::new(ground.marked()[0]).kill();
}

#[test]
fn c31_a_number_that_was_given_out_again_is_refused() {
    if !is_inside("guard::c31_a_number_that_was_given_out_again_is_refused") {
        return;
    }
    let ground = Ground::new();
    let mut leader = Leader::start(&ground, "exec sleep 60", 1);
    let pidfd = leader.pidfd();
    leader.process.kill();
    leader.reap();
    let stranger_ground = Ground::new();
    let Some(stranger) = numbered(leader.pid(), &stranger_ground) else {
        return skip("the next process number cannot be chosen here");
    };
    assert_refuses(&mut outsider(pidfd.try_clone().unwrap(), leader.pid(), &["--end-on-exit"]), "dead");
    assert_refuses(&mut member_with(pidfd, &stranger, &["--end-on-exit"]), "dead");
    assert!(stranger.process.is_alive());
}

/// A leader with this number, which nobody has.
fn numbered(number: i32, ground: &Ground) -> Option<Leader> {
    for _ in 0..20 {
        if !choose_next_number(number) {
            return None;
        }
        let leader = Leader::start(ground, "exec sleep 60", 1);
        if leader.pid() == number {
            return Some(leader);
        }
    }
    panic!("somebody has number {number}")
}

#[test]
fn c31_the_number_of_a_group_that_it_watched_is_given_out_again_and_nobody_is_signalled() {
    if !is_inside(
        "guard::c31_the_number_of_a_group_that_it_watched_is_given_out_again_and_nobody_is_signalled",
    ) {
        return;
    }
    let ground = Ground::new();
    let mut leader = Leader::start(&ground, "exec sleep 60", 1);
    let mut guard = Guard::ready(&mut outsider(leader.pidfd(), leader.pid(), &["--end-on-exit"]), "pidfd");
    // It is told of the end only when the number is another's.
    guard.process.signal(Signal::STOP);
    until("the guard is stopped", || stat(guard.process.pid)[0] == "T");
    leader.process.kill();
    leader.reap();
    let stranger_ground = Ground::new();
    let Some(stranger) = numbered(leader.pid(), &stranger_ground) else {
        return skip("the next process number cannot be chosen here");
    };
    guard.say("end 9 0\n");
    guard.process.signal(Signal::CONT);
    assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
    assert!(stranger.process.is_alive());
}

#[test]
fn c31_the_number_of_a_pinned_group_is_not_given_out_again() {
    if !is_inside("guard::c31_the_number_of_a_pinned_group_is_not_given_out_again") {
        return;
    }
    let ground = Ground::new();
    let mut leader = two(&ground);
    let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
    leader.process.kill();
    leader.reap();
    // The last one, of which the guard is not to hear yet.
    guard.process.signal(Signal::STOP);
    until("the guard is stopped", || stat(guard.process.pid)[0] == "T");
    Watched::new(ground.marked()[0]).kill();
    until("nobody is left", || ground.marked().is_empty());
    if !choose_next_number(leader.pid()) {
        return skip("the next process number cannot be chosen here");
    }
    let next_ground = Ground::new();
    let next = Leader::start(&next_ground, "exec sleep 60", 1);
    assert_ne!(next.pid(), leader.pid());
    guard.say("end 9 0\n");
    guard.process.signal(Signal::CONT);
    // It may have been stopped when it was about to find by itself that nobody is left.
    let report = guard.report();
    assert_eq!((report.code, report.outcome.as_str()), (Some(ENDED), "ended"));
    assert!(next.process.is_alive());
}

/// No process can be made, and so no pin.
#[test]
fn a_group_that_cannot_be_pinned_is_refused() {
    let before = ["setpriv", "--reuid", "65532", "--clear-groups", "prlimit", "--nproc=1:1"];
    if !is_root() || !works(&[&before[..], &["true"]].concat()) {
        return skip("another user needs root, setpriv and prlimit");
    }
    let ground = Ground::new();
    let leader = two(&ground);
    let line = everybodys_helper(&ground);
    let mut guard = member(&[&before[..], &["sh", "-c", &line]].concat(), &leader, &["--end-on-exit"]);
    assert_refuses(&mut guard, "unheld");
    assert_eq!(ground.marked().len(), 2);
}

/// Nothing was said of the leader's end: it is not to be taken for gone.
#[test]
fn a_leader_that_cannot_be_opened_is_not_taken_for_gone() {
    let few = ["prlimit", "--nofile=4:4"];
    if !works(&[&few[..], &["true"]].concat()) {
        return skip("needs prlimit");
    }
    let ground = Ground::new();
    let leader = two(&ground);
    assert_refuses(&mut member(&few, &leader, &["--end-on-exit"]), "unheld");
    assert_eq!(ground.marked().len(), 2);
    assert!(leader.process.is_alive());
}

/// The descriptor names a group, of which the guard is a member, and the number another one, or none.
#[test]
fn a_reaped_leaders_descriptor_and_a_wrong_number_stop_nobody_else() {
    let other_ground = Ground::new();
    // One of its children has left it.
    let other = Leader::start(&other_ground, "sleep 60 & setsid sleep 60 & wait", 3);
    let bystanders = [&[other.pid()][..], &children_of(other.pid())].concat();
    until("one has left", || {
        bystanders.iter().any(|&pid| pid != other.pid() && stat(pid)[2] == pid.to_string())
    });
    let bystanders: Vec<Watched> = bystanders.into_iter().map(Watched::new).collect();
    for number in [i32::MAX, other.pid()] {
        let ground = Ground::new();
        let mut leader = two(&ground);
        let [last] = children_of(leader.pid())[..] else { panic!("one child") };
        let last = Watched::new(last);
        // It becomes the guard when the leader is reaped: as long as there was one, it could join.
        let before = ["sh", "-c", "read -r line; exec \"$0\" \"$@\" 3<&2 2>/dev/null"];
        let mut guard = guard_command(&before, number, &["--by-pidfd", "--end-on-exit"]);
        let mut guard = Guard::start(guard.process_group(leader.pid()).stderr(leader.pidfd()));
        leader.process.kill();
        leader.reap();
        guard.say("go\n");
        let held = guard.said.next().unwrap();
        assert_eq!(held, "refused dead", "{number}");
        assert!(last.is_alive());
        assert_ne!(stat(last.pid)[0], "T");
        last.kill();
        // It has not stopped itself.
        guard.process.assert_gone("the guard");
        for bystander in &bystanders {
            assert!(bystander.is_alive(), "{number}: {}", bystander.pid);
            assert_ne!(stat(bystander.pid)[0], "T", "{number}");
        }
    }
    bystanders.iter().for_each(Watched::kill);
}

/// As in a pid namespace whose first process was started into a group from outside.
#[test]
fn a_group_without_a_number_is_no_hindrance() {
    let inside = ["unshare", "-p", "-f", "--kill-child", "sh", "-c", "\"$0\" \"$@\"; exit $?"];
    let own = |words: &[&str]| command(&[&inside[..], words].concat()).output().unwrap();
    if !works(&[&inside[..], &["true"]].concat()) {
        return skip("no pid namespace can be made here");
    }
    let output = own(&[HELPER, "__session-starter", "--", "sh", "-c", "exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    let output = own(&[HELPER, "__group-guard", "--group", "77"]);
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!((output.status.code(), said.as_str()), (Some(REFUSED), "refused member\n"));
}

// ---- how it stands
#[test]
fn when_it_is_ready_it_is_outside_and_its_pin_inside() {
    let ground = Ground::new();
    let leader = two(&ground);
    let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
    assert_pinned(guard.process.pid, leader.pid());
    guard.close();
    assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "host-gone"));
    assert_eq!(ground.marked(), []);
}

/// A group of its own; one child, a zombie, in the other.
pub fn assert_pinned(guard: i32, group: i32) {
    assert_eq!(stat(guard)[2], guard.to_string());
    let pins: Vec<_> = children_of(guard).into_iter().map(|pin| stat(pin)[..3].to_vec()).collect();
    assert_eq!(pins, [["Z".to_owned(), guard.to_string(), group.to_string()]]);
}

/// The kernel would reap its pin.
#[test]
fn c55_an_ignored_sigchld_that_it_inherits_does_not_cost_it_the_pin() {
    let ignoring = ["env", "--ignore-signal=CHLD"];
    let output =
        command(&[&ignoring[..], &["grep", "SigIgn", "/proc/self/status"]].concat()).output().unwrap();
    let ignored = String::from_utf8(output.stdout).unwrap();
    let ignored = u64::from_str_radix(ignored.trim_start_matches("SigIgn:").trim(), 16).unwrap();
    assert_ne!(ignored & 1 << 16, 0, "it is not passed on");

    let ground = Ground::new();
    let leader = two(&ground);
    let mut guard = Guard::ready(&mut member(&ignoring, &leader, &[]), "pin");
    assert_pinned(guard.process.pid, leader.pid());
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
    assert_eq!(ground.marked(), []);
}

#[test]
fn c56_signals_that_can_be_heard_do_nothing_to_it() {
    let ground = Ground::new();
    let leader = two(&ground);
    let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
    for signal in [
        Signal::HUP,
        Signal::INT,
        Signal::QUIT,
        Signal::TERM,
        Signal::PIPE,
        Signal::ALARM,
        Signal::USR1,
        Signal::USR2,
        Signal::TSTP,
        Signal::TTIN,
        Signal::TTOU,
        Signal::CHILD,
        Signal::WINCH,
    ] {
        assert!(guard.process.signal(signal));
    }
    // It is neither gone nor stopped, and holds the group as before.
    guard.say("end 9 0\n");
    assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
    assert_eq!(ground.marked(), []);
}

// ---- what it is told
#[test]
fn end_is_the_signal_once_to_everyone_and_names_what_was_left() {
    let ground = Ground::new();
    let leader = hearing(&ground);
    let follower = children_of(leader.pid())[0];
    let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
    guard.say("end 15 60000\n");
    let report = guard.report();
    assert_eq!(report.facts(), (Some(ENDED), "ended", "end"));
    assert_eq!((report.leftovers, report.survivors), (vec![follower], vec![]));
    assert_eq!(ground.marked(), []);
    assert_eq!(ground.ran(), "up\nterm\n");
}

/// Each of them while the guard looks, or begins to wait, for another: none of their ends may be missed.
#[test]
fn it_does_not_wait_longer_than_for_the_last_member() {
    let ground = Ground::new();
    let eight = "for i in 1 2 3 4 5 6 7; do sleep 60 & done; exec sleep 60";
    for _ in 0..60 {
        let leader = Leader::start(&ground, eight, 8);
        let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
        guard.say("end 15 60000\n");
        // `report` does not wait for a minute.
        assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
        assert_eq!(ground.marked(), []);
    }
}

#[test]
fn a_later_end_shortens_the_grace() {
    let ground = Ground::new();
    let leader = Leader::start(&ground, "trap '' TERM; sleep 60 & echo up >> ran; wait", 2);
    until("the trap is set", || ground.ran() == "up\n");
    let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
    guard.say("end 15 60000\n");
    guard.say("end 15 0\n");
    // Not after a minute, for which `report` does not wait.
    assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
    assert_eq!(ground.marked(), []);
}

#[test]
fn sigkill_and_the_hosts_own_end_shorten_the_grace() {
    for how in ["end 9 60000\n", ""] {
        let ground = Ground::new();
        let leader = Leader::start(&ground, "trap '' TERM; sleep 60 & echo up >> ran; wait", 2);
        until("the trap is set", || ground.ran() == "up\n");
        let mut guard = Guard::ready(&mut member(&[], &leader, &["--grace", "50"]), "pin");
        guard.say("end 15 60000\n");
        guard.say(how);
        if how.is_empty() {
            guard.close();
        }
        assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
        assert_eq!(ground.marked(), []);
    }
}

#[test]
fn what_is_released_lives_on() {
    let releases: [&[&str]; 5] = [
        &["release\n"],
        &["rel", "ease\n"],
        &[
            "end\nend 15\nend 0 0\nend 65 0\nend -9 0\nend 9 -1\nend 9 x\nrelease now\n\n\0\n\u{fffd}\n",
            "release\n",
        ],
        &["end 9 0 0\n", " release \n"],
        &["release\nend 9 0\n"],
    ];
    for words in releases {
        let ground = Ground::new();
        let leader = two(&ground);
        let mut guard = Guard::ready(&mut member(&[], &leader, &["--end-on-exit"]), "pin");
        for word in words {
            guard.say(word);
        }
        // Queued words come before the end.
        guard.close();
        assert_eq!(guard.report().facts(), (Some(ENDED), "released", "release"), "{words:?}");
        assert_eq!(ground.marked().len(), 2);
    }
}

#[test]
fn an_end_that_is_followed_by_the_hosts_own_is_an_end() {
    let ground = Ground::new();
    let leader = two(&ground);
    let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
    guard.say("end 9 0\nrelease\n");
    guard.close();
    assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "end"));
    assert_eq!(ground.marked(), []);
}

#[test]
fn half_a_word_is_none_when_the_host_is_gone() {
    for half in ["", "r", "release", "end 9 0", "\n\n", "garbage\nrelease"] {
        let ground = Ground::new();
        let leader = two(&ground);
        let mut guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
        guard.say(half);
        guard.close();
        assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "host-gone"), "{half:?}");
        assert_eq!(ground.marked(), []);
    }
}

#[test]
fn a_line_without_an_end_is_no_word_and_neither_is_a_part_of_it() {
    // Whatever the guard reads at once, some of these end where it would cut.
    for length in [511, 512, 513, 4095, 4096, 4097, 4608, 5120, 70_000] {
        let ground = Ground::new();
        let leader = two(&ground);
        let mut guard = Guard::ready(&mut member(&[], &leader, &["--end-on-exit"]), "pin");
        guard.say(&format!("{}release\n", "x".repeat(length)));
        guard.close();
        assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "host-gone"), "{length}");
        assert_eq!(ground.marked(), []);
    }
    // What comes behind it is heard; so is what comes behind many lines.
    for before in ["x".repeat(70_000) + "\n", "x\n".repeat(30_000)] {
        let ground = Ground::new();
        let leader = two(&ground);
        let mut guard = Guard::ready(&mut member(&[], &leader, &["--end-on-exit"]), "pin");
        guard.say(&before);
        guard.say("release\n");
        guard.close();
        assert_eq!(guard.report().facts(), (Some(ENDED), "released", "release"));
        assert_eq!(ground.marked().len(), 2);
    }
}

// ---- whose end it sees
#[test]
fn the_hosts_end_is_the_ladder_with_its_grace() {
    for (grace, ran) in [("0", "up\n"), ("60000", "up\nterm\n")] {
        let ground = Ground::new();
        let leader = hearing(&ground);
        let mut guard = Guard::ready(&mut member(&[], &leader, &["--grace", grace]), "pin");
        guard.close();
        assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "host-gone"));
        assert_eq!(ground.marked(), []);
        assert_eq!(ground.ran(), ran, "--grace {grace}");
    }
}

/// Its standard input does not end: somebody else has the other end as well.
#[test]
fn a_parent_that_is_gone_is_the_hosts_end() {
    let ground = Ground::new();
    let leader = two(&ground);
    // The guard's parent; a member, so that the guard is one.
    let host = "exec 4<&0; \"$0\" __group-guard --group \"$1\" <&4 4<&- & exec sleep 60 <&4 4<&-";
    let mut host = command(&["sh", "-c", host, HELPER, &leader.pid().to_string()]);
    host.process_group(leader.pid()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut host = host.spawn().unwrap();
    let mut said = Lines::new(host.stdout.take().unwrap());
    assert_eq!(said.next().unwrap(), "ready pin");
    let [guard] = children_of(host.id() as i32)[..] else { panic!("one child") };
    let guard = Watched::new(guard);
    assert_eq!(ground.marked().len(), 2);
    host.kill().unwrap();
    let report = Report::new(None, &said.rest());
    assert_eq!((report.outcome.as_str(), report.reason.as_str()), ("ended", "host-gone"));
    guard.assert_gone("the guard");
    host.wait().unwrap();
    assert_eq!(ground.marked(), []);
}

#[test]
fn c05_what_is_left_at_the_leaders_exit_is_swept_only_if_that_was_asked_for() {
    for by in ["pin", "pidfd"] {
        let guard_of = |leader: &Leader, options: &[&str]| match by {
            "pin" => Guard::ready(&mut member(&[], leader, options), by),
            _ => Guard::ready(&mut outsider(leader.pidfd(), leader.pid(), options), by),
        };
        let ground = Ground::new();
        let mut leader = two(&ground);
        let guard = guard_of(&leader, &["--end-on-exit"]);
        leader.process.kill();
        leader.reap();
        let report = guard.report();
        assert_eq!(report.facts(), (Some(ENDED), "ended", "exit"), "{by}");
        assert_eq!(report.leftovers.len(), 1);
        assert_eq!(ground.marked(), []);

        let mut leader = two(&ground);
        let mut guard = guard_of(&leader, &[]);
        leader.process.kill();
        leader.reap();
        let last = Watched::new(ground.marked()[0]);
        // A word and no answer: it has looked by then, and goes on.
        guard.say("nothing\n");
        assert!(last.is_alive() && guard.process.is_alive());
        last.kill();
        assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "exit"), "{by}");
    }
}

/// None of it is a word.
#[test]
fn input_without_an_end_does_not_keep_it_from_the_leaders_exit() {
    for junk in ["yes", "tr '\\0' x < /dev/zero"] {
        let ground = Ground::new();
        let mut leader = two(&ground);
        let mut source = command(&["timeout", "30", "sh", "-c", junk]);
        let mut source = source.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut reader = member(&[], &leader, &["--end-on-exit"]);
        let guard = Guard::ready(reader.stdin(source.stdout.take().unwrap()), "pin");
        // It has the other end as well.
        drop(reader);
        until("it has read much of it", || has_read(guard.process.pid) > 4_000_000);
        leader.process.kill();
        leader.reap();
        assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "exit"), "{junk}");
        assert_eq!(ground.marked(), []);
        // Nobody reads any more.
        source.wait().unwrap();
    }
}

fn has_read(pid: i32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    io.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

/// Whatever the guard is about to look at or to wait for.
#[test]
fn a_leader_that_leaves_when_the_guard_begins_to_watch_is_noticed() {
    let ground = Ground::new();
    for _ in 0..100 {
        let mut leader = Leader::spawn(ground.of(&["sleep", "60"]).process_group(0));
        let guard = Guard::ready(&mut member(&[], &leader, &[]), "pin");
        leader.process.kill();
        leader.reap();
        assert_eq!(guard.report().facts(), (Some(ENDED), "ended", "exit"));
    }
}
