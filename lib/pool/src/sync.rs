//! What the gate locks with; loom's own in the tests that look at every interleaving.

pub use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

/// How often a held lock is looked at before its holder is waited for in the kernel.
const LOOKS: u32 = 40;
/// Pauses between two looks, at most.
const PAUSES_MAX: u32 = 32;

/// A section takes far less time than sleeping and being woken, so it is worth looking again for a while. The pauses grow:
/// whoever holds the lock is to be left alone with it.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic never leaves the section, so the lock cannot be poisoned.
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(_) => contended(mutex),
    }
}

#[cold]
fn contended<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut pauses = 4;
    for _ in 0..LOOKS {
        for _ in 0..pauses {
            std::hint::spin_loop();
        }
        if let Ok(guard) = mutex.try_lock() {
            return guard;
        }
        pauses = (pauses * 2).min(PAUSES_MAX);
    }
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
