//! The header of every message, nine bytes: version, flags, stream, opcode, length.

use bytes::{Buf, Bytes, BytesMut};

use super::Malformed;

pub const HEADER_BYTES: usize = 9;
/// The bit in the first byte of every message from a server.
const FROM_SERVER: u8 = 0x80;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V4 = 4,
    V5 = 5,
}

impl Version {
    pub fn number(self) -> u8 {
        self as u8
    }

    pub fn numbered(number: u8) -> Option<Self> {
        [Self::V4, Self::V5].into_iter().find(|version| version.number() == number)
    }

    /// The version to try after this one was refused.
    pub fn lower(self) -> Option<Self> {
        (self == Self::V5).then_some(Self::V4)
    }
}

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v{}", self.number())
    }
}

pub mod flag {
    pub const PACKED: u8 = 0x01;
    pub const TRACING: u8 = 0x02;
    pub const PAYLOAD: u8 = 0x04;
    pub const WARNING: u8 = 0x08;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Opcode {
    Error = 0x00,
    Startup = 0x01,
    Ready = 0x02,
    Authenticate = 0x03,
    Options = 0x05,
    Supported = 0x06,
    Query = 0x07,
    Result = 0x08,
    Prepare = 0x09,
    Execute = 0x0a,
    Register = 0x0b,
    Event = 0x0c,
    Batch = 0x0d,
    AuthChallenge = 0x0e,
    AuthResponse = 0x0f,
    AuthSuccess = 0x10,
}

impl Opcode {
    const ALL: [Self; 16] = [
        Self::Error,
        Self::Startup,
        Self::Ready,
        Self::Authenticate,
        Self::Options,
        Self::Supported,
        Self::Query,
        Self::Result,
        Self::Prepare,
        Self::Execute,
        Self::Register,
        Self::Event,
        Self::Batch,
        Self::AuthChallenge,
        Self::AuthResponse,
        Self::AuthSuccess,
    ];

    pub fn of_code(code: u8) -> Result<Self, Malformed> {
        let known = Self::ALL.into_iter().find(|opcode| *opcode as u8 == code);
        known.ok_or(Malformed::Value { what: "opcode", value: code.into() })
    }
}

/// One message of a server, with its body unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    pub flags: u8,
    /// The stream; a negative number marks a notice.
    pub stream: i16,
    pub opcode: Opcode,
    pub body: Bytes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The version, without the bit of the direction.
    pub version: u8,
    pub flags: u8,
    pub stream: i16,
    pub opcode: u8,
    pub body_bytes: usize,
}

impl Header {
    /// Reads the header; `None` until all of it has arrived. Checks the length, but not the version.
    pub fn peek(bytes: &[u8], body_bytes_max: usize) -> Result<Option<Self>, Malformed> {
        let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
        let [version, flags, s0, s1, opcode, length @ ..] = *header;
        if version & FROM_SERVER == 0 {
            return Err(Malformed::Value { what: "the direction of an answer", value: version.into() });
        }
        let length = i32::from_be_bytes(length);
        let body_bytes = usize::try_from(length);
        let body_bytes =
            body_bytes.map_err(|_| Malformed::Value { what: "the length of a body", value: length.into() })?;
        if body_bytes > body_bytes_max {
            return Err(Malformed::Large { what: "a body", bytes: body_bytes as u64, max: body_bytes_max });
        }
        let stream = i16::from_be_bytes([s0, s1]);
        Ok(Some(Self { version: version & !FROM_SERVER, flags, stream, opcode, body_bytes }))
    }

    /// Removes the message from the front and returns its body; `None` until all of it has arrived.
    pub fn split(self, bytes: &mut BytesMut) -> Option<Bytes> {
        if bytes.len() < HEADER_BYTES + self.body_bytes {
            return None;
        }
        bytes.advance(HEADER_BYTES);
        Some(bytes.split_to(self.body_bytes).freeze())
    }

    /// Removes the message from the front and returns its body, if no more bytes can arrive.
    pub fn split_whole(self, bytes: &mut Bytes) -> Result<Bytes, Malformed> {
        let left = bytes.len().saturating_sub(HEADER_BYTES);
        if left < self.body_bytes {
            return Err(Malformed::Short { what: "a message in a segment", wanted: self.body_bytes as u64, left });
        }
        bytes.advance(HEADER_BYTES);
        Ok(bytes.split_to(self.body_bytes))
    }
}

/// A message to a server. Its stream is set when one is free.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing {
    bytes: Vec<u8>,
}

impl Outgoing {
    /// Creates a message. The first [`HEADER_BYTES`] of `bytes` are filled in here; the body follows them.
    pub fn new(version: Version, flags: u8, opcode: Opcode, mut bytes: Vec<u8>) -> Self {
        debug_assert!(bytes.len() >= HEADER_BYTES);
        // `Request::encode` has checked the length.
        let length = i32::try_from(bytes.len() - HEADER_BYTES).unwrap_or(i32::MAX);
        bytes[0] = version.number();
        bytes[1] = flags;
        bytes[4] = opcode as u8;
        bytes[5..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
        Self { bytes }
    }

    pub fn on_stream(&mut self, stream: i16) -> &[u8] {
        self.bytes[2..4].copy_from_slice(&stream.to_be_bytes());
        &self.bytes
    }

    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_BYTES
    }
}
