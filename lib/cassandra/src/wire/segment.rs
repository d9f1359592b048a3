//! Segments, the frames of version 5: a header and up to 131,071 bytes of payload, each followed by a checksum.
//!
//! A self-contained segment holds whole messages; a message that does not fit takes several segments alone.

use bytes::{Buf, Bytes, BytesMut};

use super::Malformed;
use super::compress::{Compression, pack_block, unpack_block};
use super::crc::{crc24, crc32};

pub const PAYLOAD_BYTES_MAX: usize = (1 << 17) - 1;
const LENGTH_BITS: u32 = 17;
const CRC24_BYTES: usize = 3;
const CRC32_BYTES: usize = 4;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub self_contained: bool,
    pub payload: Bytes,
}

/// The fields of the header, and its size in bytes.
struct Header {
    bytes: usize,
    packed_bytes: usize,
    /// The unpacked length; zero = the payload is not packed.
    unpacked_bytes: usize,
    self_contained: bool,
}

impl Header {
    const fn bytes(compression: Compression) -> usize {
        match compression {
            Compression::None => 3,
            _ => 5,
        }
    }

    fn read(bytes: &[u8], compression: Compression) -> Result<Option<Self>, Malformed> {
        let size = Self::bytes(compression);
        let Some((fields, rest)) = bytes.split_at_checked(size) else { return Ok(None) };
        let Some(crc) = rest.first_chunk::<CRC24_BYTES>() else { return Ok(None) };
        if crc24(fields) != little_endian(crc) as u32 {
            return Err(Malformed::Checksum { part: "header" });
        }
        let fields = little_endian(fields);
        let length = |shift: u32| (fields >> shift) as usize & PAYLOAD_BYTES_MAX;
        let (unpacked_bytes, flag_at) =
            if compression == Compression::None { (0, LENGTH_BITS) } else { (length(LENGTH_BITS), 2 * LENGTH_BITS) };
        Ok(Some(Self {
            bytes: size + CRC24_BYTES,
            packed_bytes: length(0),
            unpacked_bytes,
            self_contained: fields >> flag_at & 1 == 1,
        }))
    }
}

fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Removes a segment from the front; `None` until all of it has arrived.
pub fn split(bytes: &mut BytesMut, compression: Compression) -> Result<Option<Segment>, Malformed> {
    let Some(header) = Header::read(bytes, compression)? else { return Ok(None) };
    if bytes.len() < header.bytes + header.packed_bytes + CRC32_BYTES {
        return Ok(None);
    }
    bytes.advance(header.bytes);
    let payload = bytes.split_to(header.packed_bytes).freeze();
    if bytes.get_u32_le() != crc32(&payload) {
        return Err(Malformed::Checksum { part: "payload" });
    }
    let payload = match header.unpacked_bytes {
        0 => payload,
        length => unpack_block(&payload, length, PAYLOAD_BYTES_MAX)?.into(),
    };
    Ok(Some(Segment { self_contained: header.self_contained, payload }))
}

/// Appends one segment. `payload` is at most [`PAYLOAD_BYTES_MAX`] long.
pub fn append(payload: &[u8], self_contained: bool, compression: Compression, out: &mut BytesMut) {
    debug_assert!(payload.len() <= PAYLOAD_BYTES_MAX);
    let packed = (compression != Compression::None).then(|| pack_block(payload));
    // A payload that does not shrink is sent unpacked.
    let packed = packed.filter(|packed| packed.len() < payload.len());
    let (body, unpacked_bytes) = packed.as_deref().map_or((payload, 0), |packed| (packed, payload.len()));
    let mut fields = body.len() as u64;
    let flag_at = if compression == Compression::None {
        LENGTH_BITS
    } else {
        fields |= (unpacked_bytes as u64) << LENGTH_BITS;
        2 * LENGTH_BITS
    };
    fields |= u64::from(self_contained) << flag_at;
    let fields = &fields.to_le_bytes()[..Header::bytes(compression)];
    out.extend_from_slice(fields);
    out.extend_from_slice(&crc24(fields).to_le_bytes()[..CRC24_BYTES]);
    out.extend_from_slice(body);
    out.extend_from_slice(&crc32(body).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: [Compression; 2] = [Compression::None, Compression::Lz4];

    fn segment(payload: &[u8], self_contained: bool, compression: Compression) -> BytesMut {
        let mut out = BytesMut::new();
        append(payload, self_contained, compression, &mut out);
        out
    }

    #[test]
    fn cq_2_segments_of_every_size_survive() {
        for compression in BOTH {
            for size in [0, 1, 9, 1000, PAYLOAD_BYTES_MAX] {
                for (n, self_contained) in [(0, true), (1, false), (97, true)] {
                    let payload: Vec<u8> = (0..size).map(|byte| (byte * n) as u8).collect();
                    let mut bytes = segment(&payload, self_contained, compression);
                    let found = split(&mut bytes, compression).unwrap().unwrap();
                    assert_eq!((found.self_contained, &found.payload[..]), (self_contained, &payload[..]));
                    assert!(bytes.is_empty());
                }
            }
        }
    }

    #[test]
    fn cq_4_any_flipped_bit_is_a_checksum_error_or_waits_for_more() {
        for compression in BOTH {
            let right = segment(b"some payload, some payload", true, compression);
            for bit in 0..right.len() * 8 {
                let mut wrong = right.clone();
                wrong[bit / 8] ^= 1 << (bit % 8);
                assert!(matches!(split(&mut wrong, compression), Err(Malformed::Checksum { .. })), "bit {bit}");
            }
        }
    }

    #[test]
    fn cq_7_a_cut_segment_waits() {
        for compression in BOTH {
            let whole = segment(b"some payload, some payload", false, compression);
            for length in 0..whole.len() {
                let mut cut = BytesMut::from(&whole[..length]);
                assert_eq!(split(&mut cut, compression), Ok(None));
                assert_eq!(cut.len(), length);
            }
        }
    }

    /// The byte order of the header fields, as the protocol's specification defines it.
    #[test]
    fn the_header_is_little_endian() {
        let bytes = segment(&[7; 5], true, Compression::None);
        assert_eq!(bytes[..3], [5, 0, 2]);
        let bytes = segment(&[7; 5], true, Compression::Lz4);
        assert_eq!(bytes[..5], [5, 0, 0, 0, 4]);
    }
}
