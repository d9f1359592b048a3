//! The log that leaders write to: in the store that holds their leases, in the order in which it accepted them.

pub mod mysql;
pub mod postgres;
pub mod redis;
pub mod sqlite;

use honeyflow_hive::Fence;

pub type Inside<'i> = &'i mut dyn FnMut();

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub lease: String,
    pub epoch: u64,
    pub node: String,
    /// When it was sent, on the machine's clock.
    pub at_us: u64,
}

/// One connection, used by one thread.
pub trait Ledger {
    /// True if it was accepted. With a fence it is compared where it is written; without one nothing is. `inside` is called
    /// in the middle: after everything has been written, before it counts; without it one round trip may do.
    ///
    /// # Errors
    /// If it is unknown whether it was accepted; the next one begins on a fresh connection.
    fn append(&mut self, entry: &Entry, fence: Option<&Fence>, inside: Option<Inside<'_>>) -> Result<bool, String>;

    /// Everything that was accepted, in that order.
    ///
    /// # Errors
    /// If it cannot be read.
    fn read(&mut self) -> Result<Vec<Entry>, String>;
}

/// For a client of a server, on the thread that uses it.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}
