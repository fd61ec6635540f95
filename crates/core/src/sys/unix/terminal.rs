//! The terminal, and the modes it had.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};
use rustix::termios::{OptionalActions, Termios};

use super::group::TerminalGroup;

/// The controlling terminal and the modes it had.
pub struct Terminal {
    fd: OwnedFd,
    modes: Termios,
}

impl Terminal {
    /// None where there is no controlling terminal.
    pub fn open() -> Option<Terminal> {
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/dev/tty", flags, Mode::empty()).ok()?;
        let modes = rustix::termios::tcgetattr(&fd).ok()?;
        Some(Terminal { fd, modes })
    }

    /// Whether our group is the one in the foreground. False if either is outside of our pid namespace, where they
    /// cannot be compared.
    pub fn is_ours(&self) -> bool {
        let foreground = rustix::termios::tcgetpgrp(&self.fd).map(|group| group.as_raw_nonzero().get());
        foreground.is_ok_and(|group| TerminalGroup::own() == TerminalGroup(group))
    }

    /// Puts the modes back (SIGTTOU is blocked, so this also works from the background).
    pub fn restore(&self) {
        let _ = rustix::termios::tcsetattr(&self.fd, OptionalActions::Drain, &self.modes);
    }
}
