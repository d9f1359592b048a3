//! Whether the store is there. Open after a second without an answer; then one probe at a time, until one is answered.

use super::definition::{MILLISECOND, SECOND};

const UNREACHABLE_NS: u64 = SECOND;
const PROBE_EVERY_NS: u64 = 500 * MILLISECOND;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Breaker {
    /// Since when nothing was answered, although something was asked.
    silent_since_ns: Option<u64>,
    open: bool,
    probe_at_ns: u64,
}

impl Breaker {
    pub fn is_open(&self) -> bool {
        self.open
    }

    /// A call has begun; it may never end.
    pub fn asked(&mut self, now_ns: u64) {
        self.silent_since_ns.get_or_insert(now_ns);
    }

    /// True if this closes it.
    pub fn answered(&mut self) -> bool {
        self.silent_since_ns = None;
        std::mem::take(&mut self.open)
    }

    /// A call begun at `asked_ns` failed. True if this opens it.
    pub fn failed(&mut self, asked_ns: u64, now_ns: u64) -> bool {
        self.silent_since_ns.get_or_insert(asked_ns);
        self.tick(now_ns)
    }

    /// True if this opens it.
    pub fn tick(&mut self, now_ns: u64) -> bool {
        let silent = self.silent_since_ns.is_some_and(|since| now_ns.saturating_sub(since) >= UNREACHABLE_NS);
        silent && self.open(now_ns)
    }

    /// True if it was closed.
    pub fn open(&mut self, now_ns: u64) -> bool {
        let opens = !self.open;
        if opens {
            (self.open, self.probe_at_ns) = (true, now_ns + PROBE_EVERY_NS);
        }
        opens
    }

    /// Whether a call may be made: always while closed, now and then while open.
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

    /// When to look again.
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
    fn it_opens_after_a_second_of_silence_and_closes_with_an_answer() {
        let mut breaker = Breaker::default();
        breaker.asked(5);
        assert!(!breaker.tick(SECOND));
        assert!(breaker.tick(SECOND + 5) && breaker.is_open());
        assert!(!breaker.tick(2 * SECOND), "it opens once");
        assert!(!breaker.allows(SECOND + 6), "no call before the probe");
        assert!(breaker.allows(2 * SECOND) && !breaker.allows(2 * SECOND), "one probe at a time");
        assert!(breaker.answered() && !breaker.is_open());
        assert!(!breaker.answered() && breaker.wake_at_ns().is_none());
    }

    #[test]
    fn silence_counts_from_the_first_call_that_was_not_answered() {
        let mut breaker = Breaker::default();
        breaker.asked(0);
        assert!(!breaker.answered());
        assert!(!breaker.failed(900 * MILLISECOND, SECOND));
        breaker.asked(SECOND + 500 * MILLISECOND);
        assert!(breaker.failed(SECOND + 800 * MILLISECOND, SECOND + 900 * MILLISECOND));
    }
}
