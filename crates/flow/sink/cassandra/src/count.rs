//! How many rows there are can only be told by reading them all. A large table is counted again when the last count
//! was long enough ago for the reading not to matter.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A count is good for so many times the time that it took: one part in a hundred of the cluster's time, at most.
const REST: u32 = 100;
/// Below this it may be asked at every look.
const QUICK: Duration = Duration::from_millis(20);

#[derive(Default)]
pub struct Counted {
    last: Mutex<Option<(u64, Instant)>>,
}

impl Counted {
    pub fn fresh(&self) -> Option<u64> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.filter(|(_, good_until)| Instant::now() < *good_until).map(|(count, _)| count)
    }

    pub fn note(&self, count: u64, took: Duration) {
        let good_for = if took < QUICK { Duration::ZERO } else { took * REST };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((count, Instant::now() + good_for));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_took_long_is_kept() {
        let counted = Counted::default();
        counted.note(5, Duration::from_millis(1));
        assert_eq!(counted.fresh(), None);
        counted.note(6, Duration::from_secs(3));
        assert_eq!(counted.fresh(), Some(6));
    }
}
