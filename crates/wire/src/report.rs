//! What is reported of a call: how it ended, and why it could not start. On every platform, with frames or without.

use crate::bytes::{Reader, put_string};
use crate::{Error, MAX_PROCESS_NAME};

/// A number that stands for one of a few words; an unknown number is an error.
macro_rules! wire_enum {
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

wire_enum! {
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

wire_enum! {
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

wire_enum! {
    /// Which process reports.
    By {
        /// The call's keeper.
        Keeper = "keeper",
        /// The spawn helper, in a lost keeper's place.
        Helper = "helper",
        /// The host itself.
        Host = "host",
    }
}

wire_enum! {
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

wire_enum! {
    /// How the spec's `background_settle` time ended.
    Settle {
        /// All that was left slept or had ended, or there was no such time.
        Quiet = "quiet",
        /// The time was up while something was at work.
        AtWork = "at-work",
        /// At work as above, and seen to write to the call's pipes.
        Writing = "writing",
    }
}

wire_enum! {
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

    pub(crate) fn put(self, into: &mut Vec<u8>) {
        into.extend(self.user.to_le_bytes());
        into.extend(self.system.to_le_bytes());
        into.extend(self.max_rss.to_le_bytes());
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
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
    /// Which process reports.
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
    /// How the spec's `background_settle` time ended.
    pub settle: Settle,
}

impl EndFacts {
    pub(crate) fn put(&self, into: &mut Vec<u8>) {
        into.extend([self.outcome as u8, self.mechanism as u8, self.by as u8, self.reason as u8]);
        into.extend(self.proof_time.to_le_bytes());
        self.usage.put(into);
        into.extend(self.leftover_count.to_le_bytes());
        put_processes(into, &self.leftovers);
        put_processes(into, &self.survivors);
        into.push(self.settle as u8);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, Error> {
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
            settle: Settle::read(reader)?,
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
