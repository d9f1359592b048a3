//! What a Cassandra sink is told.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_cassandra::Consistency;

#[derive(Clone, Debug)]
pub struct Options {
    pub keyspace: String,
    pub table: String,
    /// The entity's key; the table's primary key is made of these and nothing else, in any order.
    pub key: Vec<KeyPart>,
    /// Column and field, where the names differ.
    pub columns: BTreeMap<String, String>,
    /// A column that holds the whole document, as JSON text.
    pub document: Option<String>,
    pub consistency: Consistency,
    /// Of one request.
    pub deadline: Duration,
    /// Requests under way at once, of one batch.
    pub requests_max: usize,
    /// Rows of one partition that travel together …
    pub batch_rows_max: usize,
    /// … and about how many bytes.
    pub batch_bytes_max: usize,
    /// For how long versions of deletes are kept; as long as the table's `gc_grace_seconds`.
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

    /// The field that a column holds.
    pub(crate) fn field<'a>(&'a self, column: &'a str) -> &'a str {
        self.columns.get(column).map_or(column, String::as_str)
    }
}

/// One part of a key, as the text of a key writes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyPart {
    pub name: String,
    /// None: not known; then the column says what it takes.
    pub kind: Option<KeyKind>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyKind {
    Integer,
    Text,
    /// In lower-case hex.
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
