//! Children of ours: reaping, with what they used; and finding them where there is no process table.
#![expect(unsafe_code, reason = "waitid with rusage has no safe wrapper")]

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::mem::MaybeUninit;

use holdfast_wire::{Exit, Usage};

use crate::sys::unix::child::{ChildState, EVERY_CHILD, LOOK, Waited, child_state, peek_any, waited};
use crate::sys::unix::pid::Pid;

/// A reaped child.
#[derive(Debug, Clone, Copy)]
pub struct Reaped {
    /// The number it had.
    pub pid: Pid,
    /// How it ended.
    pub exit: Exit,
    /// What it used, with the children that it waited for.
    pub usage: Usage,
}

/// waitid(2) with rusage. `Ok(None)`: children, but none in the state asked for.
pub(super) fn waitid(kind: libc::idtype_t, id: u32, options: i32) -> io::Result<Option<Reaped>> {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    let into = usage.as_mut_ptr();
    let found = waited(|info| {
        // SAFETY: `info` and `into` are valid for writes of their type for the length of the call.
        unsafe { libc::syscall(libc::SYS_waitid, kind, id, info, options, into) }
    })?;
    // SAFETY: zeroed, which is a valid rusage, and then written by the kernel.
    let usage = convert(&unsafe { usage.assume_init() });
    Ok(found.map(|Waited { pid, exit, .. }| Reaped { pid, exit, usage }))
}

fn convert(usage: &libc::rusage) -> Usage {
    let micros = |time: libc::timeval| time.tv_sec as u64 * 1_000_000 + time.tv_usec as u64;
    Usage {
        user: micros(usage.ru_utime),
        system: micros(usage.ru_stime),
        max_rss: usage.ru_maxrss as u64 * 1024,
    }
}

pub(super) const REAP: i32 = libc::WEXITED | libc::WNOHANG | EVERY_CHILD;

/// What [`reap`] would return, without reaping.
pub fn peek(pid: Pid) -> Option<Reaped> {
    waitid(libc::P_PID, pid.raw() as u32, LOOK).ok().flatten()
}

/// Reaps this child if it is a zombie.
pub fn reap(pid: Pid) -> Option<Reaped> {
    waitid(libc::P_PID, pid.raw() as u32, REAP).ok().flatten()
}

/// Reaps any zombie child. `Ok(None)`: children are left, all alive. `Err`: with ECHILD, no child at all.
pub fn reap_any() -> io::Result<Option<Reaped>> {
    waitid(libc::P_ALL, 0, REAP)
}

/// Our children, zombies included, except `others`: found by probing every pid with waitid(2), for a system without a
/// usable /proc. Not always all of them: calling it again when those are reaped finds the rest.
pub fn children_by_number(others: &BTreeSet<Pid>) -> Vec<Pid> {
    /// The highest that there can be (proc(5), pid_max).
    const HIGHEST: i32 = 4_194_304;
    const MANY: i32 = 32_768;
    // That there is no child at all takes one call, not four million.
    if peek_any().is_err() {
        return Vec::new();
    }
    let own = Pid::own().map_or(1, Pid::raw);
    let highest =
        fs::read_to_string("/proc/sys/kernel/pid_max").ok().and_then(|text| text.trim().parse().ok());
    let highest: i32 = highest.unwrap_or(HIGHEST);
    // Those that were started after us first: to try four million pids takes two seconds.
    let soon = own.saturating_add(MANY).min(highest);
    let ask = |range: std::ops::RangeInclusive<i32>| -> Vec<Pid> {
        let asked = range.filter_map(Pid::new).filter(|pid| !others.contains(pid));
        asked.filter(|&pid| child_state(pid) != ChildState::NotOurs).collect()
    };
    let found = [own..=soon, 2..=own, soon..=highest].into_iter().map(ask).find(|found| !found.is_empty());
    found.unwrap_or_default()
}
