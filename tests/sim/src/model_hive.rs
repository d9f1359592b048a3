//! Members and leases, in the same database as the outbox, so that fence and lease are one row.

use std::collections::BTreeMap;

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    Fence, NodeId, Reply, Request,
    contract::{LeaseRow, NodeRow},
};
use honeyflow_runtime::Failure;

#[derive(Clone, Debug, Default)]
pub struct ModelHive {
    nodes: BTreeMap<NodeId, Node>,
    leases: BTreeMap<Name, Lease>,
    pub buried: u64,
}

#[derive(Clone, Debug)]
struct Node {
    name: Name,
    meta: String,
    ttl_ms: u64,
    beat: u64,
    expires_ms: u64,
}

#[derive(Clone, Debug, Default)]
struct Lease {
    epoch: Epoch,
    holder: Option<NodeId>,
    since_ms: u64,
    cause: Name0,
}

/// `Arc<str>` has no default.
#[derive(Clone, Debug)]
struct Name0(Name);

impl Default for Name0 {
    fn default() -> Name0 {
        Name0("".into())
    }
}

impl ModelHive {
    /// `hive_ms`: milliseconds since 2020 on the store's clock.
    pub fn apply(&mut self, hive_ms: u64, request: Request) -> Result<Reply, Failure> {
        match request {
            Request::Join { node, name, ttl_ms, meta } => {
                self.bury(hive_ms, Some(node));
                if self.nodes.contains_key(&node) {
                    return Ok(Reply::Joined);
                }
                self.nodes.insert(node, Node { name, meta, ttl_ms, beat: 0, expires_ms: hive_ms + ttl_ms });
                Ok(Reply::Joined)
            }
            Request::Beat { node, read_only } => {
                let member = self.nodes.contains_key(&node);
                if let Some(row) = self.nodes.get_mut(&node).filter(|_| !read_only) {
                    row.beat += 1;
                    row.expires_ms = hive_ms + row.ttl_ms;
                }
                Ok(Reply::Beat { hive_ms, member })
            }
            Request::Look { lease } => {
                self.bury(hive_ms, None);
                let nodes = &self.nodes;
                let row = self.leases.entry(lease).or_default();
                let free = row.holder.is_none_or(|holder| !nodes.contains_key(&holder));
                Ok(Reply::Lease { epoch: row.epoch, holder: row.holder, free })
            }
            Request::Take { lease, node, seen, floor, cause } => {
                let nodes = &self.nodes;
                let row = self.leases.entry(lease).or_default();
                let free = row.holder.is_none_or(|holder| !nodes.contains_key(&holder));
                if row.epoch != seen || !free || !nodes.contains_key(&node) {
                    return Ok(Reply::Refused);
                }
                mint(row, node, floor, hive_ms, cause)
            }
            Request::HandOver { lease, node, epoch, heir, floor, cause } => {
                let heir_lives = self.nodes.contains_key(&heir);
                let row = self.leases.entry(lease).or_default();
                if row.holder != Some(node) || row.epoch != epoch || !heir_lives {
                    return Ok(Reply::Refused);
                }
                mint(row, heir, floor, hive_ms, cause)
            }
            Request::Release { lease, node, epoch } => {
                let row = self.leases.entry(lease).or_default();
                if row.holder != Some(node) || row.epoch != epoch {
                    return Ok(Reply::Refused);
                }
                row.holder = None;
                Ok(Reply::Done)
            }
            Request::Leave { node } => {
                self.nodes.remove(&node);
                for lease in self.leases.values_mut().filter(|lease| lease.holder == Some(node)) {
                    lease.holder = None;
                }
                Ok(Reply::Done)
            }
            Request::Nodes => Ok(Reply::Nodes(self.node_rows(hive_ms))),
            Request::Leases => Ok(Reply::Leases(self.lease_rows())),
        }
    }

    /// The fence, compared with the lease row.
    pub fn admits(&self, fence: &Fence) -> bool {
        self.leases.get(fence.lease()).is_some_and(|row| fence.holds(row.epoch, row.holder))
    }

    /// Whoever's time has run out goes, unless it is the one that asks.
    fn bury(&mut self, hive_ms: u64, spare: Option<NodeId>) {
        let before = self.nodes.len();
        self.nodes.retain(|id, node| node.expires_ms > hive_ms || Some(*id) == spare);
        self.buried += (before - self.nodes.len()) as u64;
    }

    fn node_rows(&self, hive_ms: u64) -> Vec<NodeRow> {
        let row = |(id, node): (&NodeId, &Node)| NodeRow {
            id: *id,
            name: node.name.to_string(),
            beat: node.beat,
            expires_in_ms: i64::try_from(node.expires_ms).unwrap_or(i64::MAX)
                - i64::try_from(hive_ms).unwrap_or(i64::MAX),
            meta: node.meta.clone(),
        };
        self.nodes.iter().map(row).collect()
    }

    fn lease_rows(&self) -> Vec<LeaseRow> {
        let row = |(name, lease): (&Name, &Lease)| LeaseRow {
            name: name.to_string(),
            epoch: lease.epoch,
            holder: lease.holder,
            since_ms: lease.since_ms,
            cause: lease.cause.0.to_string(),
        };
        self.leases.iter().map(row).collect()
    }
}

fn mint(row: &mut Lease, holder: NodeId, floor: Epoch, hive_ms: u64, cause: Name) -> Result<Reply, Failure> {
    let epoch = Epoch((row.epoch.0 + 1).max(hive_ms).max(floor.0 + 1));
    if epoch > Epoch::MAX {
        return Err(Failure::fatal("epoch-too-large", "an epoch beyond 2^40 leaves no room for the sequence"));
    }
    *row = Lease { epoch, holder: Some(holder), since_ms: hive_ms, cause: Name0(cause) };
    Ok(Reply::Taken { epoch })
}
