//! Linux.

mod child;
mod descriptors;
mod family;
mod handle;
mod identity;
mod message;
mod mode;
mod own;
mod parent;
mod pid_counter;
mod pidfd_info;
mod pin;
mod proc_fs;
mod raw;
mod sched;
mod signal_fd;
mod start;
mod user;
mod work;

pub use child::{Reaped, children_by_number, inspect, reap, reap_any};
pub use descriptors::open_descriptors;
pub use family::{Family, kill_family};
pub use handle::{Handle, LedGroup, handle_of_descendant, look_behind, pidfd_of_child, reap_behind};
pub use identity::{Attributes, Identity, enlarge_pipe};
pub use message::{MAX_DESCRIPTORS, Message, Sender, receive};
pub use mode::{become_keeper, become_mode, hide_arguments, ignore_signals, raise_default};
pub use own::{open_own_directory, open_own_program};
pub use parent::{Parent, pidfd_of_parent};
pub use pid_counter::Turn;
pub use pin::{make_group, make_pin};
pub use proc_fs::{
    ChildrenFile, Listed, LiveMembers, below, descendants, few_descendants, found_members, is_alive,
    is_runnable, live_members, own_children, shown,
};
pub use sched::Manners;
pub use signal_fd::{Origin, SignalInfo, SignalSource};
pub use start::{
    Failure, Gate, Grouping, MOST_PLACES, PASSED, Plan, Stack, Started, Surroundings, fork_gated, start,
};
pub use user::LimitedUser;
pub use work::{Level, PipeId, PipeView, Work, handles, work_of};
