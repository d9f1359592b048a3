//! The permits that this node holds locally: the fast path of a request touches nothing else. A batch is one atomic
//! word that contains its count and its expiry, so that a permit is taken from a batch that is still valid, or not at
//! all. Nothing is locked or allocated.
//!
//! There are two words, because the next batch is drawn while the one before it is still in use, and each expires at
//! its own time. Requests use up the older one first. Takes and refunds may race with everything;
//! [`LocalPermits::install`] and [`LocalPermits::take_all`] are called by one thread at a time.
//!
//! The tests compile this file a second time, with loom's atomics instead of the real ones.

use super::atomic::{AtomicU32, AtomicU64, Ordering};

const COUNT_BITS: u32 = 24;
/// The largest number of permits in one batch.
pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// Expiries are kept in units of 2^16 ns (65 µs), rounded down.
const GRAIN_BITS: u32 = 16;
/// The expiry of permits that never expire.
pub const NEVER: u64 = u64::MAX;

/// The time at which a batch expires, as its word contains it. A permit carries it, so that a refund finds its batch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Expiry(u64);

impl Expiry {
    pub fn at(ns: u64) -> Expiry {
        Expiry((ns >> GRAIN_BITS).min(u64::MAX >> COUNT_BITS))
    }

    fn is_past(self, now_ns: u64) -> bool {
        (now_ns >> GRAIN_BITS) >= self.0
    }
}

/// A number of permits that expire at the same time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    pub count: u64,
    pub expires: Expiry,
}

impl Batch {
    pub const NONE: Batch = Batch { count: 0, expires: Expiry(0) };

    pub fn new(count: u64, expires_at_ns: u64) -> Batch {
        Batch { count: count.min(COUNT_MAX), expires: Expiry::at(expires_at_ns) }
    }

    /// Returns the batch, or an empty one if it has expired by then.
    pub fn unless_expired(self, now_ns: u64) -> Batch {
        if self.count == 0 || self.expires.is_past(now_ns) { Batch::NONE } else { self }
    }

    /// Merges two batches; the result expires with the one that expires first.
    pub fn merge(self, other: Batch) -> Batch {
        match (self.count, other.count) {
            (0, _) => other,
            (_, 0) => self,
            _ => Batch { count: (self.count + other.count).min(COUNT_MAX), expires: self.expires.min(other.expires) },
        }
    }

    fn to_word(self) -> u64 {
        self.expires.0 << COUNT_BITS | self.count
    }

    fn from_word(word: u64) -> Batch {
        Batch { count: word & COUNT_MAX, expires: Expiry(word >> COUNT_BITS) }
    }
}

/// The result of a successful take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalTake {
    pub expires: Expiry,
    /// This take crossed the low mark: it is time to draw the next batch.
    pub low: bool,
}

/// A batch has expired or will soon, so that only the exact time tells whether it may be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExactTimeNeeded;

pub struct LocalPermits {
    older: AtomicU64,
    newer: AtomicU64,
    low_mark: AtomicU32,
}

impl Default for LocalPermits {
    fn default() -> LocalPermits {
        LocalPermits { older: AtomicU64::new(0), newer: AtomicU64::new(0), low_mark: AtomicU32::new(0) }
    }
}

impl LocalPermits {
    /// Takes the whole cost from one batch, or nothing.
    #[inline]
    pub fn take(&self, now_ns: u64, cost: u64) -> Option<LocalTake> {
        // The mark is read before the exchange: a load after it would have to wait for it.
        let mark = u64::from(self.low_mark.load(Ordering::Relaxed));
        if let Some((left, expires)) = take_from(&self.older, now_ns, cost) {
            return Some(LocalTake {
                expires,
                low: crosses_mark(mark, left, cost) && self.is_empty(&self.newer, now_ns),
            });
        }
        let (left, expires) = take_from(&self.newer, now_ns, cost)?;
        Some(LocalTake { expires, low: crosses_mark(mark, left, cost) })
    }

