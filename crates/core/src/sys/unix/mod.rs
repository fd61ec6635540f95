//! What Unix systems have in common.

pub(in crate::sys) mod child;
mod descriptors;
pub(in crate::sys) mod fork;
pub(in crate::sys) mod group;
pub(in crate::sys) mod io;
mod names;
pub(in crate::sys) mod pid;
mod program;
mod shared;
pub(in crate::sys) mod signals;
mod spawn;
pub(crate) mod stops;
mod terminal;

pub use child::{
    ChildState, Kill, await_end, child_state, kill_child, peek_adopted, peek_any, take_any_stop,
    take_continue, take_stop,
};
pub use descriptors::{
    allow_all_descriptors, are_free_beyond, await_writable, duplicate, inherited, inherited_control,
    inherited_stream, let_go_of_stderr, let_go_of_stdio, stand_apart, write_out,
};
pub use fork::{Forked, fork};
pub use group::{Delivery, Group, TerminalGroup};
pub use io::{
    AsFd, OwnedFd, end_writing, is_readable, number_of, pending, read, read_now, set_nonblocking, shut,
    stderr, stdin, stdout, write,
};
pub use names::*;
pub use pid::{
    Pid, exists, give_group, group_of, is_in_our_session, leads_session, leave_group, leave_session,
    own_group, session_of,
};
pub use program::{at_exit, environment, replace_process};
pub use shared::SharedNumbers;
pub use signals::{block_all_signals, is_ignored, is_pending, stop_ourselves};
pub use spawn::{Placement, by_fork, start_helper};
pub use terminal::Terminal;
