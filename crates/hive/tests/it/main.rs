//! What takes the crate as a whole: the shell on the memory backend, every interleaving of its atomic words, and limits
//! over a store in memory. Many members on a simulated clock are in the simulator.

mod interleaving;
mod limit;
mod service;
