//! What the gate locks with; loom's own in the tests that look at every interleaving.

pub use std::sync::Mutex;
use std::sync::{MutexGuard, PoisonError};

/// How often a held lock is looked at before its holder is waited for in the kernel.
const LOOKS: u32 = 6;
/// Pauses before the first look, and between two of them at most.
const PAUSES: u32 = 64;
const PAUSES_MAX: u32 = 512;

/// A section takes far less time than sleeping and being woken, so it is worth looking again for a while: some tens of
/// microseconds in all, since whoever holds it longer is not running. The pauses are long beside a section. Each change
/// of hands moves all that a section touches from one processor to the other, which costs more than the section itself;
/// so whoever has it makes several, and the other comes less often.
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
