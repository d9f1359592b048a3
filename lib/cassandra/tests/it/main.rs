//! Tests of the client. The messages of servers are written here by separate code, so that both sides do not share a
//! mistake.

mod codec;
mod conformance;
mod connection;
mod differential;
mod faults;
mod hostile;
mod network;
mod random;
mod real;
mod scripted;
mod session;
mod speak;
mod topology;
