//! Deadlocks, serialisation failures, locks that take too long: the whole transaction again.

use std::time::Duration;

use honeyflow_runtime::{Backoff, Tries};

pub(crate) const fn tries() -> Tries {
    Tries::new(Backoff::new(Duration::from_millis(10), Duration::from_millis(100)), 5)
}
