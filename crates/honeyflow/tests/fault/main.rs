//! The built binary as a process, on real files, while something goes wrong. Each test ends with every document equal
//! to its row: a fault may cost time, or park the one item that is at fault, never more.

mod call;
mod cancel;
mod disk;
mod door;
mod generation;
mod hold;
mod http;
mod namespace;
mod node;
mod payload;
mod poison;
mod rebuild;
mod schema;
mod second;
mod shop;
mod signal;
mod standby;
mod version;
mod wait;
mod write_lock;
