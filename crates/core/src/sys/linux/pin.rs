//! Pins: children that have exited and are not reaped, so that the number of their group stays its own.
#![expect(unsafe_code, reason = "_exit has no safe wrapper")]

use std::io;

use super::child::reap;
use super::raw;
use crate::sys::unix::child::await_end;
use crate::sys::unix::fork::{Forked, fork};
use crate::sys::unix::group::Group;
use crate::sys::unix::pid::{Pid, give_group, group_of};

/// A pin: a child that exits at once and is not reaped, a member of our group as it is now.
pub fn make_pin() -> io::Result<Pid> {
    let pin = match Pid::new(raw::pin() as i32) {
        Some(pin) => pin,
        // A filter may refuse what shares our memory. What else went wrong goes wrong here as well.
        None => match fork()? {
            // SAFETY: ends the new process, which has done nothing.
            Forked::Child => unsafe { libc::_exit(0) },
            Forked::Parent(pin) => pin,
        },
    };
    if await_end(pin) {
        return Ok(pin);
    }
    let error = io::Error::last_os_error();
    reap(pin);
    Err(error)
}

/// A new group in our session, led and held by a pin.
pub fn make_group() -> io::Result<Group> {
    let pin = make_pin()?;
    let group = Group::new(pin, pin);
    give_group(pin);
    if group_of(pin) == Some(pin) {
        return Ok(group);
    }
    reap(pin);
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::unix::group::Delivery;

    #[test]
    fn a_group_that_is_made_is_its_own_until_the_pin_is_reaped() {
        let group = make_group().unwrap();
        assert!(group.has(group.id()));
        assert!(!group.has(Pid::own().unwrap()));
        assert_eq!(group.signal(0), Delivery::Sent);
        assert!(reap(group.id()).is_some());
        assert!(!group.has(group.id()));
        assert_eq!(group.signal(0), Delivery::Refused);
    }
}
