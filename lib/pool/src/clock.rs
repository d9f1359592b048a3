//! The clocks that a pool can use.

use honeyflow_runtime::{Clock, Moment};

/// Reads the processor's counter where that is steady, which costs almost nothing.
#[derive(Clone, Debug)]
pub struct CounterClock {
    counter: quanta::Clock,
    origin: u64,
}

impl Default for CounterClock {
    fn default() -> CounterClock {
        let counter = quanta::Clock::new();
        CounterClock { origin: counter.raw(), counter }
    }
}

impl Clock for CounterClock {
    #[inline]
    fn now(&self) -> Moment {
        Moment(self.counter.delta_as_nanos(self.origin, self.counter.raw()) / 1000)
    }
}

/// The clock of one pool. It is read twice for every loan, so the usual clock is not boxed.
pub(crate) enum PoolClock {
    Counter(CounterClock),
    Other(Box<dyn Clock>),
}

impl PoolClock {
    #[inline]
    pub fn now(&self) -> Moment {
        match self {
            PoolClock::Counter(clock) => clock.now(),
            PoolClock::Other(clock) => clock.now(),
        }
    }
}

/// Tokio's clock, which tests can stop and advance.
#[derive(Clone, Copy, Debug)]
pub struct TokioClock {
    origin: tokio::time::Instant,
}

impl Default for TokioClock {
    fn default() -> TokioClock {
        TokioClock { origin: tokio::time::Instant::now() }
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Moment {
        Moment(u64::try_from(self.origin.elapsed().as_micros()).unwrap_or(u64::MAX))
    }
}
