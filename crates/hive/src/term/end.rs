//! When a term ends: one number that is put off by answered beats and falls to nothing once. Whoever has been told that it
//! is over never hears otherwise, and whoever puts it off learns if somebody was.
//!
//! This file is compiled a second time by the tests, with loom's atomics in the place of the real ones.

use super::atomic::{AtomicU64, Ordering};

const OVER: u64 = 0;

/// In microseconds of the local clock.
pub(crate) struct End(AtomicU64);

impl End {
    pub fn at(until: u64) -> End {
        End(AtomicU64::new(until))
    }

    /// The beginning of time if it is over.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub fn is_after(&self, now: u64) -> bool {
        let mut until = self.get();
        while now >= until {
            if until == OVER {
                return false;
            }
            // Said once, it stays true: a beat that is answered at this very moment must find it over.
            match self.0.compare_exchange(until, OVER, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return false,
                Err(put_off) => until = put_off,
            }
        }
        true
    }

    /// False: it is over, and stays so.
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

    pub fn now(&self) {
        self.0.swap(OVER, Ordering::AcqRel);
    }
}
