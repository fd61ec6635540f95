//! `holdfast run`: one contained command in the place where it was typed.
//!
//! With a controlling terminal the command stays in the group it was started in, so that what the terminal sends (^C,
//! ^Z, SIGWINCH) reaches it as if it had been started directly, and this process takes no part in it: it blocks those
//! signals, and stops itself when the command was stopped, so that the shell sees a stopped job. Without a terminal the
//! command leads a session of its own, and what this process is sent begins the end.

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use holdfast_wire::{Background, Lifetime};

use crate::ends::ladder::{DEFAULTS, ENDS};
use crate::roles::exit_codes::RUN_FAILED;
use crate::roles::runner::{ExitAs, Inherited, Runner, RunnerCommand, RunnerConfig, Side};
use crate::roles::say::say;
use crate::sys::{self, Terminal, TerminalGroup};

/// Without a terminal there is no hang-up, and SIGHUP is passed on: to many daemons it means to read their settings
/// again.
const ENDS_WITHOUT_TERMINAL: [i32; 3] = [sys::SIGINT, sys::SIGQUIT, sys::SIGTERM];

const USAGE: &str = "\
usage: holdfast run [--timeout 30s] [--grace 2s] [--background end|keep] [--background-grace 500ms]
                    [--background-settle 100ms] [--cwd DIR] -- command [args...]";

const OPTIONS: [&str; 6] =
    ["--timeout", "--grace", "--background", "--background-grace", "--background-settle", "--cwd"];

/// The command line of `run`.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    lifetime: Lifetime,
    cwd: OsString,
    command: Vec<OsString>,
}

/// Parses what follows `run`.
fn parse(args: &[OsString]) -> Result<Options, String> {
    let mut options = Options { lifetime: DEFAULTS, cwd: OsString::new(), command: Vec::new() };
    let mut rest = args.iter();
    while let Some(arg) = rest.next() {
        let text = arg.to_str().unwrap_or_default();
        let (name, inline) =
            text.split_once('=').map_or((text, None), |(name, value)| (name, Some(value.into())));
        if !name.starts_with("--") || name == "--" {
            let from = args.len() - rest.len() - usize::from(name != "--");
            options.command = args[from..].to_vec();
            break;
        }
        if !OPTIONS.contains(&name) {
            return Err(format!("unknown option '{name}'"));
        }
        let value: OsString =
            inline.or_else(|| rest.next().cloned()).ok_or_else(|| format!("'{name}' needs a value"))?;
        let shown = value.to_string_lossy();
        let lifetime = &mut options.lifetime;
        match name {
            "--timeout" => lifetime.timeout = milliseconds(name, &shown)?,
            "--grace" => lifetime.grace = milliseconds(name, &shown)?,
            "--background-grace" => lifetime.background_grace = milliseconds(name, &shown)?,
            "--background-settle" => lifetime.background_settle = milliseconds(name, &shown)?,
            "--cwd" => options.cwd = value,
            _ => {
                lifetime.background = match shown.as_ref() {
                    "end" => Background::End,
                    "keep" => Background::Keep,
                    other => return Err(format!("'--background' is 'end' or 'keep', not '{other}'")),
                }
            }
        }
    }
    if options.command.is_empty() { Err("no command".to_owned()) } else { Ok(options) }
}

/// `500ms`, `30s`, `2m`, `1h`; a bare number counts seconds, as in timeout(1).
fn milliseconds(name: &str, text: &str) -> Result<u64, String> {
    let wrong = || format!("'{name}' is a time like 500ms, 30s or 2m, not '{text}'");
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let factor = match unit {
        "ms" => 1.0,
        "" | "s" => 1_000.0,
        "m" => 60_000.0,
        "h" => 3_600_000.0,
        _ => return Err(wrong()),
    };
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let result = (number * factor).ceil();
    // A time that is not 0 must not be rounded to 0, which means "none".
    if (0.0..1e15).contains(&result) { Ok(result as u64) } else { Err(wrong()) }
}

/// The mode. `args` is what follows `run`.
pub fn run(args: &[OsString]) -> ExitCode {
    if args.first().is_some_and(|arg| arg == "--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let options = match parse(args) {
        Ok(options) => options,
        Err(problem) => {
            say(&format!("{problem}\n{USAGE}"));
            return ExitCode::from(RUN_FAILED);
        }
    };
    match supervise(&options) {
        Ok(Some(exit_as)) => exit_as.carry_out(),
        // This process was the keeper.
        Ok(None) => ExitCode::SUCCESS,
        Err(error) => {
            say(&error.to_string());
            ExitCode::from(RUN_FAILED)
        }
    }
}

