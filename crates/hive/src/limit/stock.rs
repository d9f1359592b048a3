//! What this node has in stock: all that a request touches. A batch is one atomic word, its count together with its time of death, so
//! that a permit is taken from a living batch or not at all; nothing is locked, nothing allocated.
//!
//! There are two words because a batch is drawn while the one before it is still in use, and each dies at its own time.
//! Requests use up the older one first. Taking and putting back may race with everything; [`Stock::install`] and
//! [`Stock::sweep`] are called by one at a time.
//!
//! This file is compiled a second time by the tests, with loom's atomics in the place of the real ones.

use super::atomic::{AtomicU32, AtomicU64, Ordering};

const COUNT_BITS: u32 = 24;
/// The most that one batch holds.
pub const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
/// Times of death are kept in units of 65 µs, rounded towards the earlier.
const GRAIN_BITS: u32 = 16;
/// For what never dies.
pub const NEVER: u64 = u64::MAX;

/// When a batch dies, as its word says it. A permit carries it, to find its batch again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Death(u64);

impl Death {
    pub fn at(ns: u64) -> Death {
        Death((ns >> GRAIN_BITS).min(u64::MAX >> COUNT_BITS))
    }

    fn is_past(self, now_ns: u64) -> bool {
        (now_ns >> GRAIN_BITS) >= self.0
    }
}

/// Permits and their common time of death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    pub count: u64,
    pub dies: Death,
}

impl Batch {
    pub const NONE: Batch = Batch { count: 0, dies: Death(0) };

    pub fn new(count: u64, dies_at_ns: u64) -> Batch {
        Batch { count: count.min(COUNT_MAX), dies: Death::at(dies_at_ns) }
    }

    /// What is left of it at this time.
    pub fn alive(self, now_ns: u64) -> Batch {
        if self.count == 0 || self.dies.is_past(now_ns) { Batch::NONE } else { self }
    }

    /// Together they live as long as the one that dies first.
    pub fn joined(self, other: Batch) -> Batch {
        match (self.count, other.count) {
            (0, _) => other,
            (_, 0) => self,
            _ => Batch { count: (self.count + other.count).min(COUNT_MAX), dies: self.dies.min(other.dies) },
        }
    }

    fn word(self) -> u64 {
        self.dies.0 << COUNT_BITS | self.count
    }

    fn of(word: u64) -> Batch {
        Batch { count: word & COUNT_MAX, dies: Death(word >> COUNT_BITS) }
    }
}

/// What a successful take says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    pub dies: Death,
    /// This take crossed the mark at which the next batch should be drawn.
    pub low: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late;

pub struct Stock {
    older: AtomicU64,
    newer: AtomicU64,
    low_mark: AtomicU32,
}

impl Default for Stock {
    fn default() -> Stock {
        Stock { older: AtomicU64::new(0), newer: AtomicU64::new(0), low_mark: AtomicU32::new(0) }
    }
}

impl Stock {
    /// Takes the whole cost from one batch, or nothing.
    #[inline]
    pub fn take(&self, now_ns: u64, cost: u64) -> Option<Taken> {
        // Read before the exchange: a load behind it would have to wait for it.
        let mark = u64::from(self.low_mark.load(Ordering::Relaxed));
        if let Some((left, dies)) = take_from(&self.older, now_ns, cost) {
            return Some(Taken { dies, low: crossed(mark, left, cost) && self.is_empty(&self.newer, now_ns) });
        }
        let (left, dies) = take_from(&self.newer, now_ns, cost)?;
        Some(Taken { dies, low: crossed(mark, left, cost) })
    }

    /// The same without the exact time, by one that is not past yet: what lives then lives now.
    ///
    /// # Errors
    /// Something may have died meanwhile, or will soon: only the exact time tells.
    #[inline]
    pub fn take_by(&self, soon_ns: u64, cost: u64) -> Result<Option<Taken>, Late> {
        let is_late = |word: &AtomicU64| {
            let batch = Batch::of(word.load(Ordering::Relaxed));
            batch.count >= cost && batch.dies.is_past(soon_ns)
        };
        if is_late(&self.older) {
            return Err(Late);
        }
        match self.take(soon_ns, cost) {
            None if is_late(&self.newer) => Err(Late),
            taken => Ok(taken),
        }
    }

    fn is_empty(&self, word: &AtomicU64, now_ns: u64) -> bool {
        Batch::of(word.load(Ordering::Relaxed)).alive(now_ns).count == 0
    }

    /// Puts unused permits back while their batch lives; otherwise they are spent.
    pub fn put_back(&self, now_ns: u64, dies: Death, permits: u64) -> bool {
        !dies.is_past(now_ns)
            && [&self.older, &self.newer].into_iter().any(|word| {
                word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, |word| {
                    let batch = Batch::of(word);
                    let count = batch.count.checked_add(permits).filter(|count| *count <= COUNT_MAX)?;
                    (batch.dies == dies).then(|| Batch { count, ..batch }.word())
                })
                .is_ok()
            })
    }

    /// What a request could take now.
    pub fn left(&self, now_ns: u64) -> u64 {
        [&self.older, &self.newer].map(|word| Batch::of(word.load(Ordering::Relaxed)).alive(now_ns).count).iter().sum()
    }

    /// The most that one request could take now: of one batch.
    pub fn largest(&self, now_ns: u64) -> u64 {
        let alive = |word: &AtomicU64| Batch::of(word.load(Ordering::Relaxed)).alive(now_ns).count;
        alive(&self.older).max(alive(&self.newer))
    }

    /// What was not taken, dead or alive: the difference of two looks is what was taken in between.
    pub fn count(&self) -> u64 {
        [&self.older, &self.newer].map(|word| Batch::of(word.load(Ordering::Relaxed)).count).iter().sum()
    }

    /// Adds a batch behind those in use. A third one shares the earlier death of the second.
    pub fn install(&self, now_ns: u64, batch: Batch, low_mark: u64) {
        self.low_mark.store(u32::try_from(low_mark).unwrap_or(u32::MAX), Ordering::Relaxed);
        let waiting = Batch::of(self.newer.swap(0, Ordering::AcqRel)).alive(now_ns);
        let in_use = Batch::of(self.older.load(Ordering::Acquire)).alive(now_ns);
        if in_use.count > 0 {
            self.newer.store(waiting.joined(batch).word(), Ordering::Release);
        } else if waiting.count > 0 {
            self.older.swap(waiting.word(), Ordering::AcqRel);
            self.newer.store(batch.word(), Ordering::Release);
        } else {
            self.older.swap(batch.word(), Ordering::AcqRel);
        }
    }

    /// Takes out everything that lives.
    pub fn sweep(&self, now_ns: u64) -> [Batch; 2] {
        [&self.older, &self.newer].map(|word| Batch::of(word.swap(0, Ordering::AcqRel)).alive(now_ns))
    }
}

fn crossed(mark: u64, left: u64, cost: u64) -> bool {
    left <= mark && left + cost > mark
}

#[inline]
fn take_from(word: &AtomicU64, now_ns: u64, cost: u64) -> Option<(u64, Death)> {
    let mut seen = word.load(Ordering::Relaxed);
    loop {
        let batch = Batch::of(seen);
        if batch.count < cost || batch.dies.is_past(now_ns) {
            return None;
        }
        // The death stands above the count, so subtracting the cost leaves it alone.
        match word.compare_exchange_weak(seen, seen - cost, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Some((batch.count - cost, batch.dies)),
            Err(now) => seen = now,
        }
    }
}
