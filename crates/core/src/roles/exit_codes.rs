//! The codes that the helper's modes exit with. They are part of the contract: the usage text, the README's table and
//! page 7 of the design name them.
//!
//! | code | `holdfast run`                | starter                       | guard                 | spawn helper, keeper                |
//! | ---- | ----------------------------- | ----------------------------- | --------------------- | ----------------------------------- |
//! | 0    | the command's                 | the Engine's                  | ended, or released    | left                                |
//! | 2    |                               |                               | unconfirmed           |                                     |
//! | 3    |                               |                               | survivors             |                                     |
//! | 64   |                               | wrong command line            | wrong command line    | wrong command line                  |
//! | 70   |                               | (a)                           | the group is not held |                                     |
//! | 72   |                               |                               |                       | started by hand, or its own failure |
//! | 124  | `--timeout` is over           |                               |                       |                                     |
//! | 125  | wrong command line, or (a)    |                               |                       |                                     |
//! | 126  | the program is not executable | the program is not executable |                       |                                     |
//! | 127  | the program is not found      | the program is not found      |                       |                                     |
//!
//! 64 is also the helper's own answer where there is no such mode. (a) is holdfast's own failure: every refused start
//! but those of 126 and 127 (and of 64, in the starter), a lost keeper, and a command that is among the survivors, so
//! that its status is not known.
//!
//! `run` and the starter end as their command did, by its code or by its signal (128 + n where that cannot be).

/// No live member is left, or the group was let go.
pub const ENDED: u8 = 0;
/// Signals were sent; what is left is not known.
pub const UNCONFIRMED: u8 = 2;
/// A member of the group lives after the budget.
pub const SURVIVORS: u8 = 3;
/// sysexits(3): the command line is wrong, names no mode, or names a descriptor that is not open.
pub const USAGE: u8 = 64;
/// sysexits(3), EX_SOFTWARE: of a guard, that the group is not held, or that this cannot be shown, and nothing was
/// signalled; of the starter, that parent or descriptors are not as on the command line, or that holdfast itself
/// failed.
pub const SOFTWARE: u8 = 70;
/// sysexits(3), of the spawn helper: its control socket is missing or not one, or it failed.
pub const OS_FILE: u8 = 72;
/// timeout(1): the time was up.
pub const TIMED_OUT: u8 = 124;
/// timeout(1), env(1): holdfast itself failed.
pub const RUN_FAILED: u8 = 125;
/// The shell's: found, not executable.
pub const NOT_EXECUTABLE: u8 = 126;
/// The shell's: not found.
pub const NOT_FOUND: u8 = 127;

/// The shell's, where a process cannot end by the signal that ended its command.
pub fn of_signal(signal: i32) -> u8 {
    128 + signal as u8
}
