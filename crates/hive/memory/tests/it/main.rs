//! The suites that every hive passes, in memory.

mod conformance;
mod fleet;
