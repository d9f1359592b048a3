//! Messages from a server.

use std::collections::BTreeMap;

use bytes::Bytes;
use uuid::Uuid;

use super::envelope::{Envelope, Opcode, Version, flag};
use super::metadata::{Layout, Metadata, PreparedStatement};
use super::notice::{Notice, SchemaChange};
use super::refusal::Refusal;
use super::{Malformed, Reader};
use crate::rows::Rows;

/// An answer and what came with it.
#[derive(Debug, Clone)]
pub struct Response {
    pub answer: Answer,
    /// The id of the trace, if tracing was requested.
    pub tracing: Option<Uuid>,
    pub warnings: Vec<String>,
    /// The version of the protocol of the answer.
    pub version: Version,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Refused(Refusal),
    Ready,
    /// The server requires a login; the name of its authenticator class.
    Authenticate(String),
    AuthChallenge(Option<Bytes>),
    AuthSuccess,
    Supported(BTreeMap<String, Vec<String>>),
    Notice(Notice),
    Void,
    Rows(Rows),
    Keyspace(String),
    Prepared(PreparedStatement),
    Schema(SchemaChange),
}

impl Answer {
    /// The name of the answer, for messages about an unexpected one.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Refused(_) => "ERROR",
            Self::Ready => "READY",
            Self::Authenticate(_) => "AUTHENTICATE",
            Self::AuthChallenge(_) => "AUTH_CHALLENGE",
            Self::AuthSuccess => "AUTH_SUCCESS",
            Self::Supported(_) => "SUPPORTED",
            Self::Notice(_) => "EVENT",
            Self::Void => "RESULT void",
            Self::Rows(_) => "RESULT rows",
            Self::Keyspace(_) => "RESULT keyspace",
            Self::Prepared(_) => "RESULT prepared",
            Self::Schema(_) => "RESULT schema change",
        }
    }
}

impl Response {
    /// Returns the rows; no rows if the answer has none.
    pub fn into_rows(self) -> Rows {
        match self.answer {
            Answer::Rows(rows) => rows,
            _ => Rows::default(),
        }
    }

    pub fn read(envelope: &Envelope, version: Version) -> Result<Self, Malformed> {
        Self::read_as(envelope, version, None)
    }

    /// Reads an answer; `known` are the columns that it most likely has.
    pub fn read_as(envelope: &Envelope, version: Version, known: Option<&Layout>) -> Result<Self, Malformed> {
        let from = &mut Reader::new(&envelope.body);
        let has = |flag: u8| envelope.flags & flag != 0;
        let tracing = has(flag::TRACING).then(|| from.uuid("the id of a trace")).transpose()?;
        let warnings = if has(flag::WARNING) { from.strings("warnings")? } else { Vec::new() };
        if has(flag::PAYLOAD) {
            skip_payload(from)?;
        }
        let answer = match envelope.opcode {
            Opcode::Error => Answer::Refused(Refusal::read(from, version)?),
            Opcode::Ready => Answer::Ready,
            Opcode::Authenticate => Answer::Authenticate(from.string("an authenticator")?.to_owned()),
            Opcode::AuthChallenge => Answer::AuthChallenge(from.bytes("a challenge")?.map(Bytes::copy_from_slice)),
            Opcode::AuthSuccess => Answer::AuthSuccess,
            Opcode::Supported => Answer::Supported(from.string_multimap("supported options")?),
            Opcode::Event => Answer::Notice(Notice::read(from)?),
            Opcode::Result => result(from, &envelope.body, version, known)?,
            request => {
                return Err(Malformed::Unexpected { what: "an answer", found: format!("a request, {request:?}") });
            }
        };
        Ok(Self { answer, tracing, warnings, version })
    }
}

fn result(from: &mut Reader<'_>, body: &Bytes, version: Version, known: Option<&Layout>) -> Result<Answer, Malformed> {
    Ok(match from.i32("the kind of a result")? {
        1 => Answer::Void,
        2 => {
            let metadata = Metadata::read(from, known)?;
            let count = rows_count(from, &metadata)?;
            let cells = body.slice(body.len() - from.left()..);
            Answer::Rows(Rows::new(metadata, count, cells))
        }
        3 => Answer::Keyspace(from.string("a keyspace")?.to_owned()),
        4 => Answer::Prepared(PreparedStatement::read(from, version)?),
        5 => Answer::Schema(SchemaChange::read(from)?),
        other => return Err(Malformed::Value { what: "the kind of a result", value: other.into() }),
    })
}

/// Reads the number of rows. Every cell takes at least four bytes; rows without columns are refused, since any number
/// of them would take no bytes.
fn rows_count(from: &mut Reader<'_>, metadata: &Metadata) -> Result<usize, Malformed> {
    let count = from.count("rows", metadata.count.saturating_mul(4))?;
    if count > 0 && metadata.count == 0 {
        return Err(Malformed::Value { what: "the number of columns", value: 0 });
    }
    Ok(count)
}

fn skip_payload(from: &mut Reader<'_>) -> Result<(), Malformed> {
    let count = from.short_count("a payload", 6)?;
    (0..count).try_for_each(|_| {
        from.string("a payload")?;
        from.bytes("a payload").map(drop)
    })
}
