//! The hive in one process: membership, leases and limits under a mutex.
//!
//! The same answers as a database gives. Its clock is passed in, so that tests and the simulator say what time it is.
//! The memory store asks [`MemoryHive::holds`] under its own lock: that is their shared fence. [`Rows`] is the contract
//! as a pure function, for whoever has a clock and a lock of its own.

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

    /// Whether the lease row says the same as the fence. Whoever writes under it must hold a lock that keeps
    /// [`Request::Take`] waiting, or accept that the answer may be old by the time it writes.
    pub fn holds(&self, fence: &Fence) -> bool {
        self.rows().holds(fence)
    }

    /// Runs `write` while no lease can change hands, if the fence holds.
    pub fn while_held<T>(&self, fence: &Fence, write: impl FnOnce() -> T) -> Option<T> {
        let rows = self.rows();
        rows.holds(fence).then(write)
    }

    /// Removes a node that is known to be dead: its leases are free from now on.
    pub fn bury(&self, node: NodeId) {
        let now_ms = self.hive_ms();
        self.rows().bury_known(node, now_ms);
    }

    /// One request, at once.
    pub fn apply(&self, request: Request) -> Result<Reply, Failure> {
        let now_ms = self.hive_ms();
        self.rows().apply(now_ms, request)
    }

    /// A panic under the lock leaves whole rows: requests are judged before they change anything.
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
