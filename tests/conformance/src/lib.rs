//! One test suite per contract, run on every implementation of it.

pub mod fleet;
pub mod hive;
pub mod sink;
pub mod step;
pub mod store;
