//! Memory that stays shared over fork.
#![expect(unsafe_code, reason = "mmap has no safe wrapper")]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering};

/// A fixed number of bytes, zero at first (mmap(2), MAP_SHARED). Never unmapped: it lives as long as the process.
pub struct SharedBytes {
    start: NonNull<AtomicU8>,
    length: usize,
}

impl SharedBytes {
    /// Maps them.
    pub fn new(length: usize) -> io::Result<SharedBytes> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast())
            .map(|start| SharedBytes { start, length })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn byte(&self, index: usize) -> &AtomicU8 {
        assert!(index < self.length, "a slot outside of the page");
        // SAFETY: inside of the mapping, as just checked.
        let place = unsafe { self.start.add(index) };
        // SAFETY: mapped for ever, zeroed, and only ever used as an atomic.
        unsafe { place.as_ref() }
    }

    /// Stores one byte.
    pub fn store(&self, index: usize, value: u8) {
        self.byte(index).store(value, Ordering::SeqCst);
    }

    /// Loads one byte.
    pub fn load(&self, index: usize) -> u8 {
        self.byte(index).load(Ordering::SeqCst)
    }
}
