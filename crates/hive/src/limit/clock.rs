//! The clock of the local check: nanoseconds since the limiter began. It stops while the machine sleeps. The drawing
//! task notices that by comparing it with the boot clock, which goes on, and voids the drawn permits.
//!
//! Most checks do not need the exact time, only that it is not later than some time. The kernel's coarse clock answers
//! that in less than half of the time: it returns the time of the last tick from memory, without reading the
//! processor's counter.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

#[derive(Clone, Debug)]
pub struct LocalClock {
    /// Added to the machine's monotonic time; a manual clock begins at zero.
    begin_ns: u64,
    /// Added to the time of the last tick; the sum is a time that is not past yet.
    ahead_ns: u64,
    manual: Option<Arc<AtomicU64>>,
}

/// The clock does not begin at zero, because an empty batch has the expiry zero.
const BEGIN_NS: u64 = 1_000_000_000;
/// Two ticks: a tick itself may be late by one.
const TICKS: u64 = 2;
/// The tick of most kernels; a manual clock uses it, because it has no ticks.
const TICK_NS: u64 = 4_000_000;

impl Default for LocalClock {
    fn default() -> LocalClock {
        let begin_ns = BEGIN_NS.wrapping_sub(read(ClockId::Monotonic));
        let tick_ns = nanos(clock_getres(ClockId::MonotonicCoarse));
        LocalClock { begin_ns, ahead_ns: begin_ns.wrapping_add(TICKS * tick_ns), manual: None }
    }
}

impl LocalClock {
    /// A clock for tests: it advances when the returned number does.
    pub fn manual() -> (LocalClock, Arc<AtomicU64>) {
        let manual_ns = Arc::new(AtomicU64::new(0));
        let ahead_ns = BEGIN_NS + TICKS * TICK_NS;
        (LocalClock { begin_ns: BEGIN_NS, ahead_ns, manual: Some(Arc::clone(&manual_ns)) }, manual_ns)
    }

    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.machine_ns(ClockId::Monotonic).wrapping_add(self.begin_ns)
    }

    /// A time that is not past yet, at most two ticks of the kernel from now (8 ms on most kernels). It can be past
    /// only if the host was stopped for longer than a tick.
    #[inline]
    pub fn soon_ns(&self) -> u64 {
        self.machine_ns(ClockId::MonotonicCoarse).wrapping_add(self.ahead_ns)
    }

    #[inline]
    fn machine_ns(&self, clock: ClockId) -> u64 {
        self.manual.as_ref().map_or_else(|| read(clock), |manual_ns| manual_ns.load(Ordering::Relaxed))
    }
}

#[inline]
fn read(clock: ClockId) -> u64 {
    nanos(clock_gettime(clock))
}

/// Converts a time of the machine's clocks, of which neither part is ever negative.
#[inline]
fn nanos(at: Timespec) -> u64 {
    (at.tv_sec.cast_unsigned()).wrapping_mul(1_000_000_000).wrapping_add(at.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn the_clock_follows_the_machines_clock() {
        let (clock, began) = (LocalClock::default(), Instant::now());
        let first_ns = clock.now_ns();
        assert!((BEGIN_NS..BEGIN_NS + 1_000_000_000).contains(&first_ns), "{first_ns}");
        std::thread::sleep(Duration::from_millis(20));
        let passed = Duration::from_nanos(clock.now_ns() - first_ns);
        assert!((Duration::from_millis(20)..=began.elapsed()).contains(&passed), "{passed:?}");
    }

    /// HV-60: the coarse time must not make an expired batch look valid.
    #[test]
    fn hv_60_the_coarse_time_is_not_past_and_not_far_ahead() {
        let (clock, began) = (LocalClock::default(), Instant::now());
        let tick_ns = nanos(clock_getres(ClockId::MonotonicCoarse));
        let (mut readings, mut behind, mut far) = (0, 0, 0);
        while began.elapsed() < Duration::from_nanos(20 * tick_ns) {
            readings += 1;
            let (before_ns, soon_ns, after_ns) = (clock.now_ns(), clock.soon_ns(), clock.now_ns());
            behind += u32::from(soon_ns < before_ns);
            far += u32::from(soon_ns > after_ns + TICKS * tick_ns);
        }
        assert!(behind * 50 < readings, "{behind} of {readings} were past: more than pauses of the host explain");
        assert_eq!(far, 0, "the time of the last tick is in the past");
    }

    #[test]
    fn a_manual_clock_moves_only_when_it_is_set() {
        let (clock, manual_ns) = LocalClock::manual();
        assert_eq!((clock.now_ns(), clock.soon_ns()), (BEGIN_NS, BEGIN_NS + 8_000_000));
        manual_ns.store(5, Ordering::Relaxed);
        assert_eq!((clock.now_ns(), clock.soon_ns()), (BEGIN_NS + 5, BEGIN_NS + 8_000_005));
    }
}
