//! All keys of one limit on this node: a hash map in shards, with at most `count_max` keys. Only keys without any state
//! are removed to make room. While there are none, new keys share one overflow entry.

use std::{
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
};

use super::{gcra::FullAt, handle::Token, key::Key, local_permits::LocalPermits};

/// The key of the overflow entry, which keys share for which there is no room. It has its own row in the store.
pub const OVERFLOW: u128 = u128::MAX;

const SHARDS: usize = 128;

/// The key of the limit as a whole, for limits without keys.
pub const WHOLE: u128 = 0;

/// The store keeps the slots of a key in another row than the bucket of a rate with the same name and key, because a
/// limit may change its kind: the slots' row counts slots held now, the bucket counts permits ever issued.
const SLOTS: u32 = u32::from_be_bytes(*b"slot");

/// The key under which the store keeps the slots of `key`.
pub fn slots_key(key: u128) -> u128 {
    u128::from(SLOTS) << 96 | key >> 32
}

/// Whether the store keeps slots under this key.
pub fn is_slots_key(key: u128) -> bool {
    key >> 96 == u128::from(SLOTS)
}

pub fn hash(key: &str) -> u128 {
    if key.is_empty() { WHOLE } else { xxhash_rust::xxh3::xxh3_128(key.as_bytes()) }
}

/// The state of one key on this node.
#[derive(Default)]
pub struct Entry {
    pub local: LocalPermits,
    pub full_at: FullAt,
    slow: Mutex<Option<Box<Key<Token>>>>,
    /// The drawing task has been asked already to look at this key.
    pub attention_requested: AtomicBool,
}

impl Entry {
    /// The slow path of the key. After a panic under the lock it is still used: its bounds hold in every state.
    pub fn slow(&self) -> MutexGuard<'_, Option<Box<Key<Token>>>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_idle(&self, now_ns: u64) -> bool {
        let slow = self.slow();
        slow.as_ref().is_none_or(|key| key.is_idle(now_ns, &self.local))
            && self.full_at.is_full(now_ns)
            && self.local.available(now_ns) == 0
    }
}

/// A hasher that uses the key as it is, because it is a good hash already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            self.0 ^= chunk.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        }
    }

    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

type Shard = hashbrown::HashMap<u128, Entry, BuildHasherDefault<IdentityHasher>>;

/// One shard, aligned so that neighbouring locks do not share a cache line.
#[repr(align(128))]
#[derive(Default)]
struct PaddedShard(RwLock<Shard>);

pub struct Keys {
    whole: Entry,
    overflow: Entry,
    shards: Box<[PaddedShard]>,
    count: AtomicUsize,
    count_max: usize,
    hand: AtomicUsize,
    /// The time before which a search for room is not repeated.
    full_until_ns: AtomicU64,
    overflowed: AtomicU64,
}

/// A search that found no room is not repeated for this time.
const SEARCH_AGAIN_NS: u64 = 100_000_000;

impl Keys {
    pub fn new(count_max: usize) -> Keys {
        Keys {
            whole: Entry::default(),
            overflow: Entry::default(),
            shards: (0..SHARDS).map(|_| PaddedShard::default()).collect(),
            count: AtomicUsize::new(0),
            count_max: count_max.max(1),
            hand: AtomicUsize::new(0),
            full_until_ns: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
        }
    }

    fn shard(&self, key: u128) -> &RwLock<Shard> {
        &self.shards[(key >> 64) as usize % SHARDS].0
    }

    /// Returns the entry of the limit as a whole, which needs no lookup.
    #[inline]
    pub fn whole(&self, key: u128) -> Option<&Entry> {
        (key == WHOLE).then_some(&self.whole)
    }

    /// Calls `look` with the entry of the key, if there is one.
    #[inline]
    pub fn find<T>(&self, key: u128, look: impl FnOnce(&Entry) -> T) -> Option<T> {
        match key {
            WHOLE => Some(look(&self.whole)),
            OVERFLOW => Some(look(&self.overflow)),
            key => self.shard(key).read().unwrap_or_else(PoisonError::into_inner).get(&key).map(look),
        }
    }

    /// Returns the key under which this key is counted from now on: its own, or the overflow key if there is no room.
    pub fn place_key(&self, key: u128, now_ns: u64) -> u128 {
        if self.find(key, |_| ()).is_some() {
            return key;
        }
        if self.count.load(Ordering::Relaxed) >= self.count_max && !self.make_room(key, now_ns) {
            self.overflowed.fetch_add(1, Ordering::Relaxed);
            return OVERFLOW;
        }
        let mut shard = self.shard(key).write().unwrap_or_else(PoisonError::into_inner);
        if !shard.contains_key(&key) {
            shard.insert(key, Entry::default());
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        key
    }

    fn make_room(&self, key: u128, now_ns: u64) -> bool {
        if now_ns < self.full_until_ns.load(Ordering::Relaxed) {
            return false;
        }
        let first = (key >> 64) as usize;
        let hand = self.hand.fetch_add(1, Ordering::Relaxed);
        // The key's own shard first, then every shard once. The search is long, so it is not repeated soon.
        for at in std::iter::once(first).chain((0..SHARDS).map(|step| hand + step)) {
            let mut shard = self.shards[at % SHARDS].0.write().unwrap_or_else(PoisonError::into_inner);
            let before = shard.len();
            shard.retain(|_, entry| !entry.is_idle(now_ns));
            let gone = before - shard.len();
            if gone > 0 {
                self.count.fetch_sub(gone, Ordering::Relaxed);
                return true;
            }
        }
        self.full_until_ns.store(now_ns.saturating_add(SEARCH_AGAIN_NS), Ordering::Relaxed);
        false
    }

    pub fn for_each(&self, mut look: impl FnMut(u128, &Entry)) {
        look(WHOLE, &self.whole);
        look(OVERFLOW, &self.overflow);
        for shard in &self.shards {
            for (key, entry) in shard.0.read().unwrap_or_else(PoisonError::into_inner).iter() {
                look(*key, entry);
            }
        }
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// How often a key found no room.
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limit::local_permits::Batch;

    /// HV-72
    #[test]
    fn hv_72_only_idle_keys_make_room_and_the_rest_share_one_entry() {
        let keys = Keys::new(2);
        let [a, b, c] = ["a", "b", "c"].map(hash);
        assert_eq!((keys.place_key(a, 10), keys.place_key(b, 10)), (a, b));
        keys.find(a, |entry| entry.local.install(10, Batch::new(5, 1 << 40), 2));
        keys.find(b, |entry| entry.local.install(10, Batch::new(5, 1 << 40), 2));
        assert_eq!(keys.place_key(c, 10), OVERFLOW, "neither key is idle");
        assert_eq!((keys.count(), keys.overflowed()), (2, 1));
        keys.find(b, |entry| entry.local.take_all(10));
        assert_eq!(keys.place_key(c, 11), OVERFLOW, "a search is not repeated at once");
        assert_eq!(keys.place_key(c, 10 + SEARCH_AGAIN_NS), c);
        assert!(keys.find(b, |_| ()).is_none() && keys.find(a, |_| ()).is_some());
    }

    #[test]
    fn the_ledger_knows_keys_by_their_hash() {
        assert_eq!(format!("{:032x}", hash("client-1")), format!("{:032x}", xxhash_rust::xxh3::xxh3_128(b"client-1")));
        assert_eq!(hash(""), WHOLE);
    }
}
