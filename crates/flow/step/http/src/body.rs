//! Reads the body of an answer in pieces, within limits: 8 MiB both packed and unpacked, and unpacked at most twenty
//! times the packed size.

use std::io::{self, Write};

use flate2::write::MultiGzDecoder;
use honeyflow_runtime::Failure;
use reqwest::{
    Response,
    header::{self, HeaderValue},
};

use crate::codes;

pub const ANSWER_BYTES_MAX: usize = 8 * 1024 * 1024;
pub const RATIO_MAX: usize = 20;
/// Up to this size any ratio is accepted: repeated texts reach high ratios and are harmless.
const RATIO_FREE_BYTES: usize = 64 * 1024;

pub async fn read(response: &mut Response) -> Result<Vec<u8>, Failure> {
    let encoding = response.headers().get(header::CONTENT_ENCODING);
    let mut body = Body::for_encoding(encoding.map(HeaderValue::as_bytes))?;
    if response.content_length().is_some_and(|length| length > ANSWER_BYTES_MAX as u64) {
        return Err(too_large());
    }
    while let Some(chunk) = response.chunk().await.map_err(|error| crate::outcome::error_failure(&error))? {
        body.push(&chunk)?;
    }
    body.finish()
}

enum Body {
    Plain(Vec<u8>),
    Gzip { packed_bytes: usize, decoder: Box<MultiGzDecoder<UnpackedBody>> },
}

impl Body {
    fn for_encoding(encoding: Option<&[u8]>) -> Result<Body, Failure> {
        match encoding.map(<[u8]>::to_ascii_lowercase).as_deref() {
            None | Some(b"" | b"identity") => Ok(Body::Plain(Vec::new())),
            Some(b"gzip" | b"x-gzip") => {
                let decoder = Box::new(MultiGzDecoder::new(UnpackedBody::default()));
                Ok(Body::Gzip { packed_bytes: 0, decoder })
            }
            // also an answer that is packed twice: it was not requested
            Some(_) => Err(broken("it has a content encoding that was not requested")),
        }
    }

    fn push(&mut self, chunk: &[u8]) -> Result<(), Failure> {
        match self {
            Body::Plain(bytes) => {
                if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                    return Err(too_large());
                }
                bytes.extend_from_slice(chunk);
                Ok(())
            }
            Body::Gzip { packed_bytes, decoder } => {
                *packed_bytes += chunk.len();
                if *packed_bytes > ANSWER_BYTES_MAX {
                    return Err(too_large());
                }
                let unpacked = decoder.get_mut();
                unpacked.bytes_max = (*packed_bytes * RATIO_MAX).clamp(RATIO_FREE_BYTES, ANSWER_BYTES_MAX);
                let written = decoder.write_all(chunk);
                written.map_err(|_| decoder.get_ref().why())
            }
        }
    }

    fn finish(self) -> Result<Vec<u8>, Failure> {
        match self {
            Body::Plain(bytes) => Ok(bytes),
            // HEAD and 204 have the header, but no body
            Body::Gzip { packed_bytes: 0, .. } => Ok(Vec::new()),
            Body::Gzip { mut decoder, .. } => {
                decoder.try_finish().map_err(|_| decoder.get_ref().why())?;
                Ok(std::mem::take(&mut decoder.get_mut().bytes))
            }
        }
    }
}

#[derive(Default)]
struct UnpackedBody {
    bytes: Vec<u8>,
    bytes_max: usize,
    is_over: bool,
}

impl UnpackedBody {
    fn why(&self) -> Failure {
        match (self.is_over, self.bytes_max) {
            (true, ANSWER_BYTES_MAX) => too_large(),
            (true, _) => broken(&format!("it unpacks to more than {RATIO_MAX} times its size")),
            (false, _) => broken("it cannot be unpacked"),
        }
    }
}

impl Write for UnpackedBody {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.bytes.len() + bytes.len() > self.bytes_max {
            self.is_over = true;
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A failure after which it is unknown what the server did: the call is repeated under the same idempotency key.
pub fn broken(why: &str) -> Failure {
    Failure::retry(codes::BROKEN_ANSWER, format!("the answer is broken: {why}"))
}

fn too_large() -> Failure {
    Failure::reject(codes::OUTPUT_TOO_LARGE, format!("the answer has more than {ANSWER_BYTES_MAX} bytes"))
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn unpack(packed: &[u8], piece: usize) -> Result<Vec<u8>, Failure> {
        let mut body = Body::for_encoding(Some(b"gzip")).unwrap();
        packed.chunks(piece).try_for_each(|chunk| body.push(chunk))?;
        body.finish()
    }

    /// Returns bytes that hardly compress, so that the ratio does not matter.
    fn noise(bytes: usize) -> Vec<u8> {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        })
        .take(bytes)
        .collect()
    }

    #[test]
    fn f39_a_bomb_is_not_unpacked() {
        let bomb = packed(&vec![b' '; 64 * 1024 * 1024]);
        for piece in [1, 100, bomb.len()] {
            let mut body = Body::for_encoding(Some(b"gzip")).unwrap();
            let failure = bomb.chunks(piece).try_for_each(|chunk| body.push(chunk)).unwrap_err();
            assert_eq!(failure.code, "broken-answer");
            let Body::Gzip { decoder, .. } = &body else { panic!("packed") };
            assert!(decoder.get_ref().bytes.len() <= ANSWER_BYTES_MAX);
        }
    }

    #[test]
    fn f39_the_ratio_is_checked_while_the_answer_arrives() {
        assert_eq!(unpack(&packed(&vec![0; RATIO_FREE_BYTES]), 7).unwrap().len(), RATIO_FREE_BYTES);
        assert_eq!(unpack(&packed(&vec![0; RATIO_FREE_BYTES + 1]), 7).unwrap_err().code, "broken-answer");
        let mut text = noise(16 * 1024);
        text.extend(vec![0; 15 * 16 * 1024]);
        assert_eq!(unpack(&packed(&text), 100).unwrap(), text);
    }

    #[test]
    fn se_22_unpacked_answers_have_the_same_limit() {
        let most = noise(ANSWER_BYTES_MAX - 64 * 1024);
        assert_eq!(unpack(&packed(&most), 64 * 1024).unwrap().len(), most.len());
        let mut more = most;
        more.resize(ANSWER_BYTES_MAX + 1, 0);
        assert_eq!(unpack(&packed(&more), 64 * 1024).unwrap_err().code, "output-too-large");
    }

    #[test]
    fn f39_a_truncated_packed_answer_is_broken() {
        let whole = packed(b"{\"all\": \"of it\"}");
        for end in 1..whole.len() {
            assert_eq!(unpack(&whole[..end], 4).unwrap_err().code, "broken-answer", "cut at {end}");
        }
        assert_eq!(unpack(&whole, 4).unwrap(), b"{\"all\": \"of it\"}");
        assert_eq!(unpack(b"not packed at all", 4).unwrap_err().code, "broken-answer");
    }
}
