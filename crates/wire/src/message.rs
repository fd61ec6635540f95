//! The messages, one enum per direction.

use crate::bytes::{Reader, put_string};
use crate::frame::{Frame, put_frame};
use crate::{Error, MAX_PROCESS_NAME, Spec, SpecView, Unfit};

/// The kinds, one number space for all directions, so that a frame on the wrong socket is never taken for
/// another.
pub(crate) mod kind {
    pub const SPEC: u8 = 1;
    pub const SIGNAL: u8 = 2;
    pub const END: u8 = 3;
    pub const HAND_OVER: u8 = 4;
    pub const STARTER: u8 = 5;
    pub const LAST: u8 = 6;
    pub const TERMINAL: u8 = 7;
    pub const CONTINUED: u8 = 8;

    pub const STARTED: u8 = 18;
    pub const FAILED: u8 = 19;
    pub const EXITED: u8 = 20;
    pub const TAKEN: u8 = 21;
    pub const ENDED: u8 = 22;
    pub const STOPPED: u8 = 23;
    pub const NOT_TAKEN: u8 = 24;

    pub const WANT: u8 = 32;

    pub const HELLO: u8 = 48;
    pub const KEEPER: u8 = 49;
    pub const NO_KEEPER: u8 = 50;
    pub const KEEPER_ENDED: u8 = 51;

    /// What makes the receiver start a process.
    pub const STARTING: [u8; 2] = [SPEC, WANT];
}

/// A number that stands for one of a few words; an unknown number is an error.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name { $($(#[$item_doc])* $item,)* }

        impl $name {
            const ALL: &'static [$name] = &[$($name::$item,)*];

            /// The word as the public API spells it.
            pub fn as_str(self) -> &'static str {
                match self { $($name::$item => $text,)* }
            }

            pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
                Self::ALL.get(usize::from(reader.u8()?)).copied().ok_or(Error::Malformed)
            }
        }
    };
}

words! {
    /// How a call's end turned out.
    Outcome {
        /// Shown to be ended.
        Ended = "ended",
        /// Let go on purpose.
        Released = "released",
        /// Signals were sent, the end could not be shown.
        Unconfirmed = "unconfirmed",
        /// Something lives on after the budget.
        Survivors = "survivors",
        /// Nothing was signalled.
        Refused = "refused",
    }
}

words! {
    /// What holds the brood together.
    Mechanism {
        /// Orphans re-parent to the keeper.
        Subreaper = "subreaper",
        /// Only the process group.
        Group = "group",
        /// Nothing.
        None = "none",
    }
}

words! {
    /// Who reports.
    By {
        /// The call's keeper.
        Keeper = "keeper",
        /// The spawn helper, in a lost keeper's place.
        Helper = "helper",
        /// The host itself.
        Host = "host",
    }
}

words! {
    /// Why the end began.
    Reason {
        /// The command exited.
        Exit = "exit",
        /// The deadline.
        Timeout = "timeout",
        /// The host asked.
        End = "end",
        /// The host let go.
        Release = "release",
        /// The host is gone.
        HostGone = "host-gone",
        /// The keeper is gone.
        KeeperGone = "keeper-gone",
        /// The start failed.
        NotStarted = "not-started",
    }
}

words! {
    /// The part of a start that failed.
    Step {
        /// Changing to the working directory.
        Cwd = "cwd",
        /// Finding or executing the program.
        Program = "program",
        /// The program is there, what its `#!` line or ELF header names is not.
        Interpreter = "interpreter",
        /// Arguments and environment are too large.
        Arguments = "arguments",
        /// Pipes and descriptors.
        Stdio = "stdio",
        /// umask, nice value, resource limits.
        Limits = "limits",
        /// Groups, gid, uid.
        Credentials = "credentials",
        /// The keeper's own work: clone, session, pin.
        Helper = "helper",
        /// Asking the kernel for SIGKILL at the keeper's death.
        ParentDeath = "parent-death signal",
    }
}

/// Status of an ended process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// It exited with this code.
    Code(i32),
    /// This signal ended it.
    Signal(i32),
}

/// What ended processes used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// User time, microseconds.
    pub user: u64,
    /// System time, microseconds.
    pub system: u64,
    /// Largest resident set of any of them, bytes.
    pub max_rss: u64,
}

impl Usage {
    /// Adds another process's.
    pub fn add(&mut self, other: Usage) {
        self.user += other.user;
        self.system += other.system;
        self.max_rss = self.max_rss.max(other.max_rss);
    }

    fn put(self, into: &mut Vec<u8>) {
        into.extend(self.user.to_le_bytes());
        into.extend(self.system.to_le_bytes());
        into.extend(self.max_rss.to_le_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(Usage { user: reader.u64()?, system: reader.u64()?, max_rss: reader.u64()? })
    }
}

/// A process of a report. The number was its pid; by now it may be another's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Its pid at the time.
    pub pid: i32,
    /// Its name as the kernel keeps it (15 bytes on Linux), or empty. Cut at [`MAX_PROCESS_NAME`].
    pub name: Vec<u8>,
}

/// The facts of an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndFacts {
    /// How it turned out.
    pub outcome: Outcome,
    /// What held the brood.
    pub mechanism: Mechanism,
    /// Who reports.
    pub by: By,
    /// Why it began.
    pub reason: Reason,
    /// First SIGKILL to proof, microseconds; 0 when none was needed.
    pub proof_time: u64,
    /// Everything reaped.
    pub usage: Usage,
    /// How many were left and ended.
    pub leftover_count: u32,
    /// At most [`crate::MAX_NAMED`] of them.
    pub leftovers: Vec<ProcessInfo>,
    /// What lives on, at most [`crate::MAX_NAMED`].
    pub survivors: Vec<ProcessInfo>,
    /// The spec's `settle` was over while something that was left still wrote to the call's pipes.
    pub cut_off: bool,
}

impl EndFacts {
    fn put(&self, into: &mut Vec<u8>) {
        into.extend([self.outcome as u8, self.mechanism as u8, self.by as u8, self.reason as u8]);
        into.extend(self.proof_time.to_le_bytes());
        self.usage.put(into);
        into.extend(self.leftover_count.to_le_bytes());
        put_processes(into, &self.leftovers);
        put_processes(into, &self.survivors);
        into.push(u8::from(self.cut_off));
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
        Ok(EndFacts {
            outcome: Outcome::read(reader)?,
            mechanism: Mechanism::read(reader)?,
            by: By::read(reader)?,
            reason: Reason::read(reader)?,
            proof_time: reader.u64()?,
            usage: Usage::read(reader)?,
            leftover_count: reader.u32()?,
            leftovers: read_processes(reader)?,
            survivors: read_processes(reader)?,
            cut_off: reader.u8()? != 0,
        })
    }
}

fn put_processes(into: &mut Vec<u8>, list: &[ProcessInfo]) {
    let list = &list[..list.len().min(crate::MAX_NAMED)];
    into.extend((list.len() as u32).to_le_bytes());
    for process in list {
        into.extend(process.pid.to_le_bytes());
        put_string(into, &process.name[..process.name.len().min(MAX_PROCESS_NAME)]);
    }
}

fn read_processes(reader: &mut Reader<'_>) -> Result<Vec<ProcessInfo>, Error> {
    let count = reader.u32()? as usize;
    if count > crate::MAX_NAMED {
        return Err(Error::Malformed);
    }
    (0..count).map(|_| Ok(ProcessInfo { pid: reader.i32()?, name: reader.string()?.to_vec() })).collect()
}

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
    /// Fork so many keepers.
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
