//! Guard, gate and starter as processes: what each answers, whom it ends, and what is left when one of them dies.

#[path = "../common/mod.rs"]
mod common;
mod found;
mod gate;
mod guard;
mod members;
mod namespace;
mod processes;
#[cfg(feature = "stops")]
mod stops;
