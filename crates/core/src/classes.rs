//! What becomes of a keeper's brood when the keeper dies, told to the spawn helper by shared memory.
//!
//! A dead keeper cannot be asked, and a message may still be on its way: a byte in a page that both map is always
//! as new as the keeper's last act.

use std::rc::Rc;

use crate::sys::SharedBytes;

/// A keeper's class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Class {
    /// No call: nothing is below it.
    Idle,
    /// A call whose brood is to be ended.
    Contained,
}

/// One byte for each keeper.
pub struct Classes {
    bytes: Rc<SharedBytes>,
    free: Vec<usize>,
    used: usize,
}

/// A keeper's byte.
#[derive(Clone)]
pub struct Slot {
    bytes: Rc<SharedBytes>,
    index: usize,
}

impl Classes {
    /// Maps the page; must be done before the first fork.
    pub fn new() -> std::io::Result<Classes> {
        Ok(Classes { bytes: Rc::new(SharedBytes::new(MOST)?), free: Vec::new(), used: 0 })
    }

    /// A byte for a new keeper; None when there are too many.
    pub fn claim(&mut self) -> Option<Slot> {
        let index = self.free.pop().or_else(|| {
            self.used += 1;
            (self.used <= MOST).then_some(self.used - 1)
        })?;
        let slot = Slot { bytes: Rc::clone(&self.bytes), index };
        slot.set(Class::Idle);
        Some(slot)
    }

    /// The keeper is gone and dealt with.
    pub fn release(&mut self, slot: Slot) {
        self.free.push(slot.index);
    }
}

/// Keepers of one helper, at most.
const MOST: usize = 32_768;

impl Slot {
    /// By the keeper.
    pub fn set(&self, class: Class) {
        self.bytes.store(self.index, class as u8);
    }

    /// By the spawn helper.
    pub fn get(&self) -> Class {
        if self.bytes.load(self.index) == Class::Idle as u8 { Class::Idle } else { Class::Contained }
    }
}
