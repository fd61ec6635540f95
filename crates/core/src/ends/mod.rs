//! How what a call started is ended: the ladder's times and signals, the two reaches (a tree of processes below us, and
//! a group that is not), and what both have in common.

pub mod brood;
pub mod first_signal;
pub mod group;
pub mod ladder;
pub mod reach;
pub mod set_uid;
pub mod settle;
