//! How the processes of the core communicate: connections, the commitment, and the classes of keepers.

pub mod classes;
pub mod commitment;
pub mod connection;
