//! Tests of the crate as a whole: the service on the memory backend, the interleavings of its atomic words, and limits
//! over a store in memory. Tests with many members on a simulated clock are in the simulator.

mod interleaving;
mod limit;
mod service;
