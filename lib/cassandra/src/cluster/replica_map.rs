//! Which servers hold which token range, as of the last round of discovery. The replicas of a range are computed at its
//! first use.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use honeyflow_pool::{Server, ServerId};

use crate::replica::{Ring, Strategy};
use crate::token::Token;
use crate::topology::Topology;

#[derive(Debug, Default)]
pub struct ReplicaMap {
    ring: Ring,
    servers: Vec<Server>,
    /// The replicas of each token range, per strategy: keyspaces with the same replication share a layout.
    layouts: Vec<Layout>,
    keyspaces: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Layout {
    strategy: Strategy,
    replicas: Box<[OnceLock<Arc<[ServerId]>>]>,
}

impl ReplicaMap {
    pub fn new(topology: &Topology, keyspaces: BTreeMap<String, Strategy>) -> Self {
        let server = |member: &crate::topology::Member| {
            let place = &member.place;
            let server = Server::at(member.address).named(member.id.to_string());
            server.within(place.datacentre.as_str(), place.rack.as_str())
        };
        let servers = topology.members.iter().map(server).collect();
        // Tokens of another partitioner cannot be computed here: requests go to any server.
        let placed = topology.members.iter().filter(|_| topology.is_murmur3());
        let ring = Ring::new(placed.map(|member| (member.place.clone(), member.tokens.clone())));
        let mut map = Self { ring, servers, layouts: Vec::new(), keyspaces: BTreeMap::new() };
        for (keyspace, strategy) in keyspaces {
            let layout = map.layout(strategy);
            map.keyspaces.insert(keyspace, layout);
        }
        map
    }

    fn layout(&mut self, strategy: Strategy) -> usize {
        self.layouts.iter().position(|layout| layout.strategy == strategy).unwrap_or_else(|| {
            let replicas = (0..self.ring.ranges()).map(|_| OnceLock::new()).collect();
            self.layouts.push(Layout { strategy, replicas });
            self.layouts.len() - 1
        })
    }

    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Returns the servers that hold the partition, the first replica first; `None` if that is not known.
    pub fn replicas(&self, keyspace: &str, token: Token) -> Option<Arc<[ServerId]>> {
        let layout = &self.layouts[*self.keyspaces.get(keyspace)?];
        let range = self.ring.range(token);
        let replicas = layout.replicas.get(range)?.get_or_init(|| {
            let found = self.ring.replicas_of(&layout.strategy, range);
            found.into_iter().map(|server| self.servers[server].id.clone()).collect()
        });
        Some(Arc::clone(replicas))
    }
}
