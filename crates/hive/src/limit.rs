//! Cluster-wide limits: in every window the nodes together admit at most rate × window + burst.
//!
//! | module                           | what it is                                                                  |
//! |----------------------------------|-----------------------------------------------------------------------------|
//! | [`rate`], [`definition`]         | what people write, and what follows from it                                 |
//! | [`crate::bucket`]                | the store's side: one row per key                                           |
//! | [`stock`], [`gcra`]              | this node's side, on the way of a request: one atomic word                  |
//! | [`drip`]                         | what was booked of a second, as it comes                                    |
//! | [`key`]                          | this node's side, beside that way: drawing, waiting, refusing; pure         |
//! | [`standing`]                     | whether the store is there, and by how many to divide if it is not          |
//! | [`keys`], [`handle`], [`permit`] | what a program holds in its hands                                           |
//! | [`service`]                      | the drawing task                                                            |
//!
//! Two modes are chosen by the numbers: batches from the store's pool, or the store's own word for every decision. A third
//! one follows from how much is asked for: while a pool is short, nodes book their parts of the next second, and ask once a
//! second instead of for every batch.

mod atomic {
    pub use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

pub mod breaker;
pub mod calendar;
pub mod clock;
pub mod counters;
pub mod definition;
pub mod demand;
pub mod drip;
pub mod gcra;
pub mod handle;
pub mod headcount;
pub mod key;
pub mod keys;
pub mod permit;
pub mod queue;
pub mod rate;
pub mod service;
pub mod standing;
pub mod stock;

pub use definition::{Definition, OnOutage, Terms};
pub use handle::{Denied, Keyed, Limit, Peek};
pub use key::Reason;
pub use permit::{Permit, Reservation, all};
pub use queue::Class;
pub use service::{Config, Limits, Service};

#[cfg(test)]
mod tests;
