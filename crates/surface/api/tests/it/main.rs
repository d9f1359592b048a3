//! Tests of the surface over real sockets on loopback.

mod admission;
mod event_limit;
mod events;
mod harness;
mod headers;
mod limits;
mod live;
mod search;
mod status;
