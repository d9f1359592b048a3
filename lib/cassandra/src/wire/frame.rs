//! Splits the bytes from a socket into messages, and joins messages into as few writes as possible.
//!
//! Version 4 sends messages one after the other. Version 5 does the same until the server has answered STARTUP, and
//! puts everything after that into segments.

use bytes::{Bytes, BytesMut};

use super::Malformed;
use super::compress::Compression;
use super::envelope::{Envelope, HEADER_BYTES, Header, Opcode, Outgoing, Version, flag};
use super::segment::{self, PAYLOAD_BYTES_MAX};

#[derive(Debug)]
pub struct Inbound {
    version: Version,
    compression: Compression,
    in_segments: bool,
    frame_bytes_max: usize,
    /// Bytes from the socket.
    pub raw: BytesMut,
    /// The unread rest of a self-contained segment: whole messages.
    opened: Bytes,
    /// The beginning of a message that takes several segments.
    spread: BytesMut,
}

impl Inbound {
    pub fn new(version: Version, frame_bytes_max: usize) -> Self {
        Self {
            version,
            compression: Compression::None,
            in_segments: false,
            frame_bytes_max,
            raw: BytesMut::new(),
            opened: Bytes::new(),
            spread: BytesMut::new(),
        }
    }

    pub fn set_compression(&mut self, compression: Compression) {
        self.compression = compression;
    }

    /// Reads segments from the next byte on.
    pub fn begin_segments(&mut self) {
        self.in_segments = true;
    }

    /// The version in the next header, if it has arrived: a server that refuses the requested version answers in its
    /// own.
    pub fn peek_version(&self) -> Option<u8> {
        if self.in_segments {
            return None;
        }
        Header::peek(&self.raw, usize::MAX).ok().flatten().map(|header| header.version)
    }

    /// Returns the next message; `None` until more bytes have come. After an error the following bytes cannot be
    /// trusted.
    pub fn message(&mut self) -> Result<Option<Envelope>, Malformed> {
        if !self.in_segments {
            let Some(header) = Header::peek(&self.raw, self.frame_bytes_max)? else { return Ok(None) };
            let Some(body) = header.split(&mut self.raw) else { return Ok(None) };
            return self.open(header, body).map(Some);
        }
        loop {
            if !self.opened.is_empty() {
                let left = self.opened.len();
                let header = Header::peek(&self.opened, self.frame_bytes_max)?;
                let header = header.ok_or(Malformed::Short {
                    what: "a header in a segment",
                    wanted: HEADER_BYTES as u64,
                    left,
                })?;
                let body = header.split_whole(&mut self.opened)?;
                return self.open(header, body).map(Some);
            }
            let Some(segment) = segment::split(&mut self.raw, self.compression)? else { return Ok(None) };
            if segment.self_contained {
                if !self.spread.is_empty() {
                    let found = "a self-contained segment".to_owned();
                    return Err(Malformed::Unexpected { what: "the rest of a spread message", found });
                }
                self.opened = segment.payload;
            } else if let Some(envelope) = self.gather(&segment.payload)? {
                return Ok(Some(envelope));
            }
        }
    }

    fn gather(&mut self, payload: &[u8]) -> Result<Option<Envelope>, Malformed> {
        self.spread.extend_from_slice(payload);
        let Some(header) = Header::peek(&self.spread, self.frame_bytes_max)? else { return Ok(None) };
        let Some(body) = header.split(&mut self.spread) else { return Ok(None) };
        match self.spread.len() {
            0 => self.open(header, body).map(Some),
            bytes => Err(Malformed::Surplus { what: "a spread message", bytes }),
        }
    }

    fn open(&self, header: Header, body: Bytes) -> Result<Envelope, Malformed> {
        if header.version != self.version.number() {
            return Err(Malformed::Value { what: "the version of an answer", value: header.version.into() });
        }
        let opcode = Opcode::of_code(header.opcode)?;
        // In segments the flag has no meaning: the payload of the segment is packed, not the body.
        let packed = header.flags & flag::PACKED != 0 && !self.in_segments;
        let body = if packed { self.compression.unpack(&body, self.frame_bytes_max)?.into() } else { body };
        Ok(Envelope { flags: header.flags, stream: header.stream, opcode, body })
    }
}

/// Collects messages until they are written.
#[derive(Debug)]
pub struct Outbound {
    compression: Compression,
    in_segments: bool,
    /// Whole messages for the next segment.
    gathered: Vec<u8>,
    /// Bytes that are ready for the socket.
    pub raw: BytesMut,
}

impl Outbound {
    pub fn plain() -> Self {
        Self { compression: Compression::None, in_segments: false, gathered: Vec::new(), raw: BytesMut::new() }
    }

    /// Writes segments from the next message on.
    pub fn begin_segments(&mut self, compression: Compression) {
        self.in_segments = true;
        self.compression = compression;
    }

    pub fn push(&mut self, message: &[u8]) {
        if !self.in_segments {
            self.raw.extend_from_slice(message);
            return;
        }
        if self.gathered.len() + message.len() > PAYLOAD_BYTES_MAX {
            self.seal();
        }
        if message.len() <= PAYLOAD_BYTES_MAX {
            self.gathered.extend_from_slice(message);
            return;
        }
        for part in message.chunks(PAYLOAD_BYTES_MAX) {
            segment::append(part, false, self.compression, &mut self.raw);
        }
    }

    /// Makes everything pushed so far ready for the socket.
    pub fn seal(&mut self) {
        if !self.gathered.is_empty() {
            segment::append(&self.gathered, true, self.compression, &mut self.raw);
            self.gathered.clear();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.raw.is_empty() && self.gathered.is_empty()
    }

    pub fn len(&self) -> usize {
        self.raw.len() + self.gathered.len()
    }
}

/// Packs a message for version 4, if that makes it shorter.
pub fn pack(version: Version, compression: Compression, opcode: Opcode, flags: u8, bytes: Vec<u8>) -> Outgoing {
    // STARTUP and OPTIONS are never packed: compression is negotiated only after them.
    let may_pack = version == Version::V4 && !matches!(opcode, Opcode::Startup | Opcode::Options);
    if compression == Compression::None || !may_pack {
        return Outgoing::new(version, flags, opcode, bytes);
    }
    let packed = compression.pack(&bytes[HEADER_BYTES..]);
    if packed.len() >= bytes.len() - HEADER_BYTES {
        return Outgoing::new(version, flags, opcode, bytes);
    }
    let mut whole = bytes;
    whole.truncate(HEADER_BYTES);
    whole.extend_from_slice(&packed);
    Outgoing::new(version, flags | flag::PACKED, opcode, whole)
}
