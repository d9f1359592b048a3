//! Who holds what, as of the last round of discovery.

use std::collections::BTreeMap;

use honeyflow_pool::{Server, ServerId};

use crate::replica::{Ring, Strategy};
use crate::token::Token;
use crate::topology::Topology;

#[derive(Debug, Default)]
pub struct Map {
    ring: Ring,
    servers: Vec<Server>,
    keyspaces: BTreeMap<String, Strategy>,
}

impl Map {
    pub fn new(topology: &Topology, keyspaces: BTreeMap<String, Strategy>) -> Self {
        let server = |member: &crate::topology::Member| {
            let place = &member.place;
            let server = Server::at(member.address).named(member.id.to_string());
            server.within(place.datacentre.as_str(), place.rack.as_str())
        };
        let servers = topology.members.iter().map(server).collect();
        // Another partitioner's tokens say nothing to us: requests go anywhere.
        let placed = topology.members.iter().filter(|_| topology.is_murmur3());
        let ring = Ring::new(placed.map(|member| (member.place.clone(), member.tokens.clone())));
        Self { ring, servers, keyspaces }
    }

    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// Those that hold the partition, the first replica first; empty if that cannot be told.
    pub fn replicas(&self, keyspace: &str, token: Token) -> Vec<ServerId> {
        let Some(strategy) = self.keyspaces.get(keyspace) else { return Vec::new() };
        self.ring.replicas(strategy, token).into_iter().map(|server| self.servers[server].id.clone()).collect()
    }
}
