//! When a call ends, and how: the options that host, command line, keeper and plain child have in common.

use crate::Error;
use crate::bytes::Reader;

/// What becomes of what is left when the command exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Background {
    /// Ended.
    End,
    /// Runs on, contained.
    Keep,
}

/// Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// From the start until the end begins; 0 for no limit.
    pub timeout: u64,
    /// First signal of the ladder.
    pub kill_signal: i32,
    /// From there to SIGKILL.
    pub grace: u64,
    /// What becomes of what is left.
    pub background: Background,
    /// From `kill_signal` to SIGKILL for what is left when the command exits.
    pub background_grace: u64,
    /// How long what is left may go on working before its first signal. 0: not at all.
    pub background_settle: u64,
}

impl Lifetime {
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        into.extend(self.timeout.to_le_bytes());
        into.extend(self.kill_signal.to_le_bytes());
        into.extend(self.grace.to_le_bytes());
        into.push(self.background as u8);
        into.extend(self.background_grace.to_le_bytes());
        into.extend(self.background_settle.to_le_bytes());
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Lifetime {
            timeout: reader.u64()?,
            kill_signal: reader.i32()?,
            grace: reader.u64()?,
            background: match reader.u8()? {
                0 => Background::End,
                1 => Background::Keep,
                _ => return Err(Error::Malformed),
            },
            background_grace: reader.u64()?,
            background_settle: reader.u64()?,
        })
    }
}
