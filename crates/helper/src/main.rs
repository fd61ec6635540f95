//! `holdfast-helper`: argument parsing, and one call into the core for each mode.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use holdfast_core::roles::{self, exit_codes::USAGE};

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    let Some((mode, rest)) = args.split_first() else {
        return usage();
    };
    match mode.to_str() {
        Some("__spawn-helper") if rest.is_empty() => roles::spawn_helper(),
        Some("__run") => roles::run(rest),
        Some("__group-guard") => roles::guard(rest),
        Some("__session-starter") => roles::starter(rest),
        Some("--version") if rest.is_empty() => {
            println!("{}", roles::VERSION);
            ExitCode::SUCCESS
        }
        _ => usage(),
    }
}

/// The package finds its version in here before a process becomes the helper.
const USAGE_TEXT: &str = concat!(
    "holdfast-helper ",
    env!("CARGO_PKG_VERSION"),
    ": started by holdfast, not by hand; see 'holdfast --help'"
);

fn usage() -> ExitCode {
    eprintln!("{USAGE_TEXT}");
    ExitCode::from(USAGE)
}
