//! Memory that stays shared over fork.
#![expect(unsafe_code, reason = "mmap has no safe wrapper")]

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI32, Ordering};

/// A fixed count of numbers, zero at first (mmap(2), MAP_SHARED). Never unmapped: they live as long as the process.
pub struct SharedNumbers {
    start: NonNull<AtomicI32>,
    count: usize,
}

impl SharedNumbers {
    /// Maps them.
    pub fn new(count: usize) -> io::Result<SharedNumbers> {
        let length = count * size_of::<AtomicI32>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(start.cast())
            .map(|start| SharedNumbers { start, count })
            .ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn place(&self, index: usize) -> &AtomicI32 {
        assert!(index < self.count, "a slot outside of the mapping");
        // SAFETY: inside of the mapping, as just checked.
        let place = unsafe { self.start.add(index) };
        // SAFETY: mapped for ever, zeroed, and only ever used as an atomic.
        unsafe { place.as_ref() }
    }

    /// Stores one number.
    pub fn store(&self, index: usize, value: i32) {
        self.place(index).store(value, Ordering::SeqCst);
    }

    /// Loads one number.
    pub fn load(&self, index: usize) -> i32 {
        self.place(index).load(Ordering::SeqCst)
    }
}
