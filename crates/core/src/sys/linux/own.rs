//! Paths below /proc/self that mean the process which looks them up, by what a child has from its parent: the program,
//! the working directory, the descriptors. A child of the host would find the host's; a keeper's child finds the
//! keeper's. So the host opens them, when the call is made.
//!
//! Only these, as they are spelled here: a link to one of them is the new process's own. What names the new process
//! under `child_process`, too, is left to it: /proc/self itself, and the descriptors that are places of its stdio.

use std::io;
use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

/// A directory, by a descriptor that needs no right to read it.
pub fn open_directory(path: &str) -> io::Result<OwnedFd> {
    open(path, OFlags::DIRECTORY)
}

/// A program. `None`: the path means the same in every process.
pub fn open_own_program(path: &str, places: usize) -> Option<io::Result<OwnedFd>> {
    let part = part(path)?;
    (part == "exe" || is_descriptor(part, places)).then(|| open(path, OFlags::empty()))
}

/// A working directory. `None`: the path means the same in every process.
pub fn open_own_directory(path: &str, places: usize) -> Option<io::Result<OwnedFd>> {
    let part = part(path)?;
    let is_own = part == "cwd" || part.starts_with("cwd/") || is_descriptor(part, places);
    is_own.then(|| open(path, OFlags::DIRECTORY))
}

/// What follows /proc/self/.
fn part(path: &str) -> Option<&str> {
    // /dev/fd is a link to /proc/self/fd.
    let own = ["/proc/self/", "/proc/thread-self/", "/dev/"].iter().find_map(|own| path.strip_prefix(own));
    own.filter(|part| !path.starts_with("/dev/") || part.starts_with("fd/"))
}

/// `fd/<number>` that is no place of the command, or what is below it.
fn is_descriptor(part: &str, places: usize) -> bool {
    let number = part.strip_prefix("fd/").and_then(|rest| rest.split('/').next());
    number.and_then(|number| number.parse().ok()).is_some_and(|number: usize| number >= places)
}

fn open(path: &str, flags: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_own(path: &str, places: usize) -> (bool, bool) {
        (open_own_program(path, places).is_some(), open_own_directory(path, places).is_some())
    }

    #[test]
    fn what_means_the_host_is_kept_apart_from_what_means_the_new_process() {
        let both = (true, true);
        let none = (false, false);
        for (path, expected) in [
            ("/proc/self/exe", (true, false)),
            ("/proc/thread-self/exe", (true, false)),
            // With another directory than the host's a program below it is in that.
            ("/proc/self/cwd", (false, true)),
            ("/proc/self/cwd/sub", (false, true)),
            ("/proc/self/fd/3", both),
            ("/proc/self/fd/12/sub", both),
            ("/dev/fd/3", both),
            ("/proc/self/fd/2", none),
            ("/dev/fd/0", none),
            ("/dev/stdin", none),
            ("/dev/exe", none),
            ("/dev/cwd", none),
            ("/proc/self", none),
            ("/proc/self/", none),
            ("/proc/self/fd", none),
            ("/proc/self/fd/", none),
            ("/proc/self/fd/x", none),
            ("/proc/self/exe2", none),
            ("/proc/self/cwd2", none),
            ("/proc/1/exe", none),
            ("proc/self/exe", none),
            ("exe", none),
            ("", none),
        ] {
            assert_eq!(is_own(path, 3), expected, "{path}");
        }
        assert_eq!(is_own("/proc/self/fd/3", 4), none);
    }
}
