//! Who does what: membership and named leases with epochs.
//!
//! A lease gives liveness; only an epoch checked by the written store gives safety. So whoever writes shows a
//! [`Fence`], and a fence comes from a [`Term`] alone, which only [`Member`] makes out of a store's answer.
//! This crate knows no database: backends lie beneath it and implement [`HiveStore`].

pub mod bucket;
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
