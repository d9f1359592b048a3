//! Which shard an event belongs to. The database computes it for every row; this module computes it before the row
//! exists.
//!
//! Both sides must agree as long as a row exists, so the formula must never change: the first two bytes of
//! SHA-256 over tenant, entity and key, joined by U+001F, modulo the count.

use sha2::{Digest, Sha256};

/// The most shards of a source: a shard number fits into the two bytes of the hash that are used.
pub const COUNT_MAX: u16 = 1 << 15;

/// Returns the shard of a key. `count` is the source's number of shards, fixed when it was installed: a power of two,
/// at most [`COUNT_MAX`]. 0 counts as one shard.
///
/// ```
/// assert_eq!(honeyflow_event::shard::compute("", "book", "42", 64), 36);
/// ```
pub fn compute(tenant: &str, entity: &str, key: &str, count: u16) -> u16 {
    let mut hash = Sha256::new();
    for (n, part) in [tenant, entity, key].into_iter().enumerate() {
        if n > 0 {
            hash.update([0x1f]);
        }
        hash.update(part);
    }
    let hash = hash.finalize();
    u16::from_be_bytes([hash[0], hash[1]]) % count.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_3_shard_numbers_never_change() {
        for (tenant, entity, key, shard) in [
            ("", "book", "42", 36),
            ("", "book", "", 1),
            ("acme", "order", "a\\|b|c\\\\d", 46),
            ("ä", "bücher", "日本|🦀", 4),
            ("", "a", "b\u{1f}c", 9),
            ("", "a\u{1f}b", "c", 9),
        ] {
            assert_eq!(compute(tenant, entity, key, 64), shard, "{tenant:?} {entity:?} {key:?}");
        }
        assert_eq!(compute("", "book", "42", 1), 0);
        assert_eq!(compute("", "book", "42", 0), 0, "no count is one shard");
    }

    #[test]
    fn ob_3_keys_spread_evenly() {
        let mut counts = [0_u32; 64];
        for n in 0..100_000 {
            counts[usize::from(compute("", "book", &n.to_string(), 64))] += 1;
        }
        let mean = 100_000 / 64;
        assert!(counts.iter().all(|count| count.abs_diff(mean) <= mean / 10), "{counts:?}");
    }
}
