//! A client for Cassandra: CQL over the native protocol, versions 4 and 5.
//!
//! `wire` converts bytes to messages and back, and trusts no length, count or type that a server sends. `value` is the
//! content of cells, `rows` are the answers that contain them. A [`Connection`] carries many requests at once, each
//! with its own deadline; a [`Session`] sends them to the servers of a cluster that hold the data. This crate knows
//! nothing of Honeyflow.

pub mod batch;
pub mod cluster;
pub mod conditional;
pub mod connection;
pub mod error;
pub mod options;
pub mod replica;
pub mod rows;
pub mod session;
pub mod statement;
pub mod token;
pub mod topology;
pub mod value;
mod verdict;
pub mod wire;

pub use batch::Batch;
pub use connection::Connection;
pub use error::{Cause, Error};
pub use options::Options;
pub use rows::{FromRow, Row, Rows};
pub use session::Session;
pub use statement::Statement;
pub use value::{Bind, BindAll, FromCell, Value, ValueMismatch};
pub use wire::{Consistency, Malformed, Type, Version};

#[deprecated(since = "0.1.0", note = "renamed to ValueMismatch")]
pub type Unfit = ValueMismatch;
