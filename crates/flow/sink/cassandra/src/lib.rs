//! A table of a Cassandra cluster as a fenced sink.
//!
//! A document is a row; its stamp is the timestamp that every cell of it is written with, so that the cluster itself
//! refuses what is older, whoever sends it and however late it arrives. The stamp also stands in a column of its own
//! ([`VERSION`]): a write reads it first, to be able to say that it came too late. Versions of deletes stand in a table
//! beside ([`DELETED`]), for as long as the cluster remembers the deletes themselves.
//!
//! | file | what |
//! |---|---|
//! | `table` | does the table fit the documents: names, types, the primary key |
//! | `encode`, `decode`, `moment` | JSON to cells and back |
//! | `key` | the text of a key, part by part, to the primary key and back |
//! | `judge` | may this write happen, given what is stored |
//! | `group` | which rows travel together: those of one partition |
//! | `sink` | reads, judges, writes, answers |
//!
//! Deliberately absent: leases and epochs' meaning (the engine judges a `Stale`), retries (its loops have them), making
//! tables for documents.

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
pub use table::{Misfit, Refused};

/// The column that holds a row's stamp.
pub const VERSION: &str = "honeyflow_version";
/// The table, in the keyspace of the sink's own, that holds the stamps of deletes.
pub const DELETED: &str = "honeyflow_deleted";
