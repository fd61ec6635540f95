//! Keepers, broods, guards, gates and the starter, the spawn helper, and the host's side of them.
//!
//! Start reading at [`keeper`] (one call, from its spec to the proof of its end) and [`brood`] (how a tree of
//! processes is ended); [`spawn_helper`] is the keepers' parent, [`host`] what the addon embeds. What others start is
//! contained by [`guard`] (and [`group`], its end) and [`gate`]; [`runner`] is what `holdfast run` and the session
//! [`starter`] have in common. Everything unsafe
//! is below [`sys`].

pub mod arguments;
pub mod asking;
pub mod brood;
pub mod classes;
pub mod commitment;
pub mod gate;
pub mod group;
pub mod guard;
pub mod host;
pub mod inherit;
pub mod keeper;
pub mod ladder;
pub mod modes;
pub mod run;
pub mod runner;
pub mod set_uid;
pub mod settle;
pub mod socket;
pub mod spawn_helper;
pub mod starter;
mod stops;
pub mod sys;

pub use holdfast_wire as wire;
