//! Runs the binary as a process on real files while something goes wrong. At the end of each test every document equals
//! its row: a fault may cost time, or park the faulty item, but nothing else.

mod cancel;
mod delete_guard;
mod disk;
mod event_endpoint;
mod existing;
mod generation;
mod http;
mod http_call;
mod idempotency;
mod namespace;
mod node;
mod payload;
mod placed;
mod poison;
mod rebuild;
mod schema;
mod second_node;
mod shop;
mod signal;
mod standby;
mod verify;
mod version;
mod wait;
mod write_lock;
