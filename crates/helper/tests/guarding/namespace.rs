//! Tests that need process numbers, or users, of their own: they run once more as processes of a pid namespace.

use std::process::{Command, Stdio};

use crate::processes::{skip, works};

const INSIDE: &str = "GUARDING_INSIDE";

/// Whether the caller is to go on: it is in the namespace. Elsewhere the test of this name is run in one, and has to
/// succeed there.
pub fn is_inside(test: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let own: &[&str] = if rustix::process::geteuid().is_root() { &[] } else { &["-r"] };
    let namespace = [&["unshare"], own, &["-p", "-f", "--mount-proc", "--kill-child"]].concat();
    if !works(&[&namespace[..], &["true"]].concat()) {
        skip("no pid namespace can be made here");
        return false;
    }
    // The shell is process 1 there, and reaps; the namespace does not outlive the time.
    let output = Command::new("timeout")
        .args(["-s", "KILL", "60"])
        .args(namespace)
        .args(["sh", "-c", "\"$0\" \"$@\"; exit $?"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture", "--test-threads", "1"])
        .env(INSIDE, "1")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let cried = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}{cried}");
    // What it skipped, without its name.
    let skipped = cried.lines().filter_map(|line| line.strip_prefix("skipped: ")?.split_once(": "));
    skipped.for_each(|(_, why)| skip(why));
    false
}

/// Makes the process that is started next have this number (a file of CONFIG_CHECKPOINT_RESTORE).
pub fn choose_next_number(number: i32) -> bool {
    std::fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).is_ok()
}
