//! The circuit breaker in front of the store. It opens after a second without an answer. Then it lets one probe through
//! every 500 ms, until one is answered.

use super::definition::{MILLISECOND, SECOND};

const UNREACHABLE_NS: u64 = SECOND;
const PROBE_EVERY_NS: u64 = 500 * MILLISECOND;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Breaker {
    /// The start of the first call that has not been answered.
    silent_since_ns: Option<u64>,
    open: bool,
    probe_at_ns: u64,
}

impl Breaker {
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// Records the start of a call, which may never end.
    pub fn on_call(&mut self, now_ns: u64) {
        self.silent_since_ns.get_or_insert(now_ns);
    }

    /// Records an answer. Returns true if this closes the breaker.
    pub fn on_answer(&mut self) -> bool {
        self.silent_since_ns = None;
        std::mem::take(&mut self.open)
    }

    /// Records that a call begun at `asked_ns` failed. Returns true if this opens the breaker.
    pub fn on_failure(&mut self, asked_ns: u64, now_ns: u64) -> bool {
        self.silent_since_ns.get_or_insert(asked_ns);
        self.tick(now_ns)
    }

    /// Opens the breaker if the store has been silent for too long. Returns true if this opens it.
    pub fn tick(&mut self, now_ns: u64) -> bool {
        let silent = self.silent_since_ns.is_some_and(|since| now_ns.saturating_sub(since) >= UNREACHABLE_NS);
        silent && self.open(now_ns)
    }

    /// Opens the breaker. Returns true if it was closed.
    pub fn open(&mut self, now_ns: u64) -> bool {
        let opens = !self.open;
        if opens {
            (self.open, self.probe_at_ns) = (true, now_ns + PROBE_EVERY_NS);
        }
        opens
    }

    /// Whether a call may be made: always while closed, once per probe interval while open.
    pub fn allows(&mut self, now_ns: u64) -> bool {
        if !self.open {
            return true;
        }
        let due = now_ns >= self.probe_at_ns;
        if due {
            self.probe_at_ns = now_ns + PROBE_EVERY_NS;
        }
        due
    }

    /// The time at which `tick` or the next probe is due.
    pub fn wake_at_ns(&self) -> Option<u64> {
        match self.silent_since_ns {
            _ if self.open => Some(self.probe_at_ns),
            Some(since) => Some(since + UNREACHABLE_NS),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_opens_after_a_second_of_silence_and_closes_with_an_answer() {
        let mut breaker = Breaker::default();
        breaker.on_call(5);
        assert!(!breaker.tick(SECOND));
        assert!(breaker.tick(SECOND + 5) && breaker.is_open());
        assert!(!breaker.tick(2 * SECOND), "it opens once");
        assert!(!breaker.allows(SECOND + 6), "no call before the probe");
        assert!(breaker.allows(2 * SECOND) && !breaker.allows(2 * SECOND), "one probe at a time");
        assert!(breaker.on_answer() && !breaker.is_open());
        assert!(!breaker.on_answer() && breaker.wake_at_ns().is_none());
    }

    #[test]
    fn silence_counts_from_the_first_call_that_was_not_answered() {
        let mut breaker = Breaker::default();
        breaker.on_call(0);
        assert!(!breaker.on_answer());
        assert!(!breaker.on_failure(900 * MILLISECOND, SECOND));
        breaker.on_call(SECOND + 500 * MILLISECOND);
        assert!(breaker.on_failure(SECOND + 800 * MILLISECOND, SECOND + 900 * MILLISECOND));
    }
}
