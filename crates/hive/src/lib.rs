//! Membership, and named leases with epochs: which node does what.
//!
//! A lease gives liveness; only an epoch that the written store checks gives safety. Therefore every write shows a
//! [`Fence`]. A fence comes only from a [`Term`], and only [`Member`] makes terms, from a store's answer.
//! This crate knows no database: the backends implement [`HiveStore`].

pub mod bucket;
pub mod codes;
pub mod contract;
pub mod fence;
pub mod horizon;
pub mod limit;
pub mod member;
pub mod placement;
pub mod roster;
pub mod service;
pub mod term;
pub mod traffic;

pub use contract::{Capabilities, HiveStore, NodeId, Reply, Request};
pub use honeyflow_runtime::planted;
pub use member::Member;
pub use service::{Hive, Options};
pub use term::{Fence, Term};
pub use traffic::Traffic;
