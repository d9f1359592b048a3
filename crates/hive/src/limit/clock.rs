//! The clock of the local check: nanoseconds since the limiter began. It stands still while the machine sleeps; the shell
//! notices by the clock that does not, and voids what was drawn.
//!
//! Most checks do not need to know what time it is, only that it is not later than some time. That the kernel tells in less
//! than half of the time: as of its last tick, from memory, without asking the processor's counter.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use rustix::time::{ClockId, Timespec, clock_getres, clock_gettime};

#[derive(Clone, Debug)]
pub struct LocalClock {
    /// From the machine's time to ours; one that is moved by hand begins at zero.
    begin_ns: u64,
    /// And to one that it is not past yet, from the time of the last tick.
    ahead_ns: u64,
    by_hand: Option<Arc<AtomicU64>>,
}

/// Nothing happens at zero: that is the time of death of what never lived.
const BEGIN_NS: u64 = 1_000_000_000;
/// A tick may itself be late by one.
const TICKS: u64 = 2;
/// Of most kernels; by hand, where there are none.
const TICK_NS: u64 = 4_000_000;

impl Default for LocalClock {
    fn default() -> LocalClock {
        let begin_ns = BEGIN_NS.wrapping_sub(read(ClockId::Monotonic));
        let tick_ns = nanos(clock_getres(ClockId::MonotonicCoarse));
        LocalClock { begin_ns, ahead_ns: begin_ns.wrapping_add(TICKS * tick_ns), by_hand: None }
    }
}

impl LocalClock {
    /// Goes on when the number does.
    pub fn by_hand() -> (LocalClock, Arc<AtomicU64>) {
        let hand = Arc::new(AtomicU64::new(0));
        let ahead_ns = BEGIN_NS + TICKS * TICK_NS;
        (LocalClock { begin_ns: BEGIN_NS, ahead_ns, by_hand: Some(Arc::clone(&hand)) }, hand)
    }

    #[inline]
    pub fn now_ns(&self) -> u64 {
        self.machine_ns(ClockId::Monotonic).wrapping_add(self.begin_ns)
    }

    /// A time that is not past yet, at most two ticks of the kernel (8 ms, mostly) from now. Only where a host stands still for
    /// longer than a tick can it be past.
    #[inline]
    pub fn soon_ns(&self) -> u64 {
        self.machine_ns(ClockId::MonotonicCoarse).wrapping_add(self.ahead_ns)
    }

    #[inline]
    fn machine_ns(&self, clock: ClockId) -> u64 {
        self.by_hand.as_ref().map_or_else(|| read(clock), |hand| hand.load(Ordering::Relaxed))
    }
}

#[inline]
fn read(clock: ClockId) -> u64 {
    nanos(clock_gettime(clock))
}

/// Of the machine's clocks neither part is ever negative.
#[inline]
fn nanos(at: Timespec) -> u64 {
    (at.tv_sec.cast_unsigned()).wrapping_mul(1_000_000_000).wrapping_add(at.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn it_begins_and_goes_on_with_the_machines_clock() {
        let (clock, began) = (LocalClock::default(), Instant::now());
        let first_ns = clock.now_ns();
        assert!((BEGIN_NS..BEGIN_NS + 1_000_000_000).contains(&first_ns), "{first_ns}");
        std::thread::sleep(Duration::from_millis(20));
        let passed = Duration::from_nanos(clock.now_ns() - first_ns);
        assert!((Duration::from_millis(20)..=began.elapsed()).contains(&passed), "{passed:?}");
    }

    /// HV-60: what is dead is not taken for alive.
    #[test]
    fn hv_60_soon_is_not_past_and_not_far() {
        let (clock, began) = (LocalClock::default(), Instant::now());
        let tick_ns = nanos(clock_getres(ClockId::MonotonicCoarse));
        let (mut readings, mut behind, mut far) = (0, 0, 0);
        while began.elapsed() < Duration::from_nanos(20 * tick_ns) {
            readings += 1;
            let (before_ns, soon_ns, after_ns) = (clock.now_ns(), clock.soon_ns(), clock.now_ns());
            behind += u32::from(soon_ns < before_ns);
            far += u32::from(soon_ns > after_ns + TICKS * tick_ns);
        }
        assert!(behind * 50 < readings, "{behind} of {readings}: more than a host that stands still explains");
        assert_eq!(far, 0, "the time of the last tick is in the past");
    }

    #[test]
    fn by_hand_it_moves_when_it_is_moved() {
        let (clock, hand) = LocalClock::by_hand();
        assert_eq!((clock.now_ns(), clock.soon_ns()), (BEGIN_NS, BEGIN_NS + 8_000_000));
        hand.store(5, Ordering::Relaxed);
        assert_eq!((clock.now_ns(), clock.soon_ns()), (BEGIN_NS + 5, BEGIN_NS + 8_000_005));
    }
}
