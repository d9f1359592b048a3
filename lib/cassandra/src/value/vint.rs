//! Numbers of variable length, as in durations: the leading ones of the first byte count the bytes that follow.

use crate::wire::{Malformed, Reader};

pub fn write(number: i64, out: &mut Vec<u8>) {
    // Zigzag encoding: small numbers of both signs become small unsigned ones.
    write_unsigned((number << 1 ^ number >> 63).cast_unsigned(), out);
}

fn write_unsigned(number: u64, out: &mut Vec<u8>) {
    // Each byte holds seven bits, except that nine bytes hold all 64.
    let size = (639 - (number | 1).leading_zeros() as usize * 9) >> 6;
    let bytes = number.to_be_bytes();
    let extra = size - 1;
    if extra == 8 {
        out.push(0xff);
        out.extend_from_slice(&bytes);
        return;
    }
    let at = out.len();
    out.extend_from_slice(&bytes[8 - size..]);
    out[at] |= !(0xff_u8 >> extra);
}

pub fn read(from: &mut Reader<'_>) -> Result<i64, Malformed> {
    let first = from.u8("a number of variable length")?;
    let extra = first.leading_ones();
    let start = u64::from(first) & (0xff_u64 >> extra);
    let rest = from.take("a number of variable length", extra as usize)?;
    let number = rest.iter().fold(start, |number, byte| number << 8 | u64::from(*byte));
    Ok((number >> 1).cast_signed() ^ -(number & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_survives() {
        for shift in 0..64 {
            for number in [1_i64 << shift, (1_i64 << shift).wrapping_sub(1), -(1_i64 << (shift.min(62)))] {
                let mut bytes = Vec::new();
                write(number, &mut bytes);
                assert_eq!(read(&mut Reader::new(&bytes)), Ok(number));
                for cut in 0..bytes.len() {
                    assert!(read(&mut Reader::new(&bytes[..cut])).is_err());
                }
            }
        }
        for number in [0, i64::MIN, i64::MAX] {
            let mut bytes = Vec::new();
            write(number, &mut bytes);
            assert_eq!(read(&mut Reader::new(&bytes)), Ok(number));
        }
    }

    #[test]
    fn small_numbers_take_one_byte() {
        let mut bytes = Vec::new();
        [0, -1, 1, -64, 63].into_iter().for_each(|number| write(number, &mut bytes));
        assert_eq!(bytes, [0, 1, 2, 127, 126]);
        write(64, &mut bytes);
        assert_eq!(bytes[5..], [0x80, 0x80]);
    }
}
