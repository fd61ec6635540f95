//! The starter: the process that an SDK starts in an Engine's place (mode `__session-starter`). It starts the Engine
//! in a group of its own, stays outside, and ends everything that the Engine started when the Engine exits, when it is
//! sent a signal for that, or when its parent is gone. Then it ends as the Engine did, never before.
//!
//! The acknowledgement is the first line on standard output, written when the keeper is there to cover the starter's
//! own death, and before the Engine is executed. Standard input and output are the Engine's; nothing is relayed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::process::ExitCode;

use holdfast_wire::Lifetime;

use crate::ends::ladder::{DEFAULTS, ENDS};
use crate::roles::arguments::number_after;
use crate::roles::exit_codes::{SOFTWARE, USAGE};
use crate::roles::runner::{ExitAs, Inherited, Runner, RunnerCommand, RunnerConfig, Side};
use crate::roles::say::say;
use crate::sys::stops::stop;
use crate::sys::{self, Parent};

/// Environment variable that requests containment; removed before the Engine starts.
pub const REQUEST: &str = "LEAN_CTX_SESSION_CONTAINMENT";
/// The acknowledgement, a line of standard output.
pub const ACKNOWLEDGEMENT: &str = "{\"leanctx_session_containment\":1}\n";

const FORM: &str = "__session-starter [--ack] [--watch-parent] [--parent-pid <n>] [--control-fd <n>] [--grace <ms>] -- <program> [args...]";

/// The command line.
#[derive(Debug, Default, PartialEq, Eq)]
struct Options {
    ack: bool,
    watch_parent: bool,
    parent_pid: Option<i32>,
    control_fd: Option<i32>,
    grace: Option<u64>,
    command: Vec<OsString>,
}

fn parse(args: &[OsString]) -> Result<Options, String> {
    let mut options = Options::default();
    let mut rest = args.iter();
    loop {
        let Some(arg) = rest.next() else { return Err("'--' is missing".to_owned()) };
        let mut number = |least| number_after(arg, &mut rest, least);
        match arg.to_str() {
            Some("--ack") => options.ack = true,
            Some("--watch-parent") => options.watch_parent = true,
            Some("--parent-pid") => options.parent_pid = Some(number(1)?),
            // 0 to 2 are the Engine's.
            Some("--control-fd") => options.control_fd = Some(number(3)?),
            Some("--grace") => options.grace = Some(number(0)?.unsigned_abs().into()),
            Some("--") => break,
            _ => return Err(format!("unknown option '{}'", arg.to_string_lossy())),
        }
    }
    options.command = rest.cloned().collect();
    if options.command.is_empty() { Err("no program".to_owned()) } else { Ok(options) }
}

/// The mode. `args` is what follows `__session-starter`.
pub fn starter(args: &[OsString]) -> ExitCode {
    let options = match parse(args) {
        Ok(options) => options,
        Err(problem) => {
            say(&format!("{problem}; usage: {FORM}"));
            return ExitCode::from(USAGE);
        }
    };
    match supervise(&options) {
        Ok(Some(exit_as)) => exit_as.carry_out(),
        // This process was the keeper.
        Ok(None) => ExitCode::SUCCESS,
        Err(Refusal { status, problem }) => {
            say(&problem);
            ExitCode::from(status)
        }
    }
}

/// Why nothing was started.
struct Refusal {
    status: u8,
    problem: String,
}

impl Refusal {
    fn topology(problem: impl Into<String>) -> Refusal {
        Refusal { status: SOFTWARE, problem: problem.into() }
    }
}

