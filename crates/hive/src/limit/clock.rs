//! The clock of the local check: nanoseconds since the limiter began, from the processor's own counter where that is
//! steady. It stands still while the machine sleeps; the shell notices by the clock that does not, and voids what was drawn.

#[derive(Clone, Debug)]
pub struct LocalClock {
    counter: quanta::Clock,
    origin: u64,
}

/// Nothing happens at zero: that is the time of death of what never lived.
const BEGIN_NS: u64 = 1_000_000_000;

impl Default for LocalClock {
    fn default() -> LocalClock {
        LocalClock::new(quanta::Clock::new())
    }
}

impl LocalClock {
    pub fn new(counter: quanta::Clock) -> LocalClock {
        LocalClock { origin: counter.raw(), counter }
    }

    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.counter.delta_as_nanos(self.origin, self.counter.raw()).wrapping_add(BEGIN_NS)
    }
}
