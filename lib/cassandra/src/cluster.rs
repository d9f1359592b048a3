//! CQL as the pool sees it: opens connections, asks who is there, and remembers who holds what.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use honeyflow_pool::{self as pool, Server, ServerId, Verdict};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::connection::{self, Connection, Settings};
use crate::error::{Cause, Error};
use crate::replica::{Ring, Strategy};
use crate::token::Token;
use crate::topology::{Topology, keyspaces};
use crate::verdict::verdict;
use crate::wire;

/// For each question of a round.
const ROUND_TIME: Duration = Duration::from_secs(5);
const NOTICES_MAX: usize = 64;

/// A cluster of CQL servers.
#[derive(Debug)]
pub struct Cluster {
    settings: Settings,
    map: ArcSwap<Map>,
}

/// Who holds what, as of the last round.
#[derive(Debug, Default)]
pub(crate) struct Map {
    ring: Ring,
    servers: Vec<ServerId>,
    keyspaces: BTreeMap<String, Strategy>,
}

impl Map {
    fn new(topology: &Topology, keyspaces: BTreeMap<String, Strategy>) -> Self {
        // Another partitioner's tokens say nothing to us: requests go anywhere.
        let members = topology.members.iter().filter(|_| topology.murmur3);
        let servers = members.clone().map(|member| ServerId::new(member.id.to_string())).collect();
        let ring = Ring::new(members.map(|member| (member.place.clone(), member.tokens.clone())));
        Self { ring, servers, keyspaces }
    }

    /// Those that hold the partition, the first replica first.
    pub fn replicas(&self, keyspace: &str, token: Token) -> Vec<ServerId> {
        let Some(strategy) = self.keyspaces.get(keyspace) else { return Vec::new() };
        self.ring.replicas(strategy, token).into_iter().map(|server| self.servers[server].clone()).collect()
    }
}

impl Cluster {
    pub fn new(settings: Settings) -> Self {
        Self { settings, map: ArcSwap::default() }
    }

    pub(crate) fn map(&self) -> Arc<Map> {
        self.map.load_full()
    }
}

impl pool::Connector for Cluster {
    type Connection = Connection;
    type Error = Error;

    async fn connect(&self, to: &Server, limits: pool::Limits) -> Result<Connection, Error> {
        let address: Arc<str> = to.address.to_string().into();
        let settings = Settings { write_timeout: limits.write, ..self.settings.clone() };
        let (dialled, within) = (to.address, connection::Limits { tcp: limits.tcp, ready: limits.ready });
        let dial = || connection::tcp(dialled, &settings, within.tcp);
        Connection::connect_as(&address, &settings, within, dial).await
    }

    async fn watch(&self, on: &Connection) -> Result<mpsc::Receiver<pool::Notice>, Error> {
        let mut heard = on.listen(Instant::now() + ROUND_TIME).await?;
        let (tell, told) = mpsc::channel(NOTICES_MAX);
        // Ends with the connection, or when nobody listens any more.
        tokio::spawn(async move {
            while let Some(notice) = heard.recv().await {
                let notice = match notice {
                    wire::Notice::Added(at) => pool::Notice::Added(at),
                    wire::Notice::Removed(at) => pool::Notice::Removed(at),
                    wire::Notice::Up(at) => pool::Notice::Up(at),
                    wire::Notice::Down(at) => pool::Notice::Down(at),
                    wire::Notice::Schema(_) | wire::Notice::Other(_) => pool::Notice::Schema,
                };
                if tell.send(notice).await.is_err() {
                    return;
                }
            }
        });
        Ok(told)
    }

    async fn discover(&self, on: &Connection) -> Result<Vec<Server>, Error> {
        let dialled = on.server().parse();
        let dialled = dialled.map_err(|_| on.error(Cause::Unexpected { asked: "where it is", got: "no address" }))?;
        let by = Instant::now() + ROUND_TIME;
        let topology = Topology::ask(on, dialled, by).await?;
        self.map.store(Arc::new(Map::new(&topology, keyspaces(on, by).await?)));
        let server = |member: &crate::topology::Member| {
            let place = &member.place;
            Server::at(member.address)
                .named(member.id.to_string())
                .within(place.datacentre.as_str(), place.rack.as_str())
        };
        Ok(topology.members.iter().map(server).collect())
    }

    fn verdict(&self, error: &Error) -> Verdict {
        verdict(&error.cause)
    }
}

impl pool::Connection for Connection {
    fn streams(&self) -> u32 {
        self.streams_max().into()
    }

    fn broken(&self) -> bool {
        Connection::broken(self)
    }

    async fn closed(&self) {
        Connection::closed(self).await;
    }

    async fn probe(&self, by: Instant) -> bool {
        Connection::probe(self, by).await
    }

    fn last_read(&self) -> Option<Instant> {
        Some(Connection::last_read(self))
    }

    async fn close(&self, by: Instant) {
        Connection::close(self, by).await;
    }
}
