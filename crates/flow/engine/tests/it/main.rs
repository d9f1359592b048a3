//! Tests of the core's rules, one by one: a test sends inputs by hand and checks the effects.

mod attempts;
mod cancel;
mod change;
mod concurrency;
mod deadline;
mod emcee;
mod emcee_masters;
mod emcee_messages;
mod engine;
mod event_check;
mod event_wait;
mod expressions;
mod fairness;
mod for_each;
mod handover;
mod idempotency;
mod journal;
mod limit;
mod merge;
mod priority;
mod retry_budget;
mod runs;
mod shards;
mod table;
mod version;
