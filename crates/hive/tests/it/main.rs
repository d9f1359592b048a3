//! What takes the crate as a whole: every interleaving of its atomic words, and limits over a store in memory.

mod interleaving;
mod limit;
