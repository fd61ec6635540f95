//! Keepers, broods, guards, gates and the starter, the spawn helper, and the host's side of them.
//!
//! Five floors, each of which uses itself and those behind it: [`host`] is what the addon embeds; [`roles`] are the
//! helper executable's modes; [`ends`] is how what was started is ended; [`channel`] is how these processes
//! communicate; [`sys`] is the operating system, and has everything unsafe.
//!
//! Start reading at [`roles::keeper`] (one call, from its spec to the proof of its end) and [`ends::brood`] (how a tree
//! of processes is ended); [`roles::spawn_helper`] is the keepers' parent. What others start is contained by
//! [`roles::guard`] (and [`ends::group`], its end) and [`host::gate`]; [`roles::runner`] is what `holdfast run` and the
//! session starter ([`roles::starter`]) have in common.

pub mod channel;
pub mod ends;
pub mod host;
pub mod roles;
pub mod sys;

pub use holdfast_wire as wire;
