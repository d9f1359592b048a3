//! How long a request waits for the application's transaction to end.
//!
//! | state                                              | a request waits for                                       |
//! |----------------------------------------------------|-----------------------------------------------------------|
//! | no node has joined                                 | 700 ms                                                    |
//! | nodes have joined                                  | a sixth of their shortest time to live, at most 700 ms    |
//! | the last write waited in vain                      | a quarter of that                                         |
//!
//! A heartbeat that is refused as busy is answered by a read instead. That answer must come before the heartbeat's
//! deadline, a third of the time to live, even if other requests wait before it in the queue.

use std::time::Duration;

use rusqlite::Connection;

const LONGEST: Duration = Duration::from_millis(700);

#[derive(Debug)]
pub(crate) struct Patience {
    whole: Duration,
    /// The configuration sets the time, so joins do not change it.
    fixed: bool,
    in_vain: bool,
}

impl Patience {
    pub fn new(said: Option<Duration>) -> Patience {
        Patience { whole: said.unwrap_or(LONGEST), fixed: said.is_some(), in_vain: false }
    }

    pub fn on_join(&mut self, time_to_live: Duration) {
        if !self.fixed {
            self.whole = self.whole.min(time_to_live / 6);
        }
    }

    /// Records whether the last write was refused as busy.
    pub fn on_write(&mut self, busy: bool) {
        self.in_vain = busy;
    }

    pub fn apply(&self, connection: &Connection) -> rusqlite::Result<()> {
        connection.busy_timeout(self.now())
    }

    fn now(&self) -> Duration {
        if self.in_vain { self.whole / 4 } else { self.whole }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_39_a_refused_beat_is_answered_before_its_deadline_behind_other_requests() {
        for time_to_live in [150, 1_500, 6_000, 60_000].map(Duration::from_millis) {
            let mut patience = Patience::new(None);
            patience.on_join(time_to_live);
            let mut waited = Duration::ZERO;
            // Three changes by the queen, then the heartbeat.
            for _ in 0..4 {
                waited += patience.now();
                patience.on_write(true);
            }
            assert!(waited < time_to_live / 3, "{time_to_live:?}: {waited:?}");
            patience.on_write(false);
            assert!(patience.now() <= LONGEST && patience.now() >= LONGEST.min(time_to_live / 6));
        }
    }
}
