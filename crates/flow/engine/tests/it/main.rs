//! The core's rules, one by one: inputs go in by hand, effects are looked at.

mod emcee;
mod emcee_masters;
mod emcee_messages;
mod engine;
mod order;
mod table;
