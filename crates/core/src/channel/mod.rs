//! What processes of the core tell one another: control sockets, the commitment, and the classes of keepers.

pub mod classes;
pub mod commitment;
pub mod socket;