fn supervise(options: &Options) -> Result<Option<ExitAs>, Refusal> {
    let mut inherited = Inherited::now();
    let config = config(options)?;
    // The control descriptor is ours alone.
    inherited.descriptors.retain(|&fd| Some(fd) != options.control_fd);
    let failed = |error: io::Error| Refusal::topology(error.to_string());
    stop("starter-arrived");
    let mut runner = match Runner::begin(inherited, config).map_err(failed)? {
        Side::Runner(runner) => runner,
        Side::Keeper(_) => return Ok(None),
    };
    stop("starter-covered");
    if options.ack
        && let Some(exit_as) = runner.say_first(ACKNOWLEDGEMENT.as_bytes(), SOFTWARE)
    {
        return Ok(Some(exit_as));
    }
    stop("starter-acknowledged");
    let facts = runner.run(&RunnerCommand {
        command: &options.command,
        env: environment(),
        cwd: OsStr::new(""),
        lifetime: Lifetime { grace: options.grace.unwrap_or(DEFAULTS.grace), ..DEFAULTS },
    });
    stop("starter-ended");
    Ok(Some(runner.exit_as(facts, &options.command[0], SOFTWARE)))
}

/// Looks at parent and control descriptor. A wrong one is an error before anything is started.
fn config(options: &Options) -> Result<RunnerConfig, Refusal> {
    if let Some(expected) = options.parent_pid
        && Parent::number() != expected
    {
        return Err(Refusal::topology(format!(
            "the parent is not process {expected}, which is gone or never was it"
        )));
    }
    // Before we open anything, which could get its number.
    let control = match options.control_fd {
        None => None,
        Some(number) => Some(sys::inherited_stream(number).map_err(|error| {
            // One that is not there is a wrong command line.
            let status = if error.raw_os_error() == Some(sys::EBADF) { USAGE } else { SOFTWARE };
            Refusal {
                status,
                problem: format!("the control descriptor {number} is no open pipe or socket: {error}"),
            }
        })?),
    };
    let parent = if options.watch_parent {
        Some(Parent::watch().ok_or_else(|| {
            Refusal::topology("the parent cannot be watched: it is gone, or outside of this pid namespace")
        })?)
    } else {
        None
    };
    // Between the look at the number and the watch it may have gone.
    if options.parent_pid.is_some_and(|expected| Parent::number() != expected) {
        return Err(Refusal::topology("the parent is gone"));
    }
    Ok(RunnerConfig { ends: &ENDS, parent, control, lets_go_of_stderr: true, ..RunnerConfig::default() })
}

/// Ours, without the request: the Engine is not to answer it once more.
fn environment() -> Vec<u8> {
    let all = sys::environment();
    let asks = |variable: &[u8]| {
        variable.strip_prefix(REQUEST.as_bytes()).is_some_and(|rest| rest.starts_with(b"="))
    };
    let kept: Vec<&[u8]> = all.split(|&byte| byte == 0).filter(|variable| !asks(variable)).collect();
    kept.join(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options, String> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn everything_behind_the_dashes_is_the_engines() {
        let parsed = options(&["--ack", "--control-fd", "3", "--", "node", "--ack", "--", "x"]).unwrap();
        assert_eq!(parsed.command, ["node", "--ack", "--", "x"]);
        assert_eq!((parsed.ack, parsed.watch_parent, parsed.control_fd), (true, false, Some(3)));
        let parsed = options(&["--watch-parent", "--parent-pid", "1", "--grace", "0", "--", "x"]).unwrap();
        assert_eq!((parsed.parent_pid, parsed.grace, parsed.watch_parent), (Some(1), Some(0), true));
    }

    #[test]
    fn a_wrong_command_line_names_what_is_wrong() {
        assert_eq!(options(&["--ack", "node"]).unwrap_err(), "unknown option 'node'");
        assert_eq!(options(&["--ack"]).unwrap_err(), "'--' is missing");
        assert_eq!(options(&["--"]).unwrap_err(), "no program");
        for wrong in ["", "x", "-1", "2", "+3", "3 ", "99999999999"] {
            assert!(options(&["--control-fd", wrong, "--", "x"]).is_err(), "{wrong}");
        }
        assert!(options(&["--parent-pid", "0", "--", "x"]).is_err());
        assert!(options(&["--parent-pid"]).is_err());
    }
}
