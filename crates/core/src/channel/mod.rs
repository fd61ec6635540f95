//! What processes of the core tell one another: connections, the commitment, and the classes of keepers.

pub mod classes;
pub mod commitment;
pub mod connection;
