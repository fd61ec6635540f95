//! What becomes of a keeper's brood when the keeper dies, reported to the spawn helper in shared memory.
//!
//! A dead keeper does not answer, and a message may still be on its way: a number in memory that both map is always
//! as new as the keeper's last act.

use std::rc::Rc;

use crate::sys::{Pid, SharedNumbers};

/// A keeper's class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// No call: nothing is below it but a pin.
    Idle,
    /// A call whose brood is to be ended, and which has this pin.
    Contained(Option<Pid>),
}

/// One number for each keeper.
pub struct Classes {
    numbers: Rc<SharedNumbers>,
    free: Vec<usize>,
    used: usize,
}

/// The place of a keeper's class.
#[derive(Clone)]
pub struct Slot {
    numbers: Rc<SharedNumbers>,
    index: usize,
}

impl Classes {
    /// Maps the page; must be done before the first fork.
    pub fn new() -> std::io::Result<Classes> {
        Ok(Classes { numbers: Rc::new(SharedNumbers::new(MOST)?), free: Vec::new(), used: 0 })
    }

    /// A slot for a new keeper; `None` when there are too many.
    pub fn claim(&mut self) -> Option<Slot> {
        let index = self.free.pop().or_else(|| {
            self.used += 1;
            (self.used <= MOST).then_some(self.used - 1)
        })?;
        let slot = Slot { numbers: Rc::clone(&self.numbers), index };
        slot.set(Class::Idle);
        Some(slot)
    }

    /// The keeper is gone and its brood is ended.
    pub fn release(&mut self, slot: Slot) {
        self.free.push(slot.index);
    }
}

/// Keepers of one helper, at most.
const MOST: usize = 32_768;

/// In place of a pin's number, which is 2 or more.
const IDLE: i32 = 0;
const WITHOUT_PIN: i32 = 1;

impl Slot {
    /// The keeper calls this.
    pub fn set(&self, class: Class) {
        let number = match class {
            Class::Idle => IDLE,
            Class::Contained(pin) => pin.map_or(WITHOUT_PIN, Pid::raw),
        };
        self.numbers.store(self.index, number);
    }

    /// The spawn helper calls this.
    pub fn get(&self) -> Class {
        match self.numbers.load(self.index) {
            IDLE => Class::Idle,
            number => Class::Contained(Pid::new(number)),
        }
    }
}
