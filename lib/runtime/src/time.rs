//! Time as the cores see it: a number that comes with every input.
//!
//! A [`Moment`] is on the local clock, which only moves forward and also counts the time that the machine sleeps. It
//! decides when a node stops early, never which node owns something. Due times and ages use the store's clock.

use std::time::Duration;

/// A moment on the local clock, in microseconds since some start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(pub u64);

impl Moment {
    pub const FAR: Moment = Moment(u64::MAX);

    pub fn from_millis(millis: u64) -> Moment {
        Moment(millis.saturating_mul(1000))
    }

    #[inline]
    pub fn after(self, wait: Duration) -> Moment {
        // 64-bit arithmetic, since this runs in critical sections
        let micros = wait.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(wait.subsec_micros()));
        Moment(self.0.saturating_add(micros))
    }

    /// Rounds down to a multiple of `step`. Timers that wait for such a multiple fire together.
    #[must_use]
    pub fn floor(self, step: Duration) -> Moment {
        let step = u64::try_from(step.as_micros()).unwrap_or(u64::MAX).max(1);
        Moment(self.0 - self.0 % step)
    }

    /// The time since `earlier`; zero if `earlier` is not earlier.
    #[inline]
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_micros(self.micros_since(earlier))
    }

    #[inline]
    pub fn micros_since(self, earlier: Moment) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

pub trait Clock: Send + Sync {
    fn now(&self) -> Moment;
}

/// `CLOCK_BOOTTIME`, which runs on while the machine sleeps, unlike `std::time::Instant`.
#[derive(Clone, Copy, Debug, Default)]
pub struct BootClock;

impl Clock for BootClock {
    fn now(&self) -> Moment {
        let at = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(at.tv_sec).unwrap_or(0);
        let nanos = u64::try_from(at.tv_nsec).unwrap_or(0);
        Moment(seconds * 1_000_000 + nanos / 1000)
    }
}
