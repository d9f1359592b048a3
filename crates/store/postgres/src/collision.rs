//! The back-off with which a whole transaction is retried after a deadlock, a serialisation failure or a lock time-out.

use std::time::Duration;

use honeyflow_runtime::{Backoff, Tries};

pub(crate) const fn tries() -> Tries {
    Tries::new(Backoff::new(Duration::from_millis(10), Duration::from_millis(100)), 5)
}
