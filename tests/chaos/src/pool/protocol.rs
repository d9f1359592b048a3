//! The server's side of the CQL protocol, version 4: as much of it as a table with one number per key needs. It is
//! written by hand, so that it shares with the library under test only the specification.

use std::net::Ipv4Addr;

pub mod opcode {
    pub const ERROR: u8 = 0x00;
    pub const STARTUP: u8 = 0x01;
    pub const READY: u8 = 0x02;
    pub const OPTIONS: u8 = 0x05;
    pub const SUPPORTED: u8 = 0x06;
    pub const QUERY: u8 = 0x07;
    pub const RESULT: u8 = 0x08;
    pub const PREPARE: u8 = 0x09;
    pub const EXECUTE: u8 = 0x0a;
    pub const REGISTER: u8 = 0x0b;
}

pub const VERSION: u8 = 4;
pub const HEADER_BYTES: usize = 9;

/// The column types that the scripted servers use.
#[derive(Clone, Copy)]
pub enum Kind {
    Bigint,
    Int,
    Text,
    Uuid,
    Inet,
    Texts,
    TextByText,
}

#[derive(Default, Clone)]
pub struct Body(pub Vec<u8>);

impl Body {
    pub fn raw(mut self, bytes: &[u8]) -> Body {
        self.0.extend_from_slice(bytes);
        self
    }

    pub fn u16(self, value: u16) -> Body {
        self.raw(&value.to_be_bytes())
    }

    pub fn i32(self, value: i32) -> Body {
        self.raw(&value.to_be_bytes())
    }

    pub fn count(self, count: usize) -> Body {
        self.i32(i32::try_from(count).unwrap_or(i32::MAX))
    }

    pub fn short_bytes(self, bytes: &[u8]) -> Body {
        self.u16(u16::try_from(bytes.len()).unwrap_or(u16::MAX)).raw(bytes)
    }

    pub fn string(self, text: &str) -> Body {
        self.short_bytes(text.as_bytes())
    }

    pub fn bytes(self, bytes: Option<&[u8]>) -> Body {
        match bytes {
            None => self.i32(-1),
            Some(bytes) => self.count(bytes.len()).raw(bytes),
        }
    }

    fn kind(self, kind: Kind) -> Body {
        match kind {
            Kind::Bigint => self.u16(0x02),
            Kind::Int => self.u16(0x09),
            Kind::Text => self.u16(0x0d),
            Kind::Uuid => self.u16(0x0c),
            Kind::Inet => self.u16(0x10),
            Kind::Texts => self.u16(0x22).u16(0x0d),
            Kind::TextByText => self.u16(0x21).u16(0x0d).u16(0x0d),
        }
    }

    fn columns(self, columns: &[(&str, Kind)]) -> Body {
        let body = self.string(KEYSPACE).string("t");
        columns.iter().fold(body, |body, (name, kind)| body.string(name).kind(*kind))
    }
}

pub const KEYSPACE: &str = "chaos";

/// A RESULT with these rows.
pub fn rows(columns: &[(&str, Kind)], rows: &[Vec<Option<Vec<u8>>>]) -> Vec<u8> {
    let body = Body::default().i32(2).i32(1).count(columns.len()).columns(columns).count(rows.len());
    rows.iter().flatten().fold(body, |body, cell| body.bytes(cell.as_deref())).0
}

/// A RESULT for a statement that was prepared; its first parameter is the key.
pub fn prepared(id: &[u8], parameters: &[(&str, Kind)], columns: &[(&str, Kind)]) -> Vec<u8> {
    let body = Body::default().i32(4).short_bytes(id);
    let body = body.i32(1).count(parameters.len()).i32(1).u16(0).columns(parameters);
    if columns.is_empty() { body.i32(4).i32(0).0 } else { body.i32(1).count(columns.len()).columns(columns).0 }
}

pub fn error(code: i32, message: &str) -> Body {
    Body::default().i32(code).string(message)
}

/// Appends a message.
pub fn message(out: &mut Vec<u8>, stream: [u8; 2], opcode: u8, body: &[u8]) {
    let length = u32::try_from(body.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&[0x80 | VERSION, 0, stream[0], stream[1], opcode]);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(body);
}

/// A collection of texts, one after the other (a map has key, value, key, value).
pub fn texts(count: usize, texts: &[&str]) -> Vec<u8> {
    texts.iter().fold(Body::default().count(count), |body, text| body.bytes(Some(text.as_bytes()))).0
}

pub fn inet(address: Ipv4Addr) -> Vec<u8> {
    address.octets().to_vec()
}

/// A completely received request.
pub struct Request<'b> {
    pub version: u8,
    pub stream: [u8; 2],
    pub opcode: u8,
    pub body: &'b [u8],
}

/// The first request in the bytes, and its length; None if it is incomplete.
pub fn next_request(bytes: &[u8]) -> Option<(Request<'_>, usize)> {
    let [version, _, high, low, opcode, length @ ..] = bytes.first_chunk::<HEADER_BYTES>()?;
    let end = HEADER_BYTES + u32::from_be_bytes(*length) as usize;
    let body = bytes.get(HEADER_BYTES..end)?;
    Some((Request { version: *version, stream: [*high, *low], opcode: *opcode, body }, end))
}

/// The text of a QUERY or PREPARE.
pub fn statement(body: &[u8]) -> Option<&str> {
    let (length, rest) = body.split_first_chunk::<4>()?;
    std::str::from_utf8(rest.get(..u32::from_be_bytes(*length) as usize)?).ok()
}

/// The id and the values of an EXECUTE.
pub fn execution(body: &[u8]) -> Option<(&[u8], Vec<&[u8]>)> {
    let (length, rest) = body.split_first_chunk::<2>()?;
    let (id, rest) = rest.split_at_checked(u16::from_be_bytes(*length).into())?;
    let (flags, mut rest) = rest.get(2..)?.split_first()?;
    let mut values = Vec::new();
    if flags & 1 != 0 {
        let (count, after) = rest.split_first_chunk::<2>()?;
        rest = after;
        for _ in 0..u16::from_be_bytes(*count) {
            let (length, after) = rest.split_first_chunk::<4>()?;
            let (value, after) = after.split_at_checked(u32::from_be_bytes(*length) as usize)?;
            values.push(value);
            rest = after;
        }
    }
    Some((id, values))
}
