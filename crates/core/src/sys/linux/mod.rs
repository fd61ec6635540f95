//! Linux.

mod child;
mod descriptors;
mod event_fd;
mod handle;
mod identity;
mod kill_below;
mod message;
mod mode;
mod own;
mod parent;
mod pid_counter;
mod pidfd_info;
mod pin;
mod poller;
mod proc_fs;
mod raw;
mod sched;
mod signal_fd;
mod start;
mod user;
mod wait;
mod work;

pub use child::{Reaped, children_by_number, peek, reap, reap_any};
pub use descriptors::{open_descriptors, pipe};
pub use event_fd::Counter;
pub use handle::{Handle, LedGroup, child_state_behind, end_of_child, handle_of_descendant, reap_behind};
pub use identity::{Attributes, Identity, enlarge_pipe};
pub use kill_below::{Killed, kill_below};
pub use message::{MAX_DESCRIPTORS, Message, Sender, control_pair, receive, send, socket_pair};
pub use mode::{become_keeper, become_mode, hide_arguments, ignore_signals, raise_default};
pub use own::{open_directory, open_own_directory, open_own_program};
pub use parent::{Parent, handle_of_parent};
pub use pid_counter::PidCounter;
pub use pin::{make_group, make_pin};
pub use poller::{Occurrence, Poller};
pub use proc_fs::{
    ChildrenFile, Listed, LiveMembers, children_of, descendants, few_descendants, found_members, is_alive,
    is_runnable, live_members, own_children, process_info,
};
pub use sched::IdlePolicy;
pub use signal_fd::{Origin, SignalInfo, SignalSource};
pub use start::{
    Failure, Gate, Grouping, MOST_PLACES, PASSED, Plan, Stack, StartContext, Started, fork_gated, gate, start,
};
pub use user::LimitedUser;
pub use wait::{Ready, Token, Wait};
pub use work::{Level, PipeId, PipeView, Work, handles, work_of};
