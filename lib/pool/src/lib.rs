//! Resilient access to a cluster of servers.
//!
//! A protocol implements [`Connector`] and [`Connection`]; everything else is the pool's: it finds the servers, keeps
//! connections to each, replaces what dies, hands them out fairly and within deadlines, keeps away from servers that are
//! slow or silent, and can be watched, changed and emptied while it runs.

pub mod clock;
pub mod connect;
pub mod control;
pub mod core;
pub mod error;
mod gate;
mod loan;
mod pool;
pub mod server;
pub mod settings;
mod shared;
mod tasks;
mod using;
mod want;

/// What the gate locks with; loom's own in the tests that look at every interleaving.
mod sync {
    pub use std::sync::Mutex;
}

pub use connect::{Again, Connection, Connector, Dial, Fault, Limits, Notice, Tcp, Verdict};
pub use control::{Changes, Control, Drain, Moved};
pub use core::{
    Change, Class, Counters, Drained, Next, Record, ServerState, ServerStatus, State, Status, histogram::Histogram,
};
pub use error::{Error, Executed, Kind, Report};
pub use loan::{Detached, Get, InFlight, Loan};
pub use pool::Pool;
pub use server::{Server, ServerId};
pub use settings::{Functions, Provider, Settings, SettingsError};
pub use want::Want;
