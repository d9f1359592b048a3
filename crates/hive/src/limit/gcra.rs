//! The generic cell rate algorithm (GCRA): the state is the time at which the bucket will be full again. A node uses it
//! for its share of a limit while the store does not answer. Times are rounded up, so that the share never admits too
//! much.

use super::atomic::{AtomicU64, Ordering};

/// This node's share of a rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    /// Nanoseconds per permit, times 2^16.
    interval_fixed: u128,
    pub burst: u64,
    /// The time at which the share began, empty.
    pub since_ns: u64,
}

const FIXED_BITS: u32 = 16;

impl Share {
    /// A share of `rate / divisor` with this burst, empty at `since_ns`.
    pub fn new(rate: super::rate::Rate, divisor: u64, burst: u64, since_ns: u64) -> Share {
        let numerator = (u128::from(rate.period_ms) * 1_000_000 * u128::from(divisor.max(1))) << FIXED_BITS;
        Share { interval_fixed: numerator.div_ceil(u128::from(rate.permits)), burst: burst.max(1), since_ns }
    }

    pub fn time_for(&self, permits: u64) -> u64 {
        let ns = (self.interval_fixed * u128::from(permits)).div_ceil(1 << FIXED_BITS);
        u64::try_from(ns).unwrap_or(u64::MAX / 4).min(u64::MAX / 4)
    }

    /// Returns the next full time if the cost can be met now, otherwise the nanoseconds to wait.
    pub fn decide(&self, full_at_ns: u64, now_ns: u64, cost: u64) -> Result<u64, u64> {
        let capacity = self.time_for(self.burst);
        let full_at = full_at_ns.max(self.since_ns.saturating_add(capacity)).max(now_ns);
        let next = full_at.saturating_add(self.time_for(cost));
        let latest = now_ns.saturating_add(capacity);
        if next <= latest { Ok(next) } else { Err(next - latest) }
    }

    /// The whole permits that could be taken now.
    pub fn left(&self, full_at_ns: u64, now_ns: u64) -> u64 {
        let capacity = self.time_for(self.burst);
        let full_at = full_at_ns.max(self.since_ns.saturating_add(capacity)).max(now_ns);
        let room = now_ns.saturating_add(capacity).saturating_sub(full_at);
        u64::try_from((u128::from(room) << FIXED_BITS) / self.interval_fixed.max(1)).unwrap_or(u64::MAX)
    }
}

/// The time at which the bucket will be full. A take changes one word and a refund the other, each in one atomic step,
/// so that neither ever sees half of the other.
pub struct FullAt {
    /// The full time, as if nothing had ever been put back.
    taken_ns: AtomicU64,
    /// The sum of all refunds, as time.
    put_back_ns: AtomicU64,
}

impl Default for FullAt {
    fn default() -> FullAt {
        FullAt { taken_ns: AtomicU64::new(0), put_back_ns: AtomicU64::new(0) }
    }
}

/// The latest time at which taken permits may be put back. By then the bucket may have been full, and a later refund
/// would add more than was taken. Other refunds fill the bucket sooner, so they count as time that has passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefundDeadline(u64);

impl FullAt {
    /// # Errors
    /// The nanoseconds until the cost can be met.
    pub fn take(&self, share: &Share, now_ns: u64, cost: u64) -> Result<RefundDeadline, u64> {
        let mut seen = self.taken_ns.load(Ordering::Relaxed);
        loop {
            let put_back = self.put_back_ns.load(Ordering::Acquire);
            let next = share.decide(seen.saturating_sub(put_back), now_ns, cost)?.saturating_add(put_back);
            match self.taken_ns.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(RefundDeadline(next)),
                Err(now) => seen = now,
            }
        }
    }

    /// Puts back permits that were taken from this share and not used.
    pub fn put_back(&self, share: &Share, until: RefundDeadline, now_ns: u64, permits: u64) {
        let back = share.time_for(permits);
        let _ = self.put_back_ns.fetch_update(Ordering::AcqRel, Ordering::Acquire, |put_back| {
            // Permits that flowed in since the take have filled a part already. Without the take they would have
            // overflowed.
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
