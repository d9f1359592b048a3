//! A table of a Cassandra cluster as a fenced sink.
//!
//! A document is a row. Its stamp is the timestamp that every cell of the row is written with, so that the cluster
//! itself refuses an older write, from any sender and at any later time. The stamp is also stored in a separate column
//! ([`VERSION`]): a write reads it first, so that the sink can answer that the write came too late. The stamps of
//! deletes are in a second table ([`DELETED`]), for as long as the cluster remembers the deletes themselves.
//!
//! | file | what |
//! |---|---|
//! | `table` | checks whether the table fits the documents: names, types, the primary key |
//! | `encode`, `decode`, `moment` | convert JSON to cells and back |
//! | `key` | converts the text of a key, part by part, to the primary key and back |
//! | `judge` | decides whether a write may happen, given what is stored |
//! | `group` | decides which rows are sent in one request: those of one partition |
//! | `write`, `sink` | read, judge, write, answer |
//!
//! Deliberately absent: leases and the meaning of epochs (the engine judges a `Stale`), retries (the engine retries),
//! creating tables for documents.

pub mod codes;
mod config;
mod count;
mod decode;
mod encode;
mod group;
mod judge;
mod key;
mod kind;
mod moment;
mod outcome;
mod sink;
mod statement;
mod table;
mod write;

pub use config::{KeyKind, KeyPart, Options};
pub use kind::kind;
pub use sink::CassandraSink;
pub use table::{Misfit, TableError};

/// The column that holds a row's stamp.
pub const VERSION: &str = "honeyflow_version";
/// The table that holds the stamps of deletes. It is in the same keyspace as the sink's table.
pub const DELETED: &str = "honeyflow_deleted";
