//! How long a request waits for the application's transaction to end.
//!
//! | so far                                          | waits for                                     |
//! |-------------------------------------------------|-----------------------------------------------|
//! | nobody has joined                               | 700 ms                                        |
//! | the shortest time to live of those who have     | a sixth of it, at most 700 ms                 |
//! | one has waited in vain, and none got through since | a quarter of that                          |
//!
//! A beat that is refused as busy is answered by a read instead, and that must come before the beat's deadline, a third of
//! the time to live, whatever else waits before it in the queue.

use std::time::Duration;

use rusqlite::Connection;

const LONGEST: Duration = Duration::from_millis(700);

#[derive(Debug)]
pub(crate) struct Patience {
    whole: Duration,
    /// As somebody has said, whoever joins.
    fixed: bool,
    in_vain: bool,
}

impl Patience {
    pub fn new(said: Option<Duration>) -> Patience {
        Patience { whole: said.unwrap_or(LONGEST), fixed: said.is_some(), in_vain: false }
    }

    pub fn joined(&mut self, time_to_live: Duration) {
        if !self.fixed {
            self.whole = self.whole.min(time_to_live / 6);
        }
    }

    /// What has become of a write.
    pub fn learn(&mut self, busy: bool) {
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
    fn hv_39_a_refused_beat_is_answered_before_its_deadline_whatever_waits_before_it() {
        for time_to_live in [150, 1_500, 6_000, 60_000].map(Duration::from_millis) {
            let mut patience = Patience::new(None);
            patience.joined(time_to_live);
            let mut waited = Duration::ZERO;
            // Three changes of the queen's, and the beat.
            for _ in 0..4 {
                waited += patience.now();
                patience.learn(true);
            }
            assert!(waited < time_to_live / 3, "{time_to_live:?}: {waited:?}");
            patience.learn(false);
            assert!(patience.now() <= LONGEST && patience.now() >= LONGEST.min(time_to_live / 6));
        }
    }
}
