//! The log that leaders write to. It is in the store that holds their leases, and keeps the order in which the store
//! accepted the entries.

pub mod mysql;
pub mod postgres;
pub mod redis;
pub mod sqlite;

use honeyflow_hive::Fence;

/// Called in the middle of a write: after everything has been written, before it is committed.
pub type BeforeCommit<'a> = &'a mut dyn FnMut();

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub lease: String,
    pub epoch: u64,
    pub node: String,
    /// When the node sent it, on the machine's clock.
    pub at_us: u64,
}

/// One connection to the log, used by one thread.
pub trait Ledger {
    /// Appends the entry and returns true if the store accepted it. The store compares the fence, if there is one, in
    /// the transaction that writes. `before_commit` is called before the write counts; without it, one round trip may
    /// be enough.
    ///
    /// # Errors
    /// If it is unknown whether the entry was accepted; the caller opens a new connection for the next one.
    fn append(
        &mut self,
        entry: &Entry,
        fence: Option<&Fence>,
        before_commit: Option<BeforeCommit<'_>>,
    ) -> Result<bool, String>;

    /// Returns every accepted entry, in the order of acceptance.
    ///
    /// # Errors
    /// If it cannot be read.
    fn read(&mut self) -> Result<Vec<Entry>, String>;
}

/// A runtime for a server's client, on the thread that uses it.
fn runtime() -> Result<tokio::runtime::Runtime, String> {
    tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())
}
