//! Retries after deadlocks and lock timeouts. The server has rolled back, so the transaction can be repeated.

use std::time::Duration;

use honeyflow_runtime::Backoff;

pub(crate) struct Retries {
    after_deadlock: honeyflow_runtime::Tries,
    has_waited: bool,
}

impl Default for Retries {
    fn default() -> Retries {
        let backoff = Backoff::new(Duration::from_millis(8), Duration::from_millis(150));
        Retries { after_deadlock: honeyflow_runtime::Tries::new(backoff, 6), has_waited: false }
    }
}

impl Retries {
    /// Allows one retry after a lock timeout, without a pause: the server has waited already, and it may have closed
    /// the connection of the lock's holder meanwhile.
    pub fn wait_for_lock(&mut self) -> bool {
        !std::mem::replace(&mut self.has_waited, true)
    }

    /// Waits before the next retry. Returns false if no retry is left.
    pub async fn wait(&mut self) -> bool {
        self.after_deadlock.wait().await
    }
}
