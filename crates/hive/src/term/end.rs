//! When a term ends: one number that answered heartbeats put off, and that falls to zero once. After a reader has seen
//! the end, every later reader sees it too, and a writer that tries to put it off learns that a reader has seen it.
//!
//! The tests compile this file a second time, with loom's atomics in place of the real ones.

use super::atomic::{AtomicU64, Ordering};

const OVER: u64 = 0;

/// The end of a term in microseconds of the local clock; 0 = it has ended.
pub(crate) struct End(AtomicU64);

impl End {
    pub fn at(until: u64) -> End {
        End(AtomicU64::new(until))
    }

    /// The end; 0 if it is over.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub fn is_after(&self, now: u64) -> bool {
        let mut until = self.get();
        while now >= until {
            if until == OVER {
                return false;
            }
            // Once reported, it stays over: a heartbeat that is answered at this very moment must find it over.
            match self.0.compare_exchange(until, OVER, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return false,
                Err(put_off) => until = put_off,
            }
        }
        true
    }

    /// Puts the end off. Returns false if it is already over; then it stays over.
    pub fn put_off(&self, until: u64) -> bool {
        let mut was = self.get();
        while was != OVER && was < until {
            match self.0.compare_exchange(was, until, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return true,
                Err(other) => was = other,
            }
        }
        was != OVER
    }

    pub fn end_now(&self) {
        self.0.swap(OVER, Ordering::AcqRel);
    }
}
