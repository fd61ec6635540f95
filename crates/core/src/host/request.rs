//! What a call is asked to be.

use std::path::PathBuf;

use holdfast_wire::Lifetime;

/// One place of a command's stdio.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// `/dev/null`.
    Ignore,
    /// A pipe: the command reads from 0, writes to 1 and 2; further places are duplex.
    Pipe,
    /// The same pipe as place 1.
    Stdout,
    /// A descriptor of the host.
    Inherit(i32),
}

/// What to start.
pub struct Request<'a> {
    /// The helper executable.
    pub helper: PathBuf,
    /// Program.
    pub file: &'a str,
    /// NUL-joined.
    pub args: &'a str,
    /// NUL-joined.
    pub env: &'a str,
    /// Empty for the host's.
    pub cwd: &'a str,
    /// One for each place.
    pub stdio: &'a [Place],
    /// When it ends, and how.
    pub lifetime: Lifetime,
    /// User, or the host's.
    pub uid: Option<u32>,
    /// Group, or the host's.
    pub gid: Option<u32>,
    /// The command leads a session and a group of its own.
    pub detached: bool,
    /// Without a helper as a plain child.
    pub best_effort: bool,
}
