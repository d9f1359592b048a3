//! The settings of a Cassandra sink.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_cassandra::Consistency;

#[derive(Clone, Debug)]
pub struct Options {
    pub keyspace: String,
    pub table: String,
    /// The parts of the entity's key. The table's primary key consists of exactly these, in any order.
    pub key: Vec<KeyPart>,
    /// The document field of each column whose name differs from the field's.
    pub columns: BTreeMap<String, String>,
    /// A column that holds the whole document, as JSON text.
    pub document: Option<String>,
    pub consistency: Consistency,
    /// The deadline of one request.
    pub deadline: Duration,
    /// The largest number of requests of one batch in flight at once.
    pub requests_max: usize,
    /// The largest number of rows of one partition that are sent in one request …
    pub batch_rows_max: usize,
    /// … and about how many bytes they may have.
    pub batch_bytes_max: usize,
    /// How long the stamps of deletes are kept: as long as the table's `gc_grace_seconds`.
    pub deletes_kept: Duration,
}

impl Options {
    pub fn new(keyspace: impl Into<String>, table: impl Into<String>, key: Vec<KeyPart>) -> Options {
        Options {
            keyspace: keyspace.into(),
            table: table.into(),
            key,
            columns: BTreeMap::new(),
            document: None,
            consistency: Consistency::LocalQuorum,
            deadline: Duration::from_secs(5),
            requests_max: 128,
            batch_rows_max: 100,
            batch_bytes_max: 64 << 10,
            deletes_kept: Duration::from_secs(10 * 24 * 3600),
        }
    }

    /// Returns the field that a column holds.
    pub(crate) fn field<'a>(&'a self, column: &'a str) -> &'a str {
        self.columns.get(column).map_or(column, String::as_str)
    }
}

/// One part of a key, in the order in which the key's text contains the parts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPart {
    pub name: String,
    /// `None` = not known; the type of the column decides.
    pub kind: Option<KeyKind>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    Integer,
    Text,
    /// Bytes, written in lower-case hex.
    Blob,
}

impl KeyKind {
    pub(crate) fn word(self) -> &'static str {
        match self {
            KeyKind::Integer => "a whole number",
            KeyKind::Text => "text",
            KeyKind::Blob => "bytes",
        }
    }
}
