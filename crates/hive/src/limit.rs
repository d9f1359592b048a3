//! Cluster-wide limits. The invariant: in every window all nodes together admit at most rate × window + burst.
//!
//! | module                           | what it is                                                                    |
//! |----------------------------------|-------------------------------------------------------------------------------|
//! | [`rate`], [`definition`]         | the limit as people write it, and the numbers that follow from it             |
//! | [`crate::bucket`]                | the arithmetic of the bucket in the store: one row per key                    |
//! | [`local_permits`], [`gcra`]      | the fast path of a request on this node: one atomic word, no lock             |
//! | [`reserved_second`]              | the permits of a reserved second, which become available one after the other  |
//! | [`key`]                          | the slow path of one key: draws, queues and refuses; a pure state machine     |
//! | [`store_health`]                 | whether the store answers, and by how many nodes to divide while it does not  |
//! | [`keys`], [`handle`], [`permit`] | the interface for programs: limits, their keys, and permits                   |
//! | [`service`]                      | the drawing task, which exchanges requests and answers with the store         |
//!
//! The numbers of a limit choose one of two modes: the node draws batches from the store's pool, or the store decides
//! on every request. A third mode follows from the demand: while a pool is short, each node reserves its part of the
//! next second, and asks once a second instead of once per batch.

mod atomic {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

pub mod breaker;
pub mod calendar;
pub mod clock;
pub mod counters;
pub mod definition;
pub mod demand;
pub mod gcra;
pub mod handle;
pub mod headcount;
pub mod key;
pub mod keys;
pub mod local_permits;
pub mod permit;
pub mod queue;
pub mod rate;
pub mod reserved_second;
pub mod service;
pub mod store_health;

pub use definition::{Definition, OnOutage, Terms};
pub use handle::{Limit, LimitKey, Peek, Refusal};
pub use key::Reason;
pub use permit::{CostReservation, Permit, all};
pub use queue::Class;
pub use service::{Config, Limits, Service};

#[cfg(test)]
mod tests;
