//! CQL over the native protocol, versions 4 and 5.
//!
//! `wire` turns bytes into messages and back, and believes nothing that a server says about lengths, counts or types.
//! `value` is what stands in cells, `rows` the answers that hold them. A [`Connection`] carries many requests at once,
//! each with its own deadline; a [`Session`] sends them to those servers of a cluster that hold the data. Knows nothing of
//! Honeyflow.

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
pub use value::{Bind, BindAll, FromCell, Unfit, Value};
pub use wire::{Consistency, Malformed, Type, Version};
