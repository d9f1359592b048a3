//! The hive on a real Redis: the suite that every backend passes, and what only a server that forgets has.

mod bucket;
mod cluster;
mod conformance;
mod fleet;
mod keyspace;
mod members;
mod proxy;
mod replica;
mod server;
mod step_clock;
mod tls;
mod trouble;
