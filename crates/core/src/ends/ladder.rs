//! The ladder: how an end begins, and when SIGKILL is due. First a signal that a process can act on, then, after the
//! grace, SIGKILL. A second request for an end can only shorten the grace.
//!
//! A value without a clock: `now` is always an argument. Which processes are signalled, and how, is decided elsewhere.

use std::time::{Duration, Instant};

use holdfast_wire::{Background, Lifetime, Reason};

use crate::sys::{SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGTERM};

/// From the first SIGKILL until survivors are reported.
pub const BUDGET: Duration = Duration::from_secs(5);
/// How long a set-uid program is left alone after SIGTERM, and how long a process that refuses signals may take to exit
/// by itself after the last success, as sudo(8) does when its command or its terminal is gone.
pub const REFUSAL_GRACE: Duration = Duration::from_millis(500);

/// The defaults of `holdfast run`, the starter and the guard. Those of the API, in src/options/values.ts, are the same.
pub const DEFAULTS: Lifetime = Lifetime {
    timeout: 0,
    kill_signal: SIGTERM,
    grace: 2_000,
    background: Background::End,
    background_grace: 500,
    background_settle: 100,
};

/// Signals that begin the end of `holdfast run` and of the starter, and are its first signal. Every other one is passed
/// on to the command's first process, as if that had been started in their place.
pub const ENDS: [i32; 4] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM];

/// An end that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndRequest {
    /// Why.
    pub reason: Reason,
    /// First signal.
    pub signal: i32,
    /// From there to SIGKILL.
    pub grace: Duration,
}

impl EndRequest {
    /// Asked for through the API, or by a signal to the runner. `grace` in milliseconds. A value below 0 stands for the
    /// call's own.
    pub fn by_user(lifetime: &Lifetime, signal: i32, grace: i64) -> EndRequest {
        let signal = if signal < 0 { lifetime.kill_signal } else { signal };
        let grace = u64::try_from(grace).unwrap_or(lifetime.grace);
        EndRequest { reason: Reason::End, signal, grace: Duration::from_millis(grace) }
    }

    /// The deadline is over, or the host is gone.
    pub fn for_reason(lifetime: &Lifetime, reason: Reason) -> EndRequest {
        EndRequest { reason, ..EndRequest::by_user(lifetime, -1, -1) }
    }

    /// The end of what is left when the command has exited.
    pub fn at_exit(lifetime: &Lifetime) -> EndRequest {
        let grace = Duration::from_millis(lifetime.background_grace);
        EndRequest { reason: Reason::Exit, signal: lifetime.kill_signal, grace }
    }

    /// When SIGKILL is due. As the first signal it is due at once.
    fn kill_at(&self, now: Instant) -> Instant {
        if self.signal == SIGKILL { now } else { now + self.grace }
    }
}

/// When a call that is started now is over its limit, if it has one.
pub fn deadline(lifetime: &Lifetime, now: Instant) -> Option<Instant> {
    (lifetime.timeout > 0).then(|| now + Duration::from_millis(lifetime.timeout))
}

/// An end that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    reason: Reason,
    first_signal: Option<i32>,
    kill_at: Instant,
}

impl Ladder {
    /// Begins an end.
    pub fn begin(request: EndRequest, now: Instant) -> Ladder {
        let kill_at = request.kill_at(now);
        let first_signal = (kill_at > now).then_some(request.signal);
        Ladder { reason: request.reason, first_signal, kill_at }
    }

    /// The end is asked for once more: it can only come sooner. Why it began, and the first signal, stay as they are.
    pub fn hasten(&mut self, request: EndRequest, now: Instant) {
        self.kill_at = self.kill_at.min(request.kill_at(now));
    }

    /// Why it began.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// To be sent at the beginning. None: SIGKILL at once.
    pub fn first_signal(&self) -> Option<i32> {
        self.first_signal
    }

    /// When SIGKILL is due.
    pub fn kill_at(&self) -> Instant {
        self.kill_at
    }

    /// Whether SIGKILL is due.
    pub fn is_over(&self, now: Instant) -> bool {
        self.kill_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn request(signal: i32, grace: Duration) -> EndRequest {
        EndRequest { reason: Reason::End, signal, grace }
    }

    #[test]
    fn sigkill_is_due_after_the_grace_and_not_before() {
        let now = Instant::now();
        let ladder = Ladder::begin(request(SIGINT, SECOND), now);
        assert_eq!((ladder.first_signal(), ladder.kill_at()), (Some(SIGINT), now + SECOND));
        assert!(!ladder.is_over(now));
        assert!(!ladder.is_over(now + SECOND - Duration::from_nanos(1)));
        assert!(ladder.is_over(now + SECOND));
    }

    #[test]
    fn without_a_grace_or_with_sigkill_there_is_no_first_signal() {
        let now = Instant::now();
        for request in [request(SIGTERM, Duration::ZERO), request(SIGKILL, SECOND)] {
            let ladder = Ladder::begin(request, now);
            assert_eq!(ladder.first_signal(), None, "{request:?}");
            assert!(ladder.is_over(now), "{request:?}");
        }
    }

    #[test]
    fn a_second_request_can_only_shorten_the_grace() {
        let now = Instant::now();
        let mut ladder = Ladder::begin(request(SIGTERM, SECOND * 2), now);
        ladder.hasten(request(SIGTERM, SECOND * 5), now);
        assert_eq!(ladder.kill_at(), now + SECOND * 2);
        ladder.hasten(request(SIGTERM, SECOND), now + SECOND / 2);
        assert_eq!(ladder.kill_at(), now + SECOND * 3 / 2);
        // It began before: that it is asked for now does not make it later.
        ladder.hasten(request(SIGTERM, SECOND), now + SECOND);
        assert_eq!(ladder.kill_at(), now + SECOND * 3 / 2);
        ladder.hasten(request(SIGKILL, SECOND * 5), now + SECOND);
        assert!(ladder.is_over(now + SECOND));
    }

    #[test]
    fn why_it_began_and_its_first_signal_stay() {
        let now = Instant::now();
        let mut ladder = Ladder::begin(EndRequest::for_reason(&DEFAULTS, Reason::Timeout), now);
        ladder.hasten(request(SIGKILL, Duration::ZERO), now);
        assert_eq!((ladder.reason(), ladder.first_signal()), (Reason::Timeout, Some(SIGTERM)));
    }

    #[test]
    fn each_reason_has_its_grace() {
        let lifetime = Lifetime { kill_signal: SIGINT, grace: 7_000, background_grace: 300, ..DEFAULTS };
        let (grace, short) = (SECOND * 7, Duration::from_millis(300));
        let of = |request: EndRequest| (request.reason, request.signal, request.grace);
        assert_eq!(of(EndRequest::by_user(&lifetime, -1, -1)), (Reason::End, SIGINT, grace));
        assert_eq!(of(EndRequest::by_user(&lifetime, SIGQUIT, 1_000)), (Reason::End, SIGQUIT, SECOND));
        assert_eq!(of(EndRequest::at_exit(&lifetime)), (Reason::Exit, SIGINT, short));
        let gone = EndRequest::for_reason(&lifetime, Reason::HostGone);
        assert_eq!(of(gone), (Reason::HostGone, SIGINT, grace));
    }

    #[test]
    fn a_limit_of_zero_is_none() {
        let now = Instant::now();
        assert_eq!(deadline(&DEFAULTS, now), None);
        assert_eq!(deadline(&Lifetime { timeout: 1_000, ..DEFAULTS }, now), Some(now + SECOND));
    }
}
