//! The hive in one process: membership and leases under a mutex.
//!
//! The same answers as a database gives. Its clock is passed in, so that tests and the simulator say what time it is.
//! The memory store asks [`MemoryHive::holds`] under its own lock: that is their shared fence.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_util::future::{self, BoxFuture};
use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, HiveStore, NodeId, Reply, Request,
    contract::{LeaseRow, NodeRow},
};
use honeyflow_runtime::Failure;

pub struct MemoryHive {
    /// Milliseconds since 2020.
    hive_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    rows: Mutex<Rows>,
}

#[derive(Default)]
struct Rows {
    nodes: BTreeMap<NodeId, Node>,
    leases: BTreeMap<Name, Lease>,
}

struct Node {
    name: Name,
    beat: u64,
    ttl_ms: u64,
    expires_ms: u64,
    meta: String,
}

struct Lease {
    epoch: Epoch,
    holder: Option<NodeId>,
    since_ms: u64,
    cause: Name,
}

impl MemoryHive {
    /// `hive_ms` is the hive's clock: milliseconds since 2020.
    pub fn new(hive_ms: impl Fn() -> u64 + Send + Sync + 'static) -> MemoryHive {
        MemoryHive { hive_ms: Box::new(hive_ms), rows: Mutex::default() }
    }

    pub fn hive_ms(&self) -> u64 {
        (self.hive_ms)()
    }

    /// Whether the lease row says the same as the fence. Whoever writes under it must hold a lock that keeps
    /// [`Request::Take`] waiting, or accept that the answer may be old by the time it writes.
    pub fn holds(&self, fence: &Fence) -> bool {
        self.while_held(fence, || ()).is_some()
    }

    /// Runs `write` while no lease can change hands, if the fence holds.
    pub fn while_held<T>(&self, fence: &Fence, write: impl FnOnce() -> T) -> Option<T> {
        let rows = self.rows();
        let holds = rows
            .leases
            .get(fence.lease())
            .is_some_and(|lease| lease.epoch == fence.epoch() && lease.holder == Some(fence.holder()));
        holds.then(write)
    }

    /// Removes a node that is known to be dead: its leases are free from now on.
    pub fn bury(&self, node: NodeId) {
        self.rows().nodes.remove(&node);
    }

    /// One request, at once.
    pub fn apply(&self, request: Request) -> Result<Reply, Failure> {
        let now_ms = (self.hive_ms)();
        self.rows().apply(request, now_ms)
    }

    /// A panic under the lock leaves whole rows: each change is one assignment.
    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HiveStore for MemoryHive {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        Box::pin(future::ready(self.apply(request)))
    }
}

impl Rows {
    fn apply(&mut self, request: Request, now_ms: u64) -> Result<Reply, Failure> {
        Ok(match request {
            Request::Join { node, name, ttl_ms, meta } => {
                self.nodes.entry(node).or_insert(Node { name, beat: 0, ttl_ms, expires_ms: now_ms + ttl_ms, meta });
                Reply::Joined
            }
            Request::Beat { node, read_only } => {
                let row = self.nodes.get_mut(&node);
                let member = row.is_some();
                if let (Some(row), false) = (row, read_only) {
                    row.beat += 1;
                    row.expires_ms = now_ms + row.ttl_ms;
                }
                Reply::Beat { hive_ms: now_ms, member }
            }
            Request::Look { lease } => {
                let row = self.leases.entry(lease).or_insert(Lease {
                    epoch: Epoch(0),
                    holder: None,
                    since_ms: now_ms,
                    cause: "".into(),
                });
                let free = row.holder.is_none_or(|holder| !self.nodes.contains_key(&holder));
                Reply::Lease { epoch: row.epoch, holder: row.holder, free }
            }
            Request::Take { lease, node, seen, floor, cause } => {
                let free = self.leases.get(&lease).is_some_and(|row| {
                    row.epoch == seen && row.holder.is_none_or(|holder| !self.nodes.contains_key(&holder))
                });
                self.grant(free, &lease, node, floor, cause, now_ms)?
            }
            Request::HandOver { lease, node, epoch, heir, floor, cause } => {
                let ours = self.leases.get(&lease).is_some_and(|row| row.epoch == epoch && row.holder == Some(node));
                self.grant(ours, &lease, heir, floor, cause, now_ms)?
            }
            Request::Release { lease, node, epoch } => match self.leases.get_mut(&lease) {
                Some(row) if row.epoch == epoch && row.holder == Some(node) => {
                    row.holder = None;
                    row.since_ms = now_ms;
                    row.cause = "released".into();
                    Reply::Done
                }
                _ => Reply::Refused,
            },
            Request::Leave { node } => {
                for row in self.leases.values_mut().filter(|row| row.holder == Some(node)) {
                    row.holder = None;
                    row.since_ms = now_ms;
                    row.cause = "left".into();
                }
                self.nodes.remove(&node);
                Reply::Done
            }
            Request::Nodes => Reply::Nodes(self.nodes.iter().map(|(id, node)| node.row(*id, now_ms)).collect()),
            Request::Leases => Reply::Leases(self.leases.iter().map(|(name, lease)| lease.row(name)).collect()),
        })
    }

    fn grant(
        &mut self,
        allowed: bool,
        lease: &Name,
        node: NodeId,
        floor: Epoch,
        cause: Name,
        now_ms: u64,
    ) -> Result<Reply, Failure> {
        let Some(row) = self.leases.get_mut(lease).filter(|_| allowed && self.nodes.contains_key(&node)) else {
            return Ok(Reply::Refused);
        };
        let epoch = Epoch((row.epoch.0 + 1).max(now_ms).max(floor.0.saturating_add(1)));
        if epoch > Epoch::MAX {
            return Err(Failure::fatal("epoch-too-large", format!("lease {lease}: epoch {} is beyond 2^40", epoch.0)));
        }
        *row = Lease { epoch, holder: Some(node), since_ms: now_ms, cause };
        Ok(Reply::Taken { epoch })
    }
}

impl Node {
    fn row(&self, id: NodeId, now_ms: u64) -> NodeRow {
        NodeRow {
            id,
            name: self.name.to_string(),
            beat: self.beat,
            expires_in_ms: self.expires_ms.cast_signed() - now_ms.cast_signed(),
            meta: self.meta.clone(),
        }
    }
}

impl Lease {
    fn row(&self, name: &Name) -> LeaseRow {
        LeaseRow {
            name: name.to_string(),
            epoch: self.epoch,
            holder: self.holder,
            since_ms: self.since_ms,
            cause: self.cause.to_string(),
        }
    }
}
