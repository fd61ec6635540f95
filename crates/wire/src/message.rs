//! The messages, one enum per direction.

use crate::bytes::{Reader, put_string};
use crate::frame::{Decoder, Frame, put_frame};
use crate::kind;
use crate::report::{EndFacts, Exit, Mechanism, Step, Usage};
use crate::{Error, Spec, SpecView, Unfit};

/// Host to keeper.
#[derive(Debug)]
pub enum ToKeeper {
    /// Start this. The frame's first byte carries the descriptors.
    Spec(SpecView),
    /// Signal the first process, or the group.
    Signal {
        /// Signal number.
        signal: i32,
        /// The whole group.
        group: bool,
    },
    /// Climb the ladder.
    End {
        /// First signal, -1 for the spec's.
        signal: i32,
        /// Milliseconds to SIGKILL, -1 for the spec's.
        grace: i64,
    },
    /// Drain these read ends; they travel with the frame's first byte.
    HandOver {
        /// How many.
        count: u32,
    },
    /// The first process is a starter: it passes on what it is sent, so that the ladder's first signal is for it alone.
    Starter,
    /// This call is the keeper's last: a further spec must not be started.
    Last,
    /// The terminal has sent this to its group: SIGHUP, SIGINT or SIGQUIT. What is in there has it already.
    Terminal {
        /// Signal number.
        signal: i32,
    },
    /// The host has stopped itself, as it does when the command was stopped, and goes on.
    Continued,
}

impl ToKeeper {
    /// Decodes a frame.
    pub fn decode(frame: Frame) -> Result<Self, Error> {
        if frame.kind == kind::SPEC {
            return Ok(ToKeeper::Spec(SpecView::decode(frame.payload)?));
        }
        let mut reader = Reader(&frame.payload);
        let message = match frame.kind {
            kind::SIGNAL => ToKeeper::Signal { signal: reader.i32()?, group: reader.u8()? != 0 },
            kind::END => ToKeeper::End { signal: reader.i32()?, grace: reader.u64()? as i64 },
            kind::HAND_OVER => ToKeeper::HandOver { count: reader.u32()? },
            kind::STARTER => ToKeeper::Starter,
            kind::LAST => ToKeeper::Last,
            kind::TERMINAL => ToKeeper::Terminal { signal: reader.i32()? },
            kind::CONTINUED => ToKeeper::Continued,
            other => return Err(Error::UnknownKind(other)),
        };
        reader.end()?;
        Ok(message)
    }

    /// Appends a spec's frame, or nothing and why it cannot be one.
    pub fn put_spec(into: &mut Vec<u8>, spec: &Spec<'_>) -> Result<(), Unfit> {
        spec.check()?;
        put_frame(into, kind::SPEC, |into| spec.put(into));
        Ok(())
    }

    /// The spec that [`put_spec`](ToKeeper::put_spec) has written, for a start without a keeper.
    pub fn spec_in(bytes: &[u8]) -> Option<SpecView> {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        match ToKeeper::decode(decoder.next_frame().ok()??) {
            Ok(ToKeeper::Spec(spec)) => Some(spec),
            _ => None,
        }
    }

    /// Appends a signal's frame.
    pub fn put_signal(into: &mut Vec<u8>, signal: i32, group: bool) {
        put_frame(into, kind::SIGNAL, |into| {
            into.extend(signal.to_le_bytes());
            into.push(u8::from(group));
        });
    }

    /// Appends an end's frame.
    pub fn put_end(into: &mut Vec<u8>, signal: i32, grace: i64) {
        put_frame(into, kind::END, |into| {
            into.extend(signal.to_le_bytes());
            into.extend(grace.to_le_bytes());
        });
    }

    /// Appends a hand-over's frame.
    pub fn put_hand_over(into: &mut Vec<u8>, count: u32) {
        put_frame(into, kind::HAND_OVER, |into| into.extend(count.to_le_bytes()));
    }

    /// Appends a starter's frame.
    pub fn put_starter(into: &mut Vec<u8>) {
        put_frame(into, kind::STARTER, |_| ());
    }

    /// Appends the frame that makes a call the last one.
    pub fn put_last(into: &mut Vec<u8>) {
        put_frame(into, kind::LAST, |_| ());
    }

    /// Appends a terminal's frame.
    pub fn put_terminal(into: &mut Vec<u8>, signal: i32) {
        put_frame(into, kind::TERMINAL, |into| into.extend(signal.to_le_bytes()));
    }

    /// Appends the frame that says that the host goes on.
    pub fn put_continued(into: &mut Vec<u8>) {
        put_frame(into, kind::CONTINUED, |_| ());
    }
}

/// Keeper to host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromKeeper {
    /// The program was executed.
    Started,
    /// The program was not executed.
    Failed {
        /// The part that failed.
        step: Step,
        /// The system's code.
        errno: i32,
    },
    /// The first process ended.
    Exited {
        /// Its status.
        exit: Exit,
        /// Its usage.
        usage: Usage,
    },
    /// The handed-over pipes are drained from now on, and this holds what runs on.
    Taken(Mechanism),
    /// The handed-over pipes were cut off on their way: the host keeps them. This holds what runs on.
    NotTaken(Mechanism),
    /// The call's last message.
    Ended(EndFacts),
    /// The first process was stopped (in a terminal's group only).
    Stopped,
}