fn supervise(options: &Options) -> io::Result<Option<ExitAs>> {
    let nohup = sys::is_ignored(sys::SIGHUP);
    let inherited = Inherited::now();
    let terminal = Terminal::open();
    let terminal_group = terminal.as_ref().map(|_| TerminalGroup::own());
    let ends = if terminal.is_some() { &ENDS[..] } else { &ENDS_WITHOUT_TERMINAL };
    let mut runner = match Runner::begin(
        inherited,
        RunnerConfig { terminal_group, ends, nohup, ..RunnerConfig::default() },
    )? {
        Side::Runner(runner) => runner,
        Side::Keeper(lost) => {
            // Otherwise the terminal is the host's, or the shell's again.
            if let Some(terminal) = terminal.filter(|_| lost) {
                terminal.restore();
            }
            return Ok(None);
        }
    };
    let facts = runner.run(&RunnerCommand {
        command: &options.command,
        env: sys::environment(),
        cwd: &options.cwd,
        lifetime: options.lifetime,
    });
    // Not when a shell has it back already (a script around us that died of ^C first): its modes are its own.
    if let Some(terminal) = terminal.filter(|terminal| terminal.is_ours()) {
        terminal.restore();
    }
    Ok(Some(runner.exit_as(facts, &options.command[0], RUN_FAILED)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options, String> {
        parse(&args.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn times_have_units() {
        let time = |text| milliseconds("--timeout", text);
        assert_eq!(
            [time("30s"), time("2"), time("500ms"), time("1.5m"), time("1h")].map(Result::unwrap),
            [30_000, 2_000, 500, 90_000, 3_600_000]
        );
        for wrong in ["", "s", "-1", "1d", "1e3", "..", "30 s"] {
            assert!(time(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_end_where_the_command_begins() {
        let parsed =
            options(&["--timeout=1s", "--grace", "0", "--cwd", "/tmp", "--", "sh", "--timeout", "x"])
                .unwrap();
        assert_eq!((parsed.lifetime.timeout, parsed.lifetime.grace), (1_000, 0));
        assert_eq!(parsed.command, ["sh", "--timeout", "x"]);
        assert_eq!(options(&["ls", "--", "-l"]).unwrap().command, ["ls", "--", "-l"]);
        assert_eq!(options(&["--background", "keep", "ls"]).unwrap().lifetime.background, Background::Keep);
    }

    #[test]
    fn what_is_left_has_times_of_its_own() {
        let parsed =
            options(&["--background-grace=1s", "--background-settle", "30ms", "--grace", "5", "ls"]).unwrap();
        assert_eq!(
            (parsed.lifetime.background_grace, parsed.lifetime.background_settle, parsed.lifetime.grace),
            (1_000, 30, 5_000)
        );
        assert_eq!((parsed.lifetime.background, parsed.lifetime.timeout), (Background::End, 0));
        let parsed = options(&["--background-grace", "0", "--background-settle=0", "ls"]).unwrap();
        assert_eq!((parsed.lifetime.background_grace, parsed.lifetime.background_settle), (0, 0));
        for wrong in ["", "-1", "NaN", "inf", "soon", "1e3"] {
            for name in ["--background-grace", "--background-settle"] {
                let error = options(&[name, wrong, "ls"]).unwrap_err();
                assert!(error.starts_with(&format!("'{name}' is a time like ")), "{error}");
            }
        }
        assert_eq!(options(&["--background-settle"]).unwrap_err(), "'--background-settle' needs a value");
        assert_eq!(options(&["--background-", "1", "ls"]).unwrap_err(), "unknown option '--background-'");
    }

    /// They cannot be shared: `holdfast run` begins in JavaScript and parses here, the API is JavaScript's alone.
    #[test]
    fn the_defaults_are_those_of_the_api_and_the_usage_names_them() {
        let api = include_str!("../../../../src/options/values.ts");
        let usage = include_str!("../../../../src/report/messages.ts");
        let parsed = options(&["ls"]).unwrap();
        for (name, value) in [
            ("GRACE", parsed.lifetime.grace),
            ("BACKGROUND_GRACE", parsed.lifetime.background_grace),
            ("BACKGROUND_SETTLE", parsed.lifetime.background_settle),
        ] {
            assert!(api.contains(&format!("const {name} = {value}\n")), "{name} is {value} here");
        }
        for text in [USAGE, usage] {
            assert!(text.contains(&format!("[--grace {}s]", DEFAULTS.grace / 1_000)));
            assert!(text.contains(&format!("[--background-grace {}ms]", DEFAULTS.background_grace)));
            assert!(text.contains(&format!("[--background-settle {}ms]", DEFAULTS.background_settle)));
            for name in OPTIONS {
                assert!(text.contains(&format!("[{name} ")), "{name}");
            }
        }
    }

    #[test]
    fn a_wrong_command_line_names_what_is_wrong() {
        assert_eq!(options(&["--tiemout", "1", "ls"]).unwrap_err(), "unknown option '--tiemout'");
        assert_eq!(options(&["--timeout"]).unwrap_err(), "'--timeout' needs a value");
        assert_eq!(options(&["--"]).unwrap_err(), "no command");
        assert!(options(&["--background", "drop", "ls"]).is_err());
    }
}
