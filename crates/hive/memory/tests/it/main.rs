//! The suites that every hive backend passes, on the memory backend.

mod conformance;
mod fleet;
