//! Messages to a server.

use super::compress::Compression;
use super::consistency::{Consistency, Serial};
use super::envelope::{HEADER_BYTES, Opcode, Outgoing, Version, flag};
use super::frame;
use super::notice::Topic;
use super::write::{Write, length, short_length};

pub use super::write::TooLong;

#[derive(Debug, Clone)]
pub enum Request<'a> {
    Options,
    Startup(&'a [(&'a str, &'a str)]),
    AuthResponse(&'a [u8]),
    Register(&'a [Topic]),
    Query {
        text: &'a str,
        how: Parameters<'a>,
    },
    Prepare {
        text: &'a str,
        keyspace: Option<&'a str>,
    },
    /// With version 5 the server compares `result_id` to detect changed columns.
    Execute {
        id: &'a [u8],
        result_id: Option<&'a [u8]>,
        how: Parameters<'a>,
    },
    Batch(Batch<'a>),
}

#[deprecated(since = "0.1.0", note = "renamed to BoundValues")]
pub type Bound = BoundValues;
#[deprecated(since = "0.1.0", note = "renamed to BatchEntry")]
pub type Prose<'a> = BatchEntry<'a>;

/// Values as they are sent, each with its length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BoundValues {
    pub count: u16,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
pub struct Parameters<'a> {
    pub consistency: Consistency,
    pub serial: Option<Serial>,
    pub values: Option<&'a BoundValues>,
    /// The columns are known already and need not come with the rows.
    pub skip_metadata: bool,
    pub page_size: Option<i32>,
    pub page: Option<&'a [u8]>,
    /// The timestamp in microseconds, sent unchanged.
    pub timestamp: Option<i64>,
    /// The keyspace of the request; only version 5 carries it.
    pub keyspace: Option<&'a str>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchKind {
    Logged = 0,
    Unlogged = 1,
    Counter = 2,
}

#[derive(Debug, Clone)]
pub struct Batch<'a> {
    pub kind: BatchKind,
    pub statements: &'a [(BatchEntry<'a>, &'a BoundValues)],
    pub consistency: Consistency,
    pub serial: Option<Serial>,
    pub timestamp: Option<i64>,
    pub keyspace: Option<&'a str>,
}

/// A statement of a batch: its text, or the id of its prepared form.
#[derive(Debug, Clone, Copy)]
pub enum BatchEntry<'a> {
    Text(&'a str),
    Prepared(&'a [u8]),
}

mod parameter {
    pub const VALUES: u32 = 0x01;
    pub const SKIP_METADATA: u32 = 0x02;
    pub const PAGE_SIZE: u32 = 0x04;
    pub const PAGE: u32 = 0x08;
    pub const SERIAL: u32 = 0x10;
    pub const TIMESTAMP: u32 = 0x20;
    pub const KEYSPACE: u32 = 0x80;
}

const CQL_VERSION: (&str, &str) = ("CQL_VERSION", "3.0.0");

impl Request<'_> {
    pub fn opcode(&self) -> Opcode {
        match self {
            Self::Options => Opcode::Options,
            Self::Startup(_) => Opcode::Startup,
            Self::AuthResponse(_) => Opcode::AuthResponse,
            Self::Register(_) => Opcode::Register,
            Self::Query { .. } => Opcode::Query,
            Self::Prepare { .. } => Opcode::Prepare,
            Self::Execute { .. } => Opcode::Execute,
            Self::Batch(_) => Opcode::Batch,
        }
    }

    /// The keyspace of the request; only version 5 carries it.
    pub fn keyspace(&self) -> Option<&str> {
        match self {
            Self::Query { how, .. } | Self::Execute { how, .. } => how.keyspace,
            Self::Prepare { keyspace, .. } => *keyspace,
            Self::Batch(batch) => batch.keyspace,
            Self::Options | Self::Startup(_) | Self::AuthResponse(_) | Self::Register(_) => None,
        }
    }

    /// Encodes the whole message, packed for version 4; only its stream is not set yet.
    pub fn encode(&self, version: Version, compression: Compression, tracing: bool) -> Result<Outgoing, TooLong> {
        let mut bytes = vec![0; HEADER_BYTES];
        self.body(version, &mut bytes)?;
        length("a message", bytes.len())?;
        let flags = if tracing { flag::TRACING } else { 0 };
        Ok(frame::pack(version, compression, self.opcode(), flags, bytes))
    }

    fn body(&self, version: Version, out: &mut Vec<u8>) -> Result<(), TooLong> {
        match self {
            Self::Options => {}
            Self::Startup(options) => {
                out.u16(short_length("the options of STARTUP", options.len() + 1)?);
                for (name, value) in [CQL_VERSION].iter().chain(*options) {
                    out.string("an option", name)?;
                    out.string("an option", value)?;
                }
            }
            Self::AuthResponse(token) => out.bytes("a login", token)?,
            Self::Register(topics) => {
                out.u16(short_length("topics", topics.len())?);
                for topic in *topics {
                    out.string("a topic", topic.name())?;
                }
            }
            Self::Query { text, how } => {
                out.long_string("a statement", text)?;
                how.write(version, out)?;
            }
            Self::Prepare { text, keyspace } => {
                out.long_string("a statement", text)?;
                if version >= Version::V5 {
                    out.i32(i32::from(keyspace.is_some()));
                    keyspace.map_or(Ok(()), |keyspace| out.string("a keyspace", keyspace))?;
                }
            }
            Self::Execute { id, result_id, how } => {
                out.short_bytes("the id of a statement", id)?;
                if version >= Version::V5 {
                    out.short_bytes("the id of columns", result_id.unwrap_or_default())?;
                }
                how.write(version, out)?;
            }
            Self::Batch(batch) => batch.write(version, out)?,
        }
        Ok(())
    }
}

impl Parameters<'_> {
    fn write(&self, version: Version, out: &mut Vec<u8>) -> Result<(), TooLong> {
        let keyspace = self.keyspace.filter(|_| version >= Version::V5);
        let values = self.values.filter(|values| values.count > 0);
        let flags = [
            (values.is_some(), parameter::VALUES),
            (self.skip_metadata, parameter::SKIP_METADATA),
            (self.page_size.is_some(), parameter::PAGE_SIZE),
            (self.page.is_some(), parameter::PAGE),
            (self.serial.is_some(), parameter::SERIAL),
            (self.timestamp.is_some(), parameter::TIMESTAMP),
            (keyspace.is_some(), parameter::KEYSPACE),
        ];
        out.u16(self.consistency.code());
        write_flags(version, &flags, out);
        if let Some(values) = values {
            out.u16(values.count);
            out.extend_from_slice(&values.bytes);
        }
        self.page_size.into_iter().for_each(|size| out.i32(size));
        self.page.map_or(Ok(()), |page| out.bytes("the place of a page", page))?;
        write_tail(self.serial, self.timestamp, keyspace, out)
    }
}

