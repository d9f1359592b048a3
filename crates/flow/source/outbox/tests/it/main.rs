//! What rows lead to: the tests poll the source as the engine does. The store is plain data: rows to poll, and answers
//! by statement and key.

mod leads;
mod store;
