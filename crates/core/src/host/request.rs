//! The request for a call: program, arguments, environment, stdio, lifetime and identity.

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

/// A call that is to be started.
pub struct Request<'a> {
    /// The helper executable.
    pub helper: PathBuf,
    /// The program: a name to be looked up in PATH, or a path.
    pub file: &'a str,
    /// Arguments, `argv[0]` first, NUL-joined.
    pub args: &'a str,
    /// Environment as `NAME=value`, NUL-joined.
    pub env: &'a str,
    /// Working directory; empty for the host's.
    pub cwd: &'a str,
    /// One for each descriptor of the command, from 0 on.
    pub stdio: &'a [Place],
    /// When it ends, and how.
    pub lifetime: Lifetime,
    /// User id; `None` for the host's.
    pub uid: Option<u32>,
    /// Group id; `None` for the host's.
    pub gid: Option<u32>,
    /// The command leads a session and a group of its own.
    pub detached: bool,
    /// Where no helper can be started, the command runs as a plain child.
    pub best_effort: bool,
}
