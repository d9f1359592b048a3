//! Decides which node should own which shard: the same result on every node that sees the same rows, with few moves.
//!
//! ```text
//! quota     = weighted share, rounded down; the shards that rounding leaves over go to the largest remainders, then to
//!             the nodes that hold most beyond their whole share
//! kept      = the shards that a node holds, up to its quota; it gives up those with the lowest scores
//! assigned  = free and given-up shards go to nodes below their quota, the highest score first
//! ```
//!
//! A score is the hash of the node's name and the lease's name, so that a node that comes back under the same name gets
//! the same shards again. Pinned nodes get their pinned shards and no others. A pinned shard without a live owner goes
//! to another node, or waits if [`Shard::pinned_only`] is set.

use std::{cmp::Reverse, collections::BTreeMap};

use honeyflow_event::Name;
use xxhash_rust::xxh64::xxh64;

use crate::contract::NodeId;

/// A node that may own shards of this source.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: NodeId,
    pub name: Name,
    /// Its part of the shards relative to other nodes; 0 = it gets none.
    pub weight: u32,
    /// Shards it is pinned to; empty = it may own any shard.
    pub pinned: Vec<Name>,
}

/// A shard's lease, as its row shows it.
#[derive(Clone, Debug)]
pub struct Shard {
    pub lease: Name,
    /// `None` also if the holder has expired.
    pub holder: Option<NodeId>,
    /// The shard waits for a pinned node instead of going to another.
    pub pinned_only: bool,
}

/// A node's score for a lease. Nodes that share a name are distinguished by their ids (`twin`).
pub fn score(name: &str, twin: Option<NodeId>, lease: &str) -> u64 {
    let mut text = Vec::with_capacity(name.len() + lease.len() + 40);
    text.extend_from_slice(name.as_bytes());
    if let Some(id) = twin {
        text.extend_from_slice(id.to_string().as_bytes());
    }
    text.push(0);
    text.extend_from_slice(lease.as_bytes());
    xxh64(&text, 0)
}

/// The nodes in the order in which they should get the lease: highest score first.
pub fn order(nodes: &[Candidate], lease: &str) -> Vec<NodeId> {
    let nodes = Nodes::new(nodes);
    let mut order: Vec<usize> = (0..nodes.all.len()).collect();
    order.sort_by_key(|node| (Reverse(nodes.score(*node, lease)), nodes.all[*node].id));
    order.into_iter().map(|node| nodes.all[node].id).collect()
}

/// For each shard, the index in `nodes` of the node that should own it.
pub fn place(nodes: &[Candidate], shards: &[Shard]) -> Vec<Option<usize>> {
    let nodes = Nodes::new(nodes);
    let mut owners = vec![None; shards.len()];
    let mut free = Vec::new();
    for (at, shard) in shards.iter().enumerate() {
        owners[at] = nodes.pinned_owner(shard);
        if owners[at].is_none() && !shard.pinned_only {
            free.push(at);
        }
    }
    let mut held: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in &free {
        let holder = shards[*at].holder.and_then(|id| nodes.find(id));
        if let Some(node) = holder.filter(|node| nodes.takes_any(*node)) {
            held.entry(node).or_default().push(*at);
        }
    }
    let mut room = nodes.quotas(free.len(), &held);
    for (node, mut mine) in held {
        mine.sort_by_key(|at| Reverse((nodes.score(node, &shards[*at].lease), *at)));
        mine.truncate(room[node]);
        room[node] -= mine.len();
        for at in mine {
            owners[at] = Some(node);
        }
    }
    let left = free.into_iter().filter(|at| owners[*at].is_none());
    let mut offers: Vec<(u64, usize, usize)> = left
        .flat_map(|at| {
            let (nodes, room) = (&nodes, &room);
            let offer = move |node| (nodes.score(node, &shards[at].lease), at, node);
            (0..nodes.all.len()).filter(move |node| room[*node] > 0).map(offer)
        })
        .collect();
    // At equal scores for one shard the lower id wins, so that the order of `nodes` does not matter.
    offers.sort_by_key(|(score, at, node)| (Reverse(*score), *at, nodes.all[*node].id));
    for (_, at, node) in offers {
        if owners[at].is_none() && room[node] > 0 {
            owners[at] = Some(node);
            room[node] -= 1;
        }
    }
    owners
}

struct Nodes<'n> {
    all: &'n [Candidate],
    /// For each node, its id if another node has the same name.
    twin: Vec<Option<NodeId>>,
}

impl<'n> Nodes<'n> {
    fn new(all: &'n [Candidate]) -> Nodes<'n> {
        let mut names: BTreeMap<&str, usize> = BTreeMap::new();
        for node in all {
            *names.entry(&node.name).or_default() += 1;
        }
        let twin = all.iter().map(|node| (names[&*node.name] > 1).then_some(node.id)).collect();
        Nodes { all, twin }
    }

    fn find(&self, id: NodeId) -> Option<usize> {
        self.all.iter().position(|node| node.id == id)
    }

    fn score(&self, node: usize, lease: &str) -> u64 {
        score(&self.all[node].name, self.twin[node], lease)
    }

    fn takes_any(&self, node: usize) -> bool {
        self.all[node].pinned.is_empty() && self.all[node].weight > 0
    }

    /// The node pinned to the shard. If several are, the current holder keeps it: the lease decides.
    fn pinned_owner(&self, shard: &Shard) -> Option<usize> {
        let pinned = |node: &usize| self.all[*node].pinned.contains(&shard.lease);
        let holder = shard.holder.and_then(|id| self.find(id)).filter(pinned);
        holder.or_else(|| (0..self.all.len()).filter(pinned).max_by_key(|node| self.score(*node, &shard.lease)))
    }

    /// For each node, how many of `count` shards it should own.
    fn quotas(&self, count: usize, held: &BTreeMap<usize, Vec<usize>>) -> Vec<usize> {
        let weight = |node: usize| if self.takes_any(node) { u64::from(self.all[node].weight) } else { 0 };
        let total: u64 = (0..self.all.len()).map(weight).sum();
        if total == 0 {
            return vec![0; self.all.len()];
        }
        let share = |node: usize| weight(node) * count as u64;
        let whole = |node: usize| usize::try_from(share(node) / total).unwrap_or(usize::MAX);
        let mut quotas: Vec<usize> = (0..self.all.len()).map(whole).collect();
        let mut order: Vec<usize> = (0..self.all.len()).filter(|node| weight(*node) > 0).collect();
        order.sort_by_key(|node| {
            // Count beyond the whole share: otherwise two nodes of different weight would pass one shard back and
            // forth.
            let holds = held.get(node).map_or(0, Vec::len).cast_signed() - quotas[*node].cast_signed();
            (Reverse(share(*node) % total), Reverse(holds), self.all[*node].id)
        });
        let given: usize = quotas.iter().sum();
        for node in order.into_iter().take(count - given) {
            quotas[node] += 1;
        }
        quotas
    }
}

#[cfg(test)]
mod tests;
