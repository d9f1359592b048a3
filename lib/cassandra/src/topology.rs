//! The servers of the cluster, as one server lists them in its system tables.
//!
//! All data of a round comes from one server. Rows without the address or the tokens of a server are left out: a
//! joining or broken server has such rows for a while.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use tokio::time::Instant;
use uuid::Uuid;

use crate::connection::Connection;
use crate::error::{Cause, Error};
use crate::options::Options;
use crate::replica::{Location, Strategy};
use crate::rows::{Row, Rows};
use crate::token::Token;
use crate::wire::{Code, Consistency, Malformed};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    pub id: Uuid,
    pub address: SocketAddr,
    pub place: Location,
    pub tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// All servers; the one that answered comes first.
    pub members: Vec<Member>,
    /// The class that computes the tokens of keys. Only Murmur3 is supported here; with another one the replicas of a
    /// key are unknown.
    pub partitioner: String,
    /// The versions of the schema at the servers; more than one while they disagree.
    pub schemas: Vec<Uuid>,
}

const LOCAL: &str = "SELECT * FROM system.local WHERE key = 'local'";
const PEERS: &str = "SELECT * FROM system.peers_v2";
/// The table of peers before Cassandra 4.
const OLD_PEERS: &str = "SELECT * FROM system.peers";
const KEYSPACES: &str = "SELECT keyspace_name, replication FROM system_schema.keyspaces";
const ALL_AT_ONCE: i32 = 0;

impl Topology {
    /// Reads the topology. `dialled` is the address of the answering server: the address in its own tables may not be
    /// reachable from here.
    pub async fn ask(on: &Connection, dialled: SocketAddr, by: Instant) -> Result<Self, Error> {
        let local = ask(on, LOCAL, by).await?;
        let peers = match ask(on, PEERS, by).await {
            Err(Error { cause: Cause::Refused(refusal), .. }) if refusal.code == Code::Invalid => {
                ask(on, OLD_PEERS, by).await?
            }
            peers => peers?,
        };
        Self::read(&local, &peers, dialled).map_err(|cause| on.error(cause))
    }

    fn read(local: &Rows, peers: &Rows, dialled: SocketAddr) -> Result<Self, Cause> {
        let mut topology = Self { members: Vec::new(), partitioner: String::new(), schemas: Vec::new() };
        for row in local.iter() {
            let row = row?;
            topology.partitioner = optional(&row, "partitioner").unwrap_or_default();
            topology.take(&row, Some(dialled));
        }
        for row in peers.iter() {
            let row = row?;
            topology.take(&row, native_address(&row, dialled.port()));
        }
        Ok(topology)
    }

    pub fn is_murmur3(&self) -> bool {
        self.partitioner.ends_with("Murmur3Partitioner")
    }

    fn take(&mut self, row: &Row<'_>, address: Option<SocketAddr>) {
        let schema = optional::<Uuid>(row, "schema_version");
        let Some(member) = member(row, address, self.is_murmur3()) else { return };
        // A server may list itself among its peers.
        if self.members.iter().any(|known| known.id == member.id) {
            return;
        }
        self.members.push(member);
        self.schemas.extend(schema.filter(|schema| !self.schemas.contains(schema)));
    }
}

/// Reads how each keyspace is replicated.
pub async fn keyspaces(on: &Connection, by: Instant) -> Result<BTreeMap<String, Strategy>, Error> {
    let rows = ask(on, KEYSPACES, by).await?;
    let read = rows.typed::<(String, BTreeMap<String, String>)>().map(|row| {
        let (name, replication) = row.map_err(|why| {
            on.error(Malformed::Unexpected { what: "a row of keyspaces", found: why.to_string() }.into())
        })?;
        Ok((name, Strategy::read(&replication)))
    });
    read.collect()
}

async fn ask(on: &Connection, text: &str, by: Instant) -> Result<Rows, Error> {
    // These tables are local to each server; an answer in pages would mix two states.
    let how = Options::default().consistency(Consistency::One).page_size(ALL_AT_ONCE);
    on.query_by(text, &how, by).await.map(crate::wire::Response::into_rows)
}

/// Reads a column; null, a missing column and another type all mean "not known".
fn optional<'r, T: crate::value::FromCell<'r>>(row: &Row<'r>, column: &str) -> Option<T> {
    row.get::<Option<T>>(column).ok().flatten()
}

fn member(row: &Row<'_>, address: Option<SocketAddr>, murmur3: bool) -> Option<Member> {
    let texts = optional::<Vec<&str>>(row, "tokens")?;
    let tokens: Vec<Token> = texts.iter().copied().filter_map(Token::parse).collect();
    // Tokens of other partitioners cannot be parsed, but their servers are still used.
    if texts.is_empty() || murmur3 && tokens.is_empty() {
        return None;
    }
    let text = |column: &str| optional::<String>(row, column).unwrap_or_default();
    let place = Location { datacentre: text("data_center"), rack: text("rack") };
    Some(Member { id: optional(row, "host_id")?, address: address?, place, tokens })
}

fn native_address(row: &Row<'_>, port: u16) -> Option<SocketAddr> {
    let address = |column: &str| optional::<IpAddr>(row, column).filter(|address| !address.is_unspecified());
    if let Some(address) = address("native_address") {
        let own =
            optional::<i32>(row, "native_port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
        return Some(SocketAddr::new(address, own.unwrap_or(port)));
    }
    // Old servers all listen on the same port. A server that is bound to every address lists no usable one.
    address("rpc_address").or_else(|| address("peer")).map(|address| SocketAddr::new(address, port))
}
