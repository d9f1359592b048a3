//! Resilient access to a cluster of servers.
//!
//! A protocol implements [`Connector`] and [`Connection`]; everything else is the pool's.

pub mod connect;
pub mod error;
pub mod server;

pub use connect::{Again, Connection, Connector, Dial, Fault, Limits, Notice, Tcp, Verdict};
pub use error::{Executed, Kind};
pub use server::{Server, ServerId};
