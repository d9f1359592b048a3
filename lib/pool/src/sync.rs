//! The lock primitive of the core's lock. The loom tests use loom's instead.

pub use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

/// How often a held lock is tried before the thread sleeps in the kernel.
const LOOKS: u32 = 6;
/// The number of pauses before the first retry, and the most between two retries.
const PAUSES: u32 = 64;
const PAUSES_MAX: u32 = 512;

/// Locks, and spins for a while first. A critical section takes far less time than to sleep and be woken, so it pays to
/// retry for some tens of microseconds; a thread that holds the lock for longer is not running. The pauses are long
/// compared with a section. Each change of the holder moves the cache lines of the section to another processor, which
/// costs more than the section itself; with long pauses one thread makes several sections in a row.
#[inline(always)]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic never leaves the section, so the lock cannot be poisoned.
    match mutex.try_lock() {
        Ok(guard) => guard,
        Err(_) => contended(mutex),
    }
}

#[cold]
fn contended<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    let mut pauses = PAUSES;
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
