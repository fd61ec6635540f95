//! The host's side of calls, where keepers have them.

mod call;
pub mod gate;
mod guards;
mod plain;
mod pool;
mod prepare;

pub use call::Call;
pub use guards::{GuardOptions, Guarded, Guards, Unguarded};
pub use pool::{Pool, is_descriptor_limit};
pub use prepare::prepare;
