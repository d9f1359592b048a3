//! The SQL statements of the configuration. `$keys` stands for the row set of the batch's keys: one column per key
//! part, named like the key's columns. Each adapter rewrites it for its database.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Document, Key};
use honeyflow_runtime::Failure;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// The statement's path in the configuration, for messages: `entity.book.document`.
    pub place: String,
    /// The text as written, with `$keys`.
    pub text: String,
    /// The columns of `$keys`: names and types of the key columns that the statement reads.
    pub key: Vec<KeyColumn>,
    /// Document statements: the result columns that form the key (they are fields too). Edge statements: empty, because
    /// every result column is a part of the container's key, in order.
    pub result_key: Vec<KeyColumn>,
    /// Result columns that hold JSON text.
    pub json: Vec<String>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct KeyColumn {
    pub name: String,
    pub kind: KeyType,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KeyType {
    Integer,
    Text,
    /// Bytes; the key text contains them as lower-case hex.
    Blob,
}

#[derive(Clone, Debug)]
pub struct Load {
    pub statement: Arc<Statement>,
    pub keys: Vec<Key>,
    /// Edge statements only: reply `Reply::Keys` with at most `limit` distinct keys above `after`, sorted by the bytes
    /// of the key text.
    pub expand: Option<Expand>,
    pub timeout: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expand {
    pub after: Option<Key>,
    pub limit: u32,
}

/// The result of a document statement for one key, in the order of `Load::keys`.
#[derive(Clone, PartialEq, Debug)]
pub enum LoadResult {
    /// None: there is no such row, or the statement's condition excludes it.
    Document(Document),
    /// Only this key failed: two rows, invalid UTF-8, or a value that JSON cannot represent.
    Rejected(Failure),
}