    /// Takes as [`LocalPermits::take`] does, with a time that is not past yet: a batch that is valid then is valid now.
    ///
    /// # Errors
    /// A batch may have expired by then: the caller has to use the exact time.
    #[inline]
    pub fn take_at_coarse_time(&self, soon_ns: u64, cost: u64) -> Result<Option<LocalTake>, ExactTimeNeeded> {
        let is_late = |word: &AtomicU64| {
            let batch = Batch::from_word(word.load(Ordering::Relaxed));
            batch.count >= cost && batch.expires.is_past(soon_ns)
        };
        if is_late(&self.older) {
            return Err(ExactTimeNeeded);
        }
        match self.take(soon_ns, cost) {
            None if is_late(&self.newer) => Err(ExactTimeNeeded),
            taken => Ok(taken),
        }
    }

    fn is_empty(&self, word: &AtomicU64, now_ns: u64) -> bool {
        Batch::from_word(word.load(Ordering::Relaxed)).unless_expired(now_ns).count == 0
    }

    /// Puts unused permits back into their batch. Returns false if it has expired or is not here any more.
    pub fn put_back(&self, now_ns: u64, expires: Expiry, permits: u64) -> bool {
        !expires.is_past(now_ns)
            && [&self.older, &self.newer].into_iter().any(|word| {
                word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                    let batch = Batch::from_word(word);
                    let count = batch.count.checked_add(permits).filter(|count| *count <= COUNT_MAX)?;
                    (batch.expires == expires).then(|| Batch { count, ..batch }.to_word())
                })
                .is_ok()
            })
    }

    /// The permits that have not expired.
    pub fn available(&self, now_ns: u64) -> u64 {
        [&self.older, &self.newer]
            .map(|word| Batch::from_word(word.load(Ordering::Relaxed)).unless_expired(now_ns).count)
            .iter()
            .sum()
    }

    /// The most that one request could take now, which is all of one batch.
    pub fn largest(&self, now_ns: u64) -> u64 {
        let available = |word: &AtomicU64| Batch::from_word(word.load(Ordering::Relaxed)).unless_expired(now_ns).count;
        available(&self.older).max(available(&self.newer))
    }

    /// The permits that were not taken, expired or not: the difference of two calls is the number taken in between.
    pub fn count(&self) -> u64 {
        [&self.older, &self.newer].map(|word| Batch::from_word(word.load(Ordering::Relaxed)).count).iter().sum()
    }

    /// Adds a batch behind those in use. A third one is merged into the second and gets its earlier expiry.
    pub fn install(&self, now_ns: u64, batch: Batch, low_mark: u64) {
        self.low_mark.store(u32::try_from(low_mark).unwrap_or(u32::MAX), Ordering::Relaxed);
        let waiting = Batch::from_word(self.newer.swap(0, Ordering::AcqRel)).unless_expired(now_ns);
        let in_use = Batch::from_word(self.older.load(Ordering::Acquire)).unless_expired(now_ns);
        if in_use.count > 0 {
            self.newer.store(waiting.merge(batch).to_word(), Ordering::Release);
        } else if waiting.count > 0 {
            self.older.swap(waiting.to_word(), Ordering::AcqRel);
            self.newer.store(batch.to_word(), Ordering::Release);
        } else {
            self.older.swap(batch.to_word(), Ordering::AcqRel);
        }
    }

    /// Takes out all batches that have not expired.
    pub fn take_all(&self, now_ns: u64) -> [Batch; 2] {
        [&self.older, &self.newer].map(|word| Batch::from_word(word.swap(0, Ordering::AcqRel)).unless_expired(now_ns))
    }
}

fn crosses_mark(mark: u64, left: u64, cost: u64) -> bool {
    left <= mark && left + cost > mark
}

#[inline]
fn take_from(word: &AtomicU64, now_ns: u64, cost: u64) -> Option<(u64, Expiry)> {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let batch = Batch::from_word(seen);
        if batch.count < cost || batch.expires.is_past(now_ns) {
            return None;
        }
        // The expiry is in the bits above the count, so subtracting the cost does not change it.
        match word.compare_exchange_weak(seen, seen - cost, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Some((batch.count - cost, batch.expires)),
            Err(now) => seen = now,
        }
    }
}
