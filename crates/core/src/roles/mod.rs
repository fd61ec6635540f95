//! The helper executable's modes, one function each.

pub mod arguments;
pub mod exit_codes;
pub mod guard;
pub mod keeper;
pub mod run;
pub mod runner;
pub mod say;
pub mod spawn_helper;
pub mod starter;

use std::process::ExitCode;

use crate::sys;
use exit_codes::OS_FILE;
use spawn_helper::Role;

pub use guard::guard;
pub use holdfast_wire::VERSION;
pub use run::run;
pub use starter::starter;

/// `__spawn-helper`: control socket on 3, /dev/null on 0 to 2.
pub fn spawn_helper() -> ExitCode {
    // Before the first look at the parent: a host that is gone by now is seen by the socket's end.
    let subreaper = sys::become_mode(Some(4));
    sys::ignore_signals();
    let _ = std::env::set_current_dir("/");
    let Some(control) = sys::inherited_control() else {
        return ExitCode::from(OS_FILE);
    };
    let lifeline = sys::handle_of_parent();
    let done = spawn_helper::serve(control, lifeline, subreaper).and_then(|role| match role {
        Role::Over => Ok(()),
        Role::Keeper(setup) => keeper::keep(setup).map(|_| ()),
    });
    if done.is_ok() { ExitCode::SUCCESS } else { ExitCode::from(OS_FILE) }
}
