//! What the sink knows about a key in addition to the visible index: writes that are not visible yet, and deletes,
//! which the index does not remember. Pure: the caller passes the current time.
//!
//! Invariant: the stamp held for a key only grows, as long as its tombstone is remembered.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use hashbrown::HashMap;
use honeyflow_event::{Key, Stamp};

/// The state of a key: its stamp, and the hash of its document, or `None` if it was deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct KeyState {
    pub stamp: Stamp,
    pub hash: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Newer,
    /// The same write again: there is nothing to do.
    Repeated,
    Stale {
        stored: Stamp,
    },
}

/// Compares the offered write with what is held. An equal stamp with other content is stale, not a repetition: its
/// sender did not get a stamp of its own for it.
pub(crate) fn judge(held: Option<KeyState>, offered: KeyState) -> Verdict {
    match held {
        Some(held) if held == offered => Verdict::Repeated,
        Some(held) if held.stamp >= offered.stamp => Verdict::Stale { stored: held.stamp },
        _ => Verdict::Newer,
    }
}

/// The writes given to the index since the last commit.
#[derive(Default)]
pub(crate) struct Pending {
    held: HashMap<Key, KeyState>,
    /// The number of writes; a key that was written twice counts twice.
    writes: usize,
}

impl Pending {
    pub fn get(&self, key: &str) -> Option<KeyState> {
        self.held.get(key).copied()
    }

    pub fn insert(&mut self, key: Key, held: KeyState) {
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

    pub fn drain(&mut self) -> impl Iterator<Item = (Key, KeyState)> + '_ {
        self.writes = 0;
        self.held.drain()
    }
}

/// The stamps of committed deletes. The index does not remember them, but an older write that arrives late must not
/// bring the document back.
pub(crate) struct Tombstones {
    keep: Duration,
    count_max: usize,
    stamps: HashMap<Key, Stamp>,
    /// The deletes, oldest first. An entry is void if its stamp is no longer the key's stamp.
    order: VecDeque<(Instant, Key, Stamp)>,
}

impl Tombstones {
    pub fn new(keep: Duration, count_max: usize) -> Tombstones {
        Tombstones { keep, count_max, stamps: HashMap::new(), order: VecDeque::new() }
    }

    pub fn get(&self, key: &str) -> Option<KeyState> {
        self.stamps.get(key).map(|stamp| KeyState { stamp: *stamp, hash: None })
    }

    /// Records a committed write.
    pub fn record(&mut self, now: Instant, key: Key, held: KeyState) {
        if held.hash.is_some() {
            self.stamps.remove(&key);
        } else {
            self.stamps.insert(key.clone(), held.stamp);
            self.order.push_back((now, key, held.stamp));
        }
    }

    /// Forgets tombstones that are too old, and the oldest ones if there are too many.
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

    fn put(stamp: u64, hash: u64) -> KeyState {
        KeyState { stamp: Stamp(stamp), hash: Some(hash) }
    }

    fn delete(stamp: u64) -> KeyState {
        KeyState { stamp: Stamp(stamp), hash: None }
    }

    #[test]
    fn rl_9_stamps_decide_and_equal_ones_must_be_equal_in_content() {
        assert_eq!(judge(None, put(1, 1)), Verdict::Newer);
        assert_eq!(judge(Some(put(1, 1)), put(2, 1)), Verdict::Newer);
        assert_eq!(judge(Some(put(2, 1)), put(1, 1)), Verdict::Stale { stored: Stamp(2) });
        assert_eq!(judge(Some(put(2, 1)), put(2, 1)), Verdict::Repeated);
        assert_eq!(judge(Some(put(2, 1)), put(2, 7)), Verdict::Stale { stored: Stamp(2) });
        assert_eq!(judge(Some(delete(2)), put(2, 1)), Verdict::Stale { stored: Stamp(2) });
        assert_eq!(judge(Some(delete(2)), delete(2)), Verdict::Repeated);
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
