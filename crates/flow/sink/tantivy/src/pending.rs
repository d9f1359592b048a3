//! What the sink knows of a key beside the visible index: writes not yet visible, and deletes that the index has
//! forgotten. Pure; a moment arrives with every call.
//!
//! Invariant: a key's held stamp only grows, as long as its tombstone is remembered.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use honeyflow_event::{Key, Stamp};

/// What is held for a key: its stamp, and the hash of its document, or None where it was deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Held {
    pub stamp: Stamp,
    pub hash: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Newer,
    /// The same write once more: nothing is left to do.
    Again,
    Stale {
        stored: Stamp,
    },
}

/// An equal stamp with other content is no repetition: whoever sent it did not draw a stamp for it.
pub(crate) fn judge(held: Option<Held>, offered: Held) -> Verdict {
    match held {
        Some(held) if held == offered => Verdict::Again,
        Some(held) if held.stamp >= offered.stamp => Verdict::Stale { stored: held.stamp },
        _ => Verdict::Newer,
    }
}

/// Writes given to the index since the last commit.
#[derive(Default)]
pub(crate) struct Pending {
    held: HashMap<Key, Held>,
    /// Also counts a key written twice.
    writes: usize,
}

impl Pending {
    pub fn get(&self, key: &str) -> Option<Held> {
        self.held.get(key).copied()
    }

    pub fn insert(&mut self, key: Key, held: Held) {
        self.held.insert(key, held);
        self.writes += 1;
    }

    pub fn writes(&self) -> usize {
        self.writes
    }

    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub fn newest(&self) -> Option<Stamp> {
        self.held.values().map(|held| held.stamp).max()
    }

    pub fn clear(&mut self) {
        self.held.clear();
        self.writes = 0;
    }

    pub fn drain(&mut self) -> impl Iterator<Item = (Key, Held)> + '_ {
        self.writes = 0;
        self.held.drain()
    }
}

/// Stamps of committed deletes. The index forgets them; an older write that arrives late must not bring the
/// document back.
pub(crate) struct Tombstones {
    keep: Duration,
    count_max: usize,
    stamps: HashMap<Key, Stamp>,
    /// Oldest first; an entry whose stamp is no longer the key's is void.
    order: VecDeque<(Instant, Key, Stamp)>,
}

impl Tombstones {
    pub fn new(keep: Duration, count_max: usize) -> Tombstones {
        Tombstones { keep, count_max, stamps: HashMap::new(), order: VecDeque::new() }
    }

    pub fn get(&self, key: &str) -> Option<Held> {
        self.stamps.get(key).map(|stamp| Held { stamp: *stamp, hash: None })
    }

    /// A committed write.
    pub fn record(&mut self, now: Instant, key: Key, held: Held) {
        if held.hash.is_some() {
            self.stamps.remove(&key);
        } else {
            self.stamps.insert(key.clone(), held.stamp);
            self.order.push_back((now, key, held.stamp));
        }
    }

    /// Forgets what is too old or too many.
    pub fn expire(&mut self, now: Instant) {
        while let Some((at, key, stamp)) = self.order.front() {
            let is_void = self.stamps.get(key) != Some(stamp);
            if !is_void && self.order.len() <= self.count_max && now.duration_since(*at) < self.keep {
                break;
            }
            if !is_void {
                self.stamps.remove(key);
            }
            self.order.pop_front();
        }
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.stamps.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(stamp: u64, hash: u64) -> Held {
        Held { stamp: Stamp(stamp), hash: Some(hash) }
    }

    fn delete(stamp: u64) -> Held {
        Held { stamp: Stamp(stamp), hash: None }
    }

    #[test]
    fn rl_9_stamps_decide_and_equal_ones_must_be_equal_in_content() {
        assert_eq!(judge(None, put(1, 1)), Verdict::Newer);
        assert_eq!(judge(Some(put(1, 1)), put(2, 1)), Verdict::Newer);
        assert_eq!(judge(Some(put(2, 1)), put(1, 1)), Verdict::Stale { stored: Stamp(2) });
        assert_eq!(judge(Some(put(2, 1)), put(2, 1)), Verdict::Again);
        assert_eq!(judge(Some(put(2, 1)), put(2, 7)), Verdict::Stale { stored: Stamp(2) });
        assert_eq!(judge(Some(delete(2)), put(2, 1)), Verdict::Stale { stored: Stamp(2) });
        assert_eq!(judge(Some(delete(2)), delete(2)), Verdict::Again);
        assert_eq!(judge(Some(put(3, 1)), delete(2)), Verdict::Stale { stored: Stamp(3) });
    }

    #[test]
    fn tombstones_are_bounded_by_time_and_number() {
        let start = Instant::now();
        let mut tombstones = Tombstones::new(Duration::from_secs(60), 2);
        for n in 0..3_u64 {
            tombstones.record(start + Duration::from_secs(n), format!("k{n}").into(), delete(n));
        }
        tombstones.expire(start + Duration::from_secs(3));
        assert_eq!((tombstones.len(), tombstones.get("k0")), (2, None), "the oldest goes when there are too many");
        tombstones.expire(start + Duration::from_secs(61));
        assert_eq!((tombstones.get("k1"), tombstones.get("k2")), (None, Some(delete(2))), "each has its own time");
        tombstones.record(start, "k2".into(), put(9, 9));
        assert_eq!(tombstones.get("k2"), None, "a newer document ends it");
        tombstones.expire(start + Duration::from_secs(61));
        assert!(tombstones.order.is_empty());
    }
}
