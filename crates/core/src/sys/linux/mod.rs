//! Linux.

mod handle;
mod helper;
mod identity;
mod message;
mod mode;
mod own;
mod process;
mod raw;
mod shared;
mod start;
mod table;
mod terminal;
mod user;
mod work;

pub use handle::{Handle, LedGroup};
pub use helper::{Standing, by_fork, start_helper};
pub use identity::{Attributes, Identity, at_exit, duplicate, enlarge_pipe, environment, replace_process};
pub use message::{MAX_DESCRIPTORS, Message, Sender, receive};
pub use mode::{
    Forked, Manners, Origin, SignalInfo, SignalSource, allow_all_descriptors, become_keeper, become_mode,
    block_all_signals, fork, hide_arguments, ignore_signals, inherited, inherited_control, is_pending,
    leave_group, make_group, make_pin, raise_default,
};
pub use own::{open_own_directory, open_own_program};
pub use process::{
    Delivery, Family, Group, Kill, Look, Parent, Pid, Reaped, await_end, continued, exists, give_group,
    group_of, handle_of_descendant, inspect, is_in_our_session, kill_child, kill_family, look, look_behind,
    peek_any, pidfd_of_child, pidfd_of_parent, reap, reap_any, reap_behind, session_of, stopped,
    take_any_stop,
};
pub use shared::SharedNumbers;
pub use start::{
    Failure, Gate, Grouping, MOST_PLACES, PASSED, Plan, Stack, Started, Surroundings, fork_gated, start,
};
pub use table::{
    ChildrenFile, Listed, LiveMembers, Turn, below, children_by_number, descendants, few_descendants,
    found_members, is_alive, is_runnable, live_members, own_children, shown,
};
pub use terminal::{
    Terminal, TerminalGroup, await_writable, inherited_stream, is_ignored, leads_session, leave_session,
    let_go_of_stderr, let_go_of_stdio, open_descriptors, own_group, stand_apart, stop_ourselves, write_out,
};
pub use user::LimitedUser;
pub use work::{PipeView, Work, handles, is_writing_to, work_of};
