//! Messages between host, spawn helper and keeper.
//!
//! A stream socket carries frames: four bytes of length (little endian, of what follows), one byte of kind, the
//! payload. Integers are little endian, byte strings are length-prefixed. Both ends are built from one source
//! and shake hands on one version, so the format has no options and no compatibility rules.
//!
//! This crate does no I/O and has no unsafe code. Whatever bytes arrive, decoding gives a message or an
//! [`Error`]; an end that meets an error treats its peer as lost. So nothing is written that the other end would not
//! read: a spec is checked before ([`Unfit`]), and what a keeper or helper reports is bounded.

#![forbid(unsafe_code)]

mod bytes;
mod frame;
mod kind;
mod lifetime;
mod message;
mod report;
mod spec;

pub use frame::{Decoder, Frame, MAX_MESSAGE, MAX_SPEC};
pub use lifetime::{Background, Lifetime};
pub use message::{FromHelper, FromKeeper, ToHelper, ToKeeper};
pub use report::{By, EndFacts, Exit, Mechanism, Outcome, ProcessInfo, Reason, Settle, Step, Usage};
pub use spec::{MAX_NAME, MAX_STRINGS, NO_DESCRIPTOR, Spec, SpecView};

/// The version that both ends of a socket must agree on.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Processes named in a report, at most. The rest is only counted.
pub const MAX_NAMED: usize = 64;
/// Bytes of a process's name in a report, at most.
pub const MAX_PROCESS_NAME: usize = 64;

/// Why a spec cannot be sent, with the step of a start that it would have failed in. Nothing was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unfit {
    /// A name, or arguments and environment, are longer than a frame holds, and than any system takes.
    TooLong(Step),
    /// A name holds a NUL, or a place has no descriptor.
    Invalid(Step),
}

/// Bytes that are not a message of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Error {
    /// A frame announces more than its kind may have.
    Oversized,
    /// A payload ends too early, or goes on after its message.
    Malformed,
    /// A kind that this end does not take.
    UnknownKind(u8),
    /// A frame that starts something, or a part of it, came after [`Decoder::distrust`].
    Distrusted,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Oversized => f.write_str("a frame is larger than its kind allows"),
            Error::Malformed => f.write_str("a frame's payload is not a message"),
            Error::Distrusted => f.write_str("a frame that starts something is of another sender"),
            Error::UnknownKind(kind) => write!(f, "a frame has the unknown kind {kind}"),
        }
    }
}

impl std::error::Error for Error {}
