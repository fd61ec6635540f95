//! The executable, driven by raw frames over its socket.

mod host;
mod keeper;
mod spawn_helper;
