//! Back-off with full jitter. The caller passes the random numbers, so the same seed gives the same waits.

use std::time::Duration;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backoff {
    pub base: Duration,
    pub cap: Duration,
}

impl Backoff {
    pub const fn new(base: Duration, cap: Duration) -> Backoff {
        Backoff { base, cap }
    }

    /// The longest wait before try number `tries` (0 = the first repeat): `min(cap, base · 2^tries)`.
    pub fn ceiling(self, tries: u32) -> Duration {
        self.base.saturating_mul(1_u32.checked_shl(tries.min(31)).unwrap_or(u32::MAX)).min(self.cap)
    }

    /// A wait between zero and the ceiling, evenly distributed.
    pub fn wait(self, tries: u32, random: u64) -> Duration {
        let ceiling = u64::try_from(self.ceiling(tries).as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(random % ceiling.saturating_add(1).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emcee_backoff_grows_with_jitter() {
        let backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));
        assert_eq!(backoff.ceiling(0), Duration::from_millis(200));
        assert_eq!(backoff.ceiling(3), Duration::from_millis(1600));
        assert_eq!(backoff.ceiling(40), Duration::from_secs(60));
        let waits: Vec<_> = (0..100).map(|n| backoff.wait(4, n * 7_919_000_003)).collect();
        assert!(waits.iter().all(|wait| *wait <= Duration::from_millis(3200)));
        assert!(waits.iter().collect::<std::collections::HashSet<_>>().len() > 50, "no jitter");
    }
}
