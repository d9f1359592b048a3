//! The hive on a real Redis: the suites that every backend passes, and tests for a server that may lose its data.

mod bucket;
mod cluster;
mod conformance;
mod failures;
mod fleet;
mod keyspace;
mod members;
mod proxy;
mod replica;
mod server;
mod step_clock;
mod tls;
