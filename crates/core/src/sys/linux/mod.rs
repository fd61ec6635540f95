//! Linux.

mod helper;
mod identity;
mod mode;
mod process;
mod raw;
mod shared;
mod start;
mod table;
mod terminal;

pub use helper::start_helper;
pub use identity::{Attributes, Identity, duplicate, environment, replace_process};
pub use mode::{
    Forked, Manners, SignalSource, become_keeper, become_mode, block_all_signals, fork, inherited_control,
    raise_default,
};
pub use process::{
    Group, Kill, Look, Parent, Pid, Reaped, group_of, inspect, kill_child, kill_family, look, peek_any,
    pidfd_of_child, pidfd_of_parent, reap, reap_any, reap_pidfd, signal_descendant, stopped,
};
pub use shared::SharedBytes;
pub use start::{Failure, MOST_PLACES, Plan, Stack, Started, Surroundings, start};
pub use table::{ChildrenFile, below, descendants, every_number, name, own_children};
pub use terminal::{
    Terminal, inherited_stream, is_ignored, let_go_of_stdio, open_descriptors, own_group, stand_apart,
    stop_ourselves, write_out,
};