impl Batch<'_> {
    fn write(&self, version: Version, out: &mut Vec<u8>) -> Result<(), TooLong> {
        out.u8(self.kind as u8);
        out.u16(short_length("a batch", self.statements.len())?);
        for (prose, values) in self.statements {
            match prose {
                BatchEntry::Text(text) => {
                    out.u8(0);
                    out.long_string("a statement", text)?;
                }
                BatchEntry::Prepared(id) => {
                    out.u8(1);
                    out.short_bytes("the id of a statement", id)?;
                }
            }
            out.u16(values.count);
            out.extend_from_slice(&values.bytes);
        }
        let keyspace = self.keyspace.filter(|_| version >= Version::V5);
        let flags = [
            (self.serial.is_some(), parameter::SERIAL),
            (self.timestamp.is_some(), parameter::TIMESTAMP),
            (keyspace.is_some(), parameter::KEYSPACE),
        ];
        out.u16(self.consistency.code());
        write_flags(version, &flags, out);
        write_tail(self.serial, self.timestamp, keyspace, out)
    }
}

fn write_flags(version: Version, flags: &[(bool, u32)], out: &mut Vec<u8>) {
    let flags = flags.iter().filter(|(set, _)| *set).fold(0, |flags, (_, flag)| flags | flag).to_be_bytes();
    // The flags have four bytes in version 5 and one byte before; all flags used here fit into one.
    out.extend_from_slice(if version >= Version::V5 { &flags } else { &flags[3..] });
}

fn write_tail(
    serial: Option<Serial>,
    timestamp: Option<i64>,
    keyspace: Option<&str>,
    out: &mut Vec<u8>,
) -> Result<(), TooLong> {
    serial.into_iter().for_each(|serial| out.u16(serial.code()));
    timestamp.into_iter().for_each(|timestamp| out.i64(timestamp));
    keyspace.map_or(Ok(()), |keyspace| out.string("a keyspace", keyspace))
}
