//! Taking a lock.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A panic while a lock was held must not take every later call with it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
