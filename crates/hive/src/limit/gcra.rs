//! The generic cell rate algorithm in one atomic word: the time at which the bucket would be full again. For a node that
//! is on its own. Rounding is always towards the later time, so that it never admits too much.

use super::atomic::{AtomicU64, Ordering};

/// A local share of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Nanoseconds per permit, in 2^-16ths.
    interval_fixed: u128,
    pub burst: u64,
    /// Nothing is full before this: a share begins empty.
    pub since_ns: u64,
}

const FIXED_BITS: u32 = 16;

impl Share {
    /// `rate / divisor`, with a burst of its own, empty at `since_ns`.
    pub fn new(rate: super::rate::Rate, divisor: u64, burst: u64, since_ns: u64) -> Share {
        let numerator = (u128::from(rate.period_ms) * 1_000_000 * u128::from(divisor.max(1))) << FIXED_BITS;
        Share { interval_fixed: numerator.div_ceil(u128::from(rate.permits)), burst: burst.max(1), since_ns }
    }

    pub fn time_for(&self, permits: u64) -> u64 {
        let ns = (self.interval_fixed * u128::from(permits)).div_ceil(1 << FIXED_BITS);
        u64::try_from(ns).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
    }

    /// The next full time if the cost is met now, else how long to wait.
    pub fn decide(&self, full_at_ns: u64, now_ns: u64, cost: u64) -> Result<u64, u64> {
        let capacity = self.time_for(self.burst);
        let full_at = full_at_ns.max(self.since_ns.saturating_add(capacity)).max(now_ns);
        let next = full_at.saturating_add(self.time_for(cost));
        let latest = now_ns.saturating_add(capacity);
        if next <= latest { Ok(next) } else { Err(next - latest) }
    }

    /// Whole permits that could be taken now.
    pub fn left(&self, full_at_ns: u64, now_ns: u64) -> u64 {
        let capacity = self.time_for(self.burst);
        let full_at = full_at_ns.max(self.since_ns.saturating_add(capacity)).max(now_ns);
        let room = now_ns.saturating_add(capacity).saturating_sub(full_at);
        u64::try_from((u128::from(room) << FIXED_BITS) / self.interval_fixed.max(1)).unwrap_or(u64::MAX)
    }
}

/// When the bucket would be full. What is taken moves one word and what is put back the other, each in a single step, so that
/// neither ever sees half of the other.
pub struct FullAt {
    /// As if nothing had ever been put back.
    taken_ns: AtomicU64,
    /// All that was ever put back, as time.
    put_back_ns: AtomicU64,
}

impl Default for FullAt {
    fn default() -> FullAt {
        FullAt { taken_ns: AtomicU64::new(0), put_back_ns: AtomicU64::new(0) }
    }
}

/// Until when what was taken may be put back: by then the bucket may have been full, and what comes back on top of that
/// would be more than there was. Whatever is put back meanwhile fills it sooner, and counts as time that has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Returnable(u64);

impl FullAt {
    /// # Errors
    /// How long to wait until the cost can be met.
    pub fn take(&self, share: &Share, now_ns: u64, cost: u64) -> Result<Returnable, u64> {
        let mut seen = self.taken_ns.load(Ordering::Relaxed);
        loop {
            let put_back = self.put_back_ns.load(Ordering::Acquire);
            let next = share.decide(seen.saturating_sub(put_back), now_ns, cost)?.saturating_add(put_back);
            match self.taken_ns.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(Returnable(next)),
                Err(now) => seen = now,
            }
        }
    }

    /// What was taken from this share and not used.
    pub fn put_back(&self, share: &Share, until: Returnable, now_ns: u64, permits: u64) {
        let back = share.time_for(permits);
        let _ = self.put_back_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, |put_back| {
            // What has flowed in since has filled it already: without the take, it would have run over.
            let missing = until.0.saturating_sub(now_ns.saturating_add(put_back));
            (missing > 0).then(|| put_back.saturating_add(back.min(missing)))
        });
    }

    pub fn left(&self, share: &Share, now_ns: u64) -> u64 {
        share.left(self.at_ns(), now_ns)
    }

    pub fn is_full(&self, now_ns: u64) -> bool {
        self.at_ns() <= now_ns
    }

    fn at_ns(&self) -> u64 {
        self.taken_ns.load(Ordering::Relaxed).saturating_sub(self.put_back_ns.load(Ordering::Relaxed))
    }
}
