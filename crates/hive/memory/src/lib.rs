//! The hive in one process: membership, leases and limits under a mutex.
//!
//! It gives the same answers as a database. The caller passes the clock in, so that tests and the simulator control the
//! time. The memory store calls [`MemoryHive::holds`] under its own lock: that is the fence that both share. [`Rows`]
//! is the contract as a pure function, for callers that bring their own clock and lock.

mod rows;

use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::{self, BoxFuture};
use honeyflow_hive::{Capabilities, Fence, HiveStore, NodeId, Reply, Request};
use honeyflow_runtime::Failure;
use uuid::Uuid;

pub use rows::Rows;

pub struct MemoryHive {
    /// Milliseconds since 2020.
    hive_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    rows: Mutex<Rows>,
}

impl MemoryHive {
    /// `hive_ms` is the hive's clock: milliseconds since 2020.
    pub fn new(hive_ms: impl Fn() -> u64 + Send + Sync + 'static) -> MemoryHive {
        MemoryHive { hive_ms: Box::new(hive_ms), rows: Mutex::new(Rows::with_origin(Uuid::new_v4())) }
    }

    pub fn hive_ms(&self) -> u64 {
        (self.hive_ms)()
    }

    /// Whether the lease row has the same holder and epoch as the fence. A caller that writes under the fence must hold
    /// a lock that keeps [`Request::Take`] waiting, or accept that the answer may be out of date when it writes.
    pub fn holds(&self, fence: &Fence) -> bool {
        self.rows().holds(fence)
    }

    /// Runs `write` if the fence holds. No lease can get a new holder until `write` returns.
    pub fn while_held<T>(&self, fence: &Fence, write: impl FnOnce() -> T) -> Option<T> {
        let rows = self.rows();
        rows.holds(fence).then(write)
    }

    /// Removes a node that the caller knows to be dead. Its leases are free from now on.
    pub fn remove_dead(&self, node: NodeId) {
        let now_ms = self.hive_ms();
        self.rows().remove_dead(node, now_ms);
    }

    /// Answers one request immediately.
    pub fn apply(&self, request: Request) -> Result<Reply, Failure> {
        let now_ms = self.hive_ms();
        self.rows().apply(now_ms, request)
    }

    /// Locks the rows. A poisoned lock is safe to use: each request is checked before it changes a row, so a panic
    /// leaves complete rows.
    pub fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HiveStore for MemoryHive {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        Box::pin(future::ready(self.apply(request)))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_hosts: false, durable: false, doorbell: false }
    }
}
