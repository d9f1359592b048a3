//! The core's rules, one by one: inputs go in by hand, effects are looked at.

mod emcee;
mod order;
mod table;
