//! What rows lead to, asked of the source as the engine does. The store is plain data: rows to be polled, and answers by
//! statement and key.

mod leads;
mod store;
