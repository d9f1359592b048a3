//! The surface over real sockets on loopback.

mod door;
mod door_limit;
mod gate;
mod harness;
mod headers;
mod limits;
mod live;
mod search;
mod status;
