//! The simulator as a test: many seeds hold, the same seed is the same history, and every planted bug is found.

#[cfg(feature = "planted")]
mod bugs;
mod conformance;
mod hive;
mod limit_faults;
mod limits;
mod seeds;
