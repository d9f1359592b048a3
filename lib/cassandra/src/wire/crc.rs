//! Checksums of version 5: 24 bits over a segment's header, 32 bits over its payload, both with start values of the
//! protocol.

const CRC24_POLYNOMIAL: u32 = 0x0197_4f0b;
const CRC24_START: u32 = 0x0087_5060;
/// Hashed before the payload, so that the checksum of a payload of zeroes is not zero.
const CRC32_START: [u8; 4] = [0xfa, 0x2d, 0x55, 0xca];

pub fn crc24(bytes: &[u8]) -> u32 {
    let mut crc = CRC24_START;
    for byte in bytes {
        crc ^= u32::from(*byte) << 16;
        for _ in 0..8 {
            crc <<= 1;
            if crc & 0x0100_0000 != 0 {
                crc ^= CRC24_POLYNOMIAL;
            }
        }
    }
    crc
}

pub fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&CRC32_START);
    crc.update(bytes);
    crc.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cq_4_every_flipped_bit_of_a_header_is_found() {
        let header = [0x09_u8, 0x00, 0x02];
        let right = crc24(&header);
        assert!(right < 1 << 24);
        for bit in 0..24 {
            let mut wrong = header;
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(crc24(&wrong), right, "bit {bit}");
        }
    }

    #[test]
    fn nothing_and_zeroes_have_a_checksum() {
        assert_ne!(crc32(&[]), 0);
        assert_ne!(crc32(&[0; 4]), crc32(&[0; 5]));
    }
}
