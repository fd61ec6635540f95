//! What a call reports to its environment, and to observers in other environments that wait for its end.

use std::sync::Mutex;

use holdfast_wire::{EndFacts, Exit, Mechanism, Step, Usage};

/// What has happened in a call.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The program was executed, as this pid.
    Started(Option<i32>),
    /// The program could not be executed; nothing of it ran.
    Failed {
        /// What failed.
        step: Step,
        /// The system's error code.
        errno: i32,
        /// The host itself met this, not the keeper.
        by_host: bool,
    },
    /// No keeper took the call.
    Refused {
        /// It is not known whether it ran.
        unclear: bool,
        /// The system's error code, or 0.
        errno: i32,
        /// What was tried.
        tried: String,
    },
    /// The first process ended; `None` when its exit status is not known.
    Exited(Option<Exit>, Usage),
    /// The keeper holds what runs on by this; it drains the pipes, unless they were cut off on their way.
    Taken {
        /// What holds it.
        mechanism: Mechanism,
        /// The keeper has the pipes. If not, they are still to be read here.
        pipes: bool,
    },
    /// The end, and the last event of a call.
    Ended(EndFacts),
}

/// Waits for the end of another environment's call. The call refers to it weakly and not by its handle: a handle is
/// used again once the environment that owned it is gone.
pub struct Observer {
    /// The handle by which its environment learns of the end.
    pub handle: u32,
    /// The end, once it is there.
    pub facts: Mutex<Option<EndFacts>>,
}
