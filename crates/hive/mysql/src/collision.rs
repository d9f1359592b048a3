//! Deadlocks and locks that take too long: the server has rolled back, so the same again.

use std::time::Duration;

use honeyflow_runtime::Backoff;

pub(crate) struct Tries {
    after_deadlock: honeyflow_runtime::Tries,
    has_waited: bool,
}

impl Default for Tries {
    fn default() -> Tries {
        let backoff = Backoff::new(Duration::from_millis(8), Duration::from_millis(150));
        Tries { after_deadlock: honeyflow_runtime::Tries::new(backoff, 6), has_waited: false }
    }
}

impl Tries {
    /// The server has waited already. Once more: whoever holds the lock may have been cut off meanwhile.
    pub fn wait_for_lock(&mut self) -> bool {
        !std::mem::replace(&mut self.has_waited, true)
    }

    /// Waits before the next try; false if there is none.
    pub async fn wait(&mut self) -> bool {
        self.after_deadlock.wait().await
    }
}
