//! The host's side of calls, where keepers have them.

pub mod call;
pub mod gate;
pub mod guards;
pub mod plain;
pub mod pool;
