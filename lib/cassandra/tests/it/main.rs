//! The protocol against a second hand: what a server would say is written here by code that the crate does not share.

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
