//! The executable, driven by raw frames over its socket.

#[path = "../common/mod.rs"]
mod common;
mod host;
mod keeper;
mod spawn_helper;
