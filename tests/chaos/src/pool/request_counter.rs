//! Counts the requests in a client's bytes, in pieces of any size. Keep-alive messages do not count as requests; a
//! quiet connection sends more of them. It reads versions 4 and 5, uncompressed.

use super::protocol::{next_request, opcode};

#[derive(Default)]
pub struct RequestCounter {
    /// Bytes of an incomplete message.
    bytes: Vec<u8>,
    /// Bytes of an incomplete message from segments, which version 5 uses after the handshake.
    messages: Vec<u8>,
    in_segments: bool,
}

const VERSION_WITH_SEGMENTS: u8 = 5;
/// The header holds the length, a flag and their checksum; the trailer holds the payload's checksum.
const SEGMENT_HEADER_BYTES: usize = 6;
const SEGMENT_TRAILER_BYTES: usize = 4;
const SEGMENT_LENGTH_MAX: usize = (1 << 17) - 1;

impl RequestCounter {
    /// Returns how many requests these bytes complete.
    pub fn add_bytes(&mut self, bytes: &[u8]) -> u64 {
        self.bytes.extend_from_slice(bytes);
        let mut requests = 0;
        while !self.in_segments
            && let Some((version, opcode, end)) = first_message(&self.bytes)
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
            while let Some((_, opcode, end)) = first_message(&self.messages) {
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

/// Version, opcode and length of the first message, if it is complete.
fn first_message(bytes: &[u8]) -> Option<(u8, u8, usize)> {
    next_request(bytes).map(|(message, end)| (message.version, message.opcode, end))
}

/// The range of the first segment's payload, if the segment is complete.
fn segment(bytes: &[u8]) -> Option<std::ops::Range<usize>> {
    let [first, second, third, ..] = bytes.first_chunk::<SEGMENT_HEADER_BYTES>()?;
    let length = u32::from_le_bytes([*first, *second, *third, 0]) as usize & SEGMENT_LENGTH_MAX;
    let payload = SEGMENT_HEADER_BYTES..SEGMENT_HEADER_BYTES + length;
    (bytes.len() >= payload.end + SEGMENT_TRAILER_BYTES).then_some(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(version: u8, code: u8, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![version, 0, 0, 1, code];
        bytes.extend_from_slice(&u32::try_from(body.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(body);
        bytes
    }

    fn in_segment(payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap() | 1 << 17;
        [&length.to_le_bytes()[..3], &[0; 3], payload, &[0; 4]].concat()
    }

    /// PL-162 PL-179: the count does not depend on how the bytes arrive.
    #[test]
    fn requests_are_counted_and_keep_alive_messages_are_not() {
        let greeting =
            |version| [frame(version, opcode::OPTIONS, &[]), frame(version, opcode::STARTUP, &[7; 20])].concat();
        let (put, keep_alive) =
            (|version| frame(version, opcode::EXECUTE, &[9; 100]), |version| frame(version, opcode::OPTIONS, &[]));
        let four = [greeting(4), put(4), keep_alive(4), frame(4, opcode::QUERY, &[1; 30]), put(4)].concat();
        let (one, more) = ([put(5), keep_alive(5), put(5)].concat(), put(5));
        // The last message is spread over two segments.
        let five = [greeting(5), in_segment(&one), in_segment(&more[..50]), in_segment(&more[50..])].concat();
        for (bytes, step) in [(&four, 1), (&four, 7), (&four, 1000), (&five, 1), (&five, 13), (&five, 1000)] {
            let mut counter = RequestCounter::default();
            assert_eq!(
                bytes.chunks(step).map(|part| counter.add_bytes(part)).sum::<u64>(),
                3,
                "in pieces of {step} bytes"
            );
        }
    }
}
