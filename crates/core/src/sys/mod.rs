//! The seam to the operating system, and the only place with unsafe code. Every platform's folder exports the
//! same names; callers carry no `cfg`. `unix` is what platforms have in common; it knows none of them.

#[cfg(unix)]
mod unix;
#[cfg(unix)]
pub use unix::*;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::*;

#[cfg(not(target_os = "linux"))]
compile_error!("holdfast is built for Linux only so far; what a new platform needs is in CONTRIBUTING.md");
