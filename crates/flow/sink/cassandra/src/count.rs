//! How many rows there are can only be told by reading them all. A large table is counted again when the last count
//! was long enough ago for the reading not to matter; whoever does not wait for a count finds it the next time.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use honeyflow_runtime::Failure;

/// A count is good for so many times the time that it took: one part in a hundred of the cluster's time, at most.
const REST: u32 = 100;
/// Below this it may be asked at every look.
const QUICK: Duration = Duration::from_millis(20);
/// What failed may be mended sooner.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct Counted {
    last: Mutex<Option<(Result<u64, Failure>, Instant)>>,
    /// Held by the one who counts.
    pub turn: tokio::sync::Mutex<()>,
}

impl Counted {
    pub fn fresh(&self) -> Option<Result<u64, Failure>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(_, good_until)| Instant::now() < *good_until).map(|(count, _)| count.clone())
    }

    pub fn note(&self, count: Result<u64, Failure>, took: Duration) {
        let good_for = match count {
            _ if took < QUICK => Duration::ZERO,
            Ok(_) => took * REST,
            Err(_) => REST_AFTER_FAILURE,
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((count, Instant::now() + good_for));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_took_long_is_kept() {
        let counted = Counted::default();
        counted.note(Ok(5), Duration::from_millis(1));
        assert_eq!(counted.fresh(), None);
        counted.note(Ok(6), Duration::from_secs(3));
        assert_eq!(counted.fresh(), Some(Ok(6)));
    }
}