impl FromKeeper {
    /// Decodes a frame.
    pub fn decode(frame: &Frame) -> Result<Self, Error> {
        let mut reader = Reader(&frame.payload);
        let message = match frame.kind {
            kind::STARTED => FromKeeper::Started,
            kind::FAILED => FromKeeper::Failed { step: Step::read(&mut reader)?, errno: reader.i32()? },
            kind::EXITED => {
                let exit = match reader.u8()? {
                    0 => Exit::Code(reader.i32()?),
                    1 => Exit::Signal(reader.i32()?),
                    _ => return Err(Error::Malformed),
                };
                FromKeeper::Exited { exit, usage: Usage::read(&mut reader)? }
            }
            kind::TAKEN => FromKeeper::Taken(Mechanism::read(&mut reader)?),
            kind::NOT_TAKEN => FromKeeper::NotTaken(Mechanism::read(&mut reader)?),
            kind::ENDED => FromKeeper::Ended(EndFacts::read(&mut reader)?),
            kind::STOPPED => FromKeeper::Stopped,
            other => return Err(Error::UnknownKind(other)),
        };
        reader.end()?;
        Ok(message)
    }

    /// Appends the frame.
    pub fn put(&self, into: &mut Vec<u8>) {
        match self {
            FromKeeper::Started => put_frame(into, kind::STARTED, |_| ()),
            FromKeeper::Failed { step, errno } => put_frame(into, kind::FAILED, |into| {
                into.push(*step as u8);
                into.extend(errno.to_le_bytes());
            }),
            FromKeeper::Exited { exit, usage } => put_frame(into, kind::EXITED, |into| {
                let (tag, number) = match exit {
                    Exit::Code(code) => (0, code),
                    Exit::Signal(signal) => (1, signal),
                };
                into.push(tag);
                into.extend(number.to_le_bytes());
                usage.put(into);
            }),
            FromKeeper::Taken(mechanism) => put_frame(into, kind::TAKEN, |into| into.push(*mechanism as u8)),
            FromKeeper::NotTaken(mechanism) => {
                put_frame(into, kind::NOT_TAKEN, |into| into.push(*mechanism as u8));
            }
            FromKeeper::Ended(facts) => put_frame(into, kind::ENDED, |into| facts.put(into)),
            FromKeeper::Stopped => put_frame(into, kind::STOPPED, |_| ()),
        }
    }
}

/// Host to spawn helper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToHelper {
    /// Fork this many keepers.
    Want(u32),
}

impl ToHelper {
    /// Decodes a frame.
    pub fn decode(frame: &Frame) -> Result<Self, Error> {
        let mut reader = Reader(&frame.payload);
        let message = match frame.kind {
            kind::WANT => ToHelper::Want(reader.u32()?),
            other => return Err(Error::UnknownKind(other)),
        };
        reader.end()?;
        Ok(message)
    }

    /// Appends the frame.
    pub fn put(self, into: &mut Vec<u8>) {
        let ToHelper::Want(count) = self;
        put_frame(into, kind::WANT, |into| into.extend(count.to_le_bytes()));
    }
}

/// Spawn helper to host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FromHelper {
    /// The first message.
    Hello {
        /// The helper's.
        version: Vec<u8>,
        /// What its keepers will hold their broods by.
        mechanism: Mechanism,
    },
    /// A keeper is ready; its socket and its commitment travel with the frame's first byte.
    Keeper(i32),
    /// A keeper could not be forked.
    NoKeeper(i32),
    /// A busy keeper was lost, its brood was dealt with.
    KeeperEnded {
        /// The keeper.
        keeper: i32,
        /// The end of its call.
        facts: EndFacts,
    },
}

impl FromHelper {
    /// Decodes a frame.
    pub fn decode(frame: &Frame) -> Result<Self, Error> {
        let mut reader = Reader(&frame.payload);
        let message = match frame.kind {
            kind::HELLO => FromHelper::Hello {
                version: reader.string()?.to_vec(),
                mechanism: Mechanism::read(&mut reader)?,
            },
            kind::KEEPER => FromHelper::Keeper(reader.i32()?),
            kind::NO_KEEPER => FromHelper::NoKeeper(reader.i32()?),
            kind::KEEPER_ENDED => {
                FromHelper::KeeperEnded { keeper: reader.i32()?, facts: EndFacts::read(&mut reader)? }
            }
            other => return Err(Error::UnknownKind(other)),
        };
        reader.end()?;
        Ok(message)
    }

    /// Appends the frame.
    pub fn put(&self, into: &mut Vec<u8>) {
        match self {
            FromHelper::Hello { version, mechanism } => put_frame(into, kind::HELLO, |into| {
                put_string(into, version);
                into.push(*mechanism as u8);
            }),
            FromHelper::Keeper(pid) => put_frame(into, kind::KEEPER, |into| into.extend(pid.to_le_bytes())),
            FromHelper::NoKeeper(errno) => {
                put_frame(into, kind::NO_KEEPER, |into| into.extend(errno.to_le_bytes()));
            }
            FromHelper::KeeperEnded { keeper, facts } => put_frame(into, kind::KEEPER_ENDED, |into| {
                into.extend(keeper.to_le_bytes());
                facts.put(into);
            }),
        }
    }
}
