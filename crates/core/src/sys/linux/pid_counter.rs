//! The numbers that the kernel gives out: in turn, and from the start again when it has reached the highest.

use std::fs;

use crate::sys::unix::pid::Pid;

/// The number given out last in our pid namespace (proc_loadavg(5)).
pub(super) fn last_number() -> Option<Pid> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    Pid::new(text.trim_end().rsplit(' ').next()?.parse().ok()?)
}

/// A snapshot of the pid allocator.
///
/// Pids ascend, and wrap at pid_max; until it wraps no pid is given out a second time.
#[derive(Debug, Clone, Copy)]
pub struct PidCounter {
    last: i32,
    /// Processes and threads started since boot, everywhere.
    started: u64,
    /// And those there are.
    alive: u64,
    highest: u64,
}

impl PidCounter {
    /// The counter now. `None` where it cannot be read.
    pub fn now() -> Option<PidCounter> {
        let number = |text: &str| text.trim().parse::<u64>().ok();
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let load = fs::read_to_string("/proc/loadavg").ok()?;
        Some(PidCounter {
            last: last_number()?.raw(),
            started: number(stat.lines().find_map(|line| line.strip_prefix("processes "))?)?,
            alive: number(load.split(' ').nth(3)?.split('/').nth(1)?)?,
            highest: number(&fs::read_to_string("/proc/sys/kernel/pid_max").ok()?)?,
        })
    }

    /// Whether a number that was in use then has certainly not been given out since.
    pub fn has_not_come_around_to(&self, pid: Pid, then: &PidCounter) -> bool {
        let started = self.started.saturating_sub(then.started);
        // It may have skipped as many as are alive, and half a turn is more than enough.
        let less_than_a_turn = started + self.alive.max(then.alive) < self.highest / 2;
        pid.raw() <= then.last && then.last <= self.last && less_than_a_turn
    }
}

/// Every number that was given out since this one, unless there are too many to ask for each.
pub(super) fn numbers_since(first: Pid) -> Option<impl Iterator<Item = Pid>> {
    const MOST: i32 = 8_192;
    let last = last_number()?;
    let is_few = (0..MOST).contains(&(last.raw() - first.raw()));
    is_few.then(|| (first.raw()..=last.raw()).filter_map(Pid::new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_given_out_in_turn() {
        let pid = |raw| Pid::new(raw).unwrap();
        let turn = |last, started| PidCounter { last, started, alive: 200, highest: 32_768 };
        let then = turn(1_000, 50_000);
        assert!(turn(1_000, 50_000).has_not_come_around_to(pid(1_000), &then));
        assert!(turn(9_000, 58_000).has_not_come_around_to(pid(700), &then));
        // Given out after that, around, or perhaps around.
        assert!(!turn(9_000, 58_000).has_not_come_around_to(pid(1_001), &then));
        assert!(!turn(900, 82_000).has_not_come_around_to(pid(700), &then));
        assert!(!turn(9_000, 50_000 + 40_000).has_not_come_around_to(pid(700), &then));
        let crowd = PidCounter { alive: 20_000, ..turn(1_100, 50_100) };
        assert!(!crowd.has_not_come_around_to(pid(700), &then));
    }
}
