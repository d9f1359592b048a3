//! Counts the requests in what a client says, whatever the sizes: signs of life are no requests, and on a quiet connection
//! there are more of them. Versions 4 and 5, nothing compressed.

use super::speak::{heard, opcode};

#[derive(Default)]
pub struct Tap {
    /// What has not come whole.
    bytes: Vec<u8>,
    /// The same out of segments, which version 5 has after the greeting.
    messages: Vec<u8>,
    in_segments: bool,
}

const VERSION_WITH_SEGMENTS: u8 = 5;
/// Length, flag and their checksum; and the payload's.
const SEGMENT_HEADER_BYTES: usize = 6;
const SEGMENT_TRAILER_BYTES: usize = 4;
const SEGMENT_LENGTH_MAX: usize = (1 << 17) - 1;

impl Tap {
    /// How many requests have come whole with these bytes.
    pub fn hear(&mut self, bytes: &[u8]) -> u64 {
        self.bytes.extend_from_slice(bytes);
        let mut requests = 0;
        while !self.in_segments
            && let Some((version, opcode, end)) = next(&self.bytes)
        {
            requests += u64::from(is_request(opcode));
            self.bytes.drain(..end);
            self.in_segments = opcode == opcode::STARTUP && version == VERSION_WITH_SEGMENTS;
        }
        if self.in_segments {
            while let Some(payload) = segment(&self.bytes) {
                self.messages.extend_from_slice(&self.bytes[payload.clone()]);
                self.bytes.drain(..payload.end + SEGMENT_TRAILER_BYTES);
            }
            while let Some((_, opcode, end)) = next(&self.messages) {
                requests += u64::from(is_request(opcode));
                self.messages.drain(..end);
            }
        }
        requests
    }
}

fn is_request(code: u8) -> bool {
    matches!(code, opcode::QUERY | opcode::EXECUTE)
}

/// Version, opcode and length of the first message, if that has come whole.
fn next(bytes: &[u8]) -> Option<(u8, u8, usize)> {
    heard(bytes).map(|(message, end)| (message.version, message.opcode, end))
}

/// Where the payload of the first segment is, if that has come whole.
fn segment(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let [first, second, third, ..] = bytes.first_chunk::<SEGMENT_HEADER_BYTES>()?;
    let length = u32::from_le_bytes([*first, *second, *third, 0]) as usize & SEGMENT_LENGTH_MAX;
    let payload = SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + length;
    (bytes.len() >= payload.end + SEGMENT_TRAILER_BYTES).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(version: u8, code: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![version, 0, 0, 1, code];
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn in_segment(payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap() | 1 << 17;
        [&length.to_le_bytes()[..3], &[0; 3], payload, &[0; 4]].concat()
    }

    /// PL-162 PL-179: however the bytes arrive.
    #[test]
    fn requests_are_counted_and_signs_of_life_are_not() {
        let greeting =
            |version| [said(version, opcode::OPTIONS, &[]), said(version, opcode::STARTUP, &[7; 20])].concat();
        let (put, life) =
            (|version| said(version, opcode::EXECUTE, &[9; 100]), |version| said(version, opcode::OPTIONS, &[]));
        let four = [greeting(4), put(4), life(4), said(4, opcode::QUERY, &[1; 30]), put(4)].concat();
        let (one, more) = ([put(5), life(5), put(5)].concat(), put(5));
        // The last message is spread over two segments.
        let five = [greeting(5), in_segment(&one), in_segment(&more[..50]), in_segment(&more[50..])].concat();
        for (bytes, step) in [(&four, 1), (&four, 7), (&four, 1000), (&five, 1), (&five, 13), (&five, 1000)] {
            let mut tap = Tap::default();
            assert_eq!(bytes.chunks(step).map(|part| tap.hear(part)).sum::<u64>(), 3, "in parts of {step}");
        }
    }
}
