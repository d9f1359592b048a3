//! Remembers the row count of the table. Counting reads all rows, so a large table is counted again only after a pause
//! that is long compared with the count itself. If a caller stops waiting for a count, its result serves the next
//! caller.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use honeyflow_runtime::Failure;

/// A count stays valid for this multiple of the time that it took: counting uses at most 1 % of the time.
const VALID_FACTOR: u32 = 100;
/// A count that took less time than this is repeated at every call.
const QUICK: Duration = Duration::from_millis(20);
/// A failed count is repeated after this time: its cause may be gone sooner.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(5);

#[derive(Default)]
pub struct CachedCount {
    last: Mutex<Option<(Result<u64, Failure>, Instant)>>,
    /// Held by the task that counts.
    pub turn: tokio::sync::Mutex<()>,
}

impl CachedCount {
    pub fn fresh(&self) -> Option<Result<u64, Failure>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(_, good_until)| Instant::now() < *good_until).map(|(count, _)| count.clone())
    }

    pub fn note(&self, count: Result<u64, Failure>, took: Duration) {
        let good_for = match count {
            _ if took < QUICK => Duration::ZERO,
            Ok(_) => took * VALID_FACTOR,
            Err(_) => PAUSE_AFTER_FAILURE,
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((count, Instant::now() + good_for));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_that_took_long_is_kept() {
        let counted = CachedCount::default();
        counted.note(Ok(5), Duration::from_millis(1));
        assert_eq!(counted.fresh(), None);
        counted.note(Ok(6), Duration::from_secs(3));
        assert_eq!(counted.fresh(), Some(Ok(6)));
    }
}
