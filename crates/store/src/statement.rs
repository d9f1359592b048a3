//! Statements that people write into the configuration. `$keys` stands for the row set of the batch's keys: one column
//! per key part, under the key's names. Each adapter rewrites it for its database.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Document, Key};
use honeyflow_runtime::Failure;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// Where it stands, for messages: `entity.book.document`.
    pub place: String,
    /// As written, with `$keys`.
    pub text: String,
    /// What `$keys` has: names and types of the key columns that go in.
    pub key: Vec<KeyColumn>,
    /// Document statements: which result columns are the key (they are fields too). Edge statements: empty, every
    /// result column is a part of the container's key, in order.
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
    /// Lower-case hex in the key text.
    Blob,
}

#[derive(Clone, Debug)]
pub struct Load {
    pub statement: Arc<Statement>,
    pub keys: Vec<Key>,
    /// Edge statement: answer `Reply::Keys` with at most so many distinct keys above `after`, sorted by key text bytes.
    pub expand: Option<Expand>,
    pub timeout: Duration,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expand {
    pub after: Option<Key>,
    pub limit: u32,
}

/// What a document statement gave for one key, in the order of `Load::keys`.
#[derive(Clone, PartialEq, Debug)]
pub enum Loaded {
    /// None: no such row, or the statement's condition leaves it out.
    Document(Document),
    /// This key alone is bad: two rows, invalid UTF-8, a value that JSON cannot hold.
    Rejected(Failure),
}
