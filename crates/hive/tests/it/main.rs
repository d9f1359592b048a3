//! What takes the crate as a whole: many members on one model store with a simulated clock, the shell on the memory
//! backend, every interleaving of its atomic words, and limits over a store in memory.

mod defects;
mod interleaving;
mod limit;
#[cfg(feature = "planted")]
mod planted;
mod seeds;
mod service;
mod world;
