//! The Murmur3 token of a partition key, as Cassandra computes it. It decides which servers hold the partition.
//!
//! The server's hash reads the last bytes of the key as signed numbers. That is an old mistake, and part of the hash
//! for ever.

/// A position on the ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i64);

const C1: i64 = 0x87c3_7b91_1142_53d5_u64.cast_signed();
const C2: i64 = 0x4cf5_ad43_2745_937f;

impl Token {
    /// Parses a token; `None` if the text is not a token of this partitioner.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// Computes the token of a bound key; [`composite_key`] joins several columns.
    pub fn of_key(key: &[u8]) -> Self {
        let (mut h1, mut h2) = (0_i64, 0_i64);
        let (blocks, tail) = key.as_chunks::<16>();
        for block in blocks {
            let (k1, k2) = block.split_at(8);
            h1 ^= mix_k1(little_endian(k1));
            h1 = h1.rotate_left(27).wrapping_add(h2).wrapping_mul(5).wrapping_add(0x52dc_e729);
            h2 ^= mix_k2(little_endian(k2));
            h2 = h2.rotate_left(31).wrapping_add(h1).wrapping_mul(5).wrapping_add(0x3849_5ab5);
        }
        // Each byte is signed by itself, so that a negative one fills all the bits above it.
        let signed = |bytes: &[u8]| {
            bytes.iter().enumerate().fold(0, |k, (at, byte)| k ^ i64::from(byte.cast_signed()) << (8 * at))
        };
        let (low, high) = tail.split_at(tail.len().min(8));
        if !high.is_empty() {
            h2 ^= mix_k2(signed(high));
        }
        if !low.is_empty() {
            h1 ^= mix_k1(signed(low));
        }
        let length = key.len() as u64;
        h1 ^= length.cast_signed();
        h2 ^= length.cast_signed();
        h1 = h1.wrapping_add(h2);
        h2 = h2.wrapping_add(h1);
        h1 = final_mix(h1);
        h2 = final_mix(h2);
        let token = h1.wrapping_add(h2);
        // The smallest number means "no token" at the server.
        Self(if token == i64::MIN { i64::MAX } else { token })
    }
}

fn little_endian(bytes: &[u8]) -> i64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | i64::from(*byte))
}

fn mix_k1(k1: i64) -> i64 {
    k1.wrapping_mul(C1).rotate_left(31).wrapping_mul(C2)
}

fn mix_k2(k2: i64) -> i64 {
    k2.wrapping_mul(C2).rotate_left(33).wrapping_mul(C1)
}

fn final_mix(h: i64) -> i64 {
    let mut h = h.cast_unsigned();
    h = (h ^ h >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h = (h ^ h >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    (h ^ h >> 33).cast_signed()
}

/// Joins the columns of a key: one column is its own bytes; of several, each has a length before and a zero after it.
/// `None` if a part is too long.
pub fn composite_key(parts: &[&[u8]]) -> Option<Vec<u8>> {
    if let [only] = parts {
        return Some(only.to_vec());
    }
    let mut key = Vec::with_capacity(parts.iter().map(|part| part.len() + 3).sum());
    for part in parts {
        key.extend_from_slice(&u16::try_from(part.len()).ok()?.to_be_bytes());
        key.extend_from_slice(part);
        key.push(0);
    }
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values come from `SELECT token(…)`.
    #[test]
    fn cq_11_tokens_are_those_of_the_server() {
        assert_eq!(Token::of_key(b""), Token(0));
        assert_eq!(Token::of_key(b"test"), Token(-6_017_608_668_500_074_083));
        assert_eq!(Token::of_key(b"xd"), Token(4_507_812_186_440_344_727));
        assert_eq!(Token::of_key(b"primary_key"), Token(-1_632_642_444_691_073_360));
        assert_eq!(Token::of_key("kremówki".as_bytes()), Token(4_354_931_215_268_080_151));
    }

    #[test]
    fn several_columns_are_joined_with_their_lengths() {
        assert_eq!(composite_key(&[b"abc"]).as_deref(), Some(&b"abc"[..]));
        assert_eq!(composite_key(&[b"a", b""]).as_deref(), Some(&b"\0\x01a\0\0\0\0"[..]));
        assert_eq!(composite_key(&[&[0; 65_536], b"b"]), None);
    }
}
