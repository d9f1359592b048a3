//! The core's rules, one by one: inputs go in by hand, effects are looked at.

mod attempts;
mod begins;
mod budget;
mod cancel;
mod deadline;
mod each;
mod emcee;
mod emcee_masters;
mod emcee_messages;
mod engine;
mod expressions;
mod handover;
mod journal;
mod limit;
mod order;
mod places;
mod runs;
mod shards;
mod share;
mod table;
mod version;
mod wait;
