//! LZ4 and Snappy. A claimed length is accepted only if the packed bytes can become that long, so a few bytes never
//! reserve much memory.

use super::Malformed;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    None,
    Lz4,
    /// Only with version 4.
    Snappy,
}

/// One byte of a match length stands for at most 255 bytes.
const LZ4_RATIO: usize = 255;
/// A copy of 64 bytes takes three bytes.
const SNAPPY_RATIO: usize = 22;
/// Added to the limit, since the ratio is too strict for short inputs.
const SLACK: usize = 64;

impl Compression {
    /// The name in STARTUP.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Lz4 => Some("lz4"),
            Self::Snappy => Some("snappy"),
        }
    }

    pub fn named(name: &str) -> Option<Self> {
        [Self::Lz4, Self::Snappy].into_iter().find(|one| one.name() == Some(name))
    }

    /// Packs a body for version 4. The length is put in front if the algorithm does not store it.
    pub fn pack(self, body: &[u8]) -> Vec<u8> {
        match self {
            Self::None => body.to_vec(),
            Self::Lz4 => {
                // The caller has checked that the length fits into an `i32`.
                let mut packed = u32::try_from(body.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
                packed.extend_from_slice(&pack_block(body));
                packed
            }
            Self::Snappy => snap::raw::Encoder::new().compress_vec(body).unwrap_or_default(),
        }
    }

    pub fn unpack(self, packed: &[u8], bytes_max: usize) -> Result<Vec<u8>, Malformed> {
        match self {
            Self::None => Err(Malformed::Packed { why: "no compression was negotiated".to_owned() }),
            Self::Lz4 => {
                let short = Malformed::Short { what: "a packed body", wanted: 4, left: packed.len() };
                let (length, block) = packed.split_first_chunk::<4>().ok_or(short)?;
                unpack_block(block, u32::from_be_bytes(*length) as usize, bytes_max)
            }
            Self::Snappy => {
                let why = |error: snap::Error| Malformed::Packed { why: error.to_string() };
                let length = snap::raw::decompress_len(packed).map_err(why)?;
                check(length, packed.len(), SNAPPY_RATIO, bytes_max)?;
                snap::raw::Decoder::new().decompress_vec(packed).map_err(why)
            }
        }
    }
}

/// Packs a bare LZ4 block; its length is stored elsewhere.
pub fn pack_block(bytes: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(bytes)
}

pub fn unpack_block(block: &[u8], length: usize, bytes_max: usize) -> Result<Vec<u8>, Malformed> {
    check(length, block.len(), LZ4_RATIO, bytes_max)?;
    // Some servers pack an empty body as no bytes at all.
    if length == 0 {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; length];
    let written = lz4_flex::block::decompress_into(block, &mut bytes)
        .map_err(|error| Malformed::Packed { why: error.to_string() })?;
    if written != length {
        return Err(Malformed::Packed { why: format!("{length} bytes were announced, but {written} were unpacked") });
    }
    Ok(bytes)
}

fn check(length: usize, packed: usize, ratio: usize, bytes_max: usize) -> Result<(), Malformed> {
    if length > bytes_max {
        return Err(Malformed::Large { what: "an unpacked body", bytes: length as u64, max: bytes_max });
    }
    if length > packed.saturating_mul(ratio).saturating_add(SLACK) {
        return Err(Malformed::Packed { why: format!("{packed} bytes cannot become {length}") });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 1 << 20;

    #[test]
    fn cq_4_bodies_survive_both_algorithms() {
        let zeroes = vec![0_u8; 300_000];
        let text: Vec<u8> = (0..70_000_u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        for compression in [Compression::Lz4, Compression::Snappy] {
            for body in [&b""[..], b"a", b"CQL", &zeroes, &text] {
                let packed = compression.pack(body);
                assert_eq!(compression.unpack(&packed, MAX).as_deref(), Ok(body), "{compression:?} {}", body.len());
            }
        }
    }

    #[test]
    fn cq_7_a_bomb_is_refused_by_its_claim() {
        let bomb = Compression::Lz4.pack(&vec![0; MAX + 1]);
        assert!(matches!(Compression::Lz4.unpack(&bomb, MAX), Err(Malformed::Large { .. })));
        let claim = [0x7f, 0xff, 0xff, 0xff, 0];
        assert!(matches!(Compression::Lz4.unpack(&claim, usize::MAX), Err(Malformed::Packed { .. })));
        // Snappy's length is a varint: one gigabyte in five bytes.
        let claim = [0x80, 0x80, 0x80, 0x80, 0x04, 0];
        assert!(matches!(Compression::Snappy.unpack(&claim, usize::MAX), Err(Malformed::Packed { .. })));
        assert!(matches!(
            Compression::Snappy.unpack(&Compression::Snappy.pack(&vec![0; MAX + 1]), MAX),
            Err(Malformed::Large { .. })
        ));
    }

    #[test]
    fn cq_7_wrong_lengths_and_garbage_do_not_unpack() {
        let mut packed = Compression::Lz4.pack(b"some body some body some body");
        packed[3] += 1;
        assert!(Compression::Lz4.unpack(&packed, MAX).is_err());
        assert!(Compression::Lz4.unpack(&[0, 0], MAX).is_err());
        assert!(Compression::Snappy.unpack(&[0xff; 9], MAX).is_err());
        assert!(Compression::None.unpack(b"body", MAX).is_err());
    }
}
