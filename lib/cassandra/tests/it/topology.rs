//! The topology that servers of several versions and states report.

use std::net::SocketAddr;

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::replica::Strategy;
use honeyflow_cassandra::token::Token;
use honeyflow_cassandra::topology::{Topology, keyspaces};
use honeyflow_cassandra::wire::{Compression, Version};
use honeyflow_cassandra::{Bind, Type, Value};
use tokio::time::Instant;
use uuid::Uuid;

use crate::connection::{PATIENCE, connected, limits};
use crate::real::RealServer;
use crate::scripted::{Reply, Script, refuse};
use crate::speak::{self, Body, opcode};

pub type Columns = Vec<(&'static str, Type, Value)>;

pub fn row(columns: &Columns) -> speak::Cells {
    let cell = |(_, kind, value): &(&str, Type, Value)| {
        let mut out = Vec::new();
        (value.bind(kind, &mut out).unwrap() == honeyflow_cassandra::value::CellContent::Bytes).then_some(out)
    };
    columns.iter().map(cell).collect()
}

/// A reply with rows of the same columns.
pub fn table(rows: &[Columns]) -> Reply {
    let columns: Vec<(&str, Type)> =
        rows.first().map(|row| row.iter().map(|(name, kind, _)| (*name, kind.clone())).collect()).unwrap_or_default();
    let rows: Vec<speak::Cells> = rows.iter().map(row).collect();
    Reply::Answer(opcode::RESULT, speak::rows(&columns, &rows, None))
}

pub fn text(text: &str) -> Value {
    Value::Text(text.to_owned())
}

pub fn member(id: u128, tokens: &[&str]) -> Columns {
    let tokens = Value::Set(tokens.iter().map(|token| text(token)).collect());
    let id = if id == 0 { Value::Null } else { Value::Uuid(Uuid::from_u128(id)) };
    vec![
        ("host_id", Type::Uuid, id),
        ("data_center", Type::Text, text("north")),
        ("rack", Type::Text, text("r1")),
        ("tokens", Type::Set(Box::new(Type::Text)), tokens),
        ("schema_version", Type::Uuid, Value::Uuid(Uuid::from_u128(99))),
    ]
}

pub fn local(id: u128) -> Columns {
    let mut local = member(id, &["-5", "7"]);
    local.push(("partitioner", Type::Text, text("org.apache.cassandra.dht.Murmur3Partitioner")));
    local.push(("rpc_address", Type::Inet, Value::Inet("10.9.9.9".parse().unwrap())));
    local
}

pub fn peer(id: u128, tokens: &[&str], address: &str, port: i32) -> Columns {
    let mut peer = member(id, tokens);
    peer.push(("native_address", Type::Inet, Value::Inet(address.parse().unwrap())));
    peer.push(("native_port", Type::Int, if port == 0 { Value::Null } else { Value::Int(port) }));
    peer
}

async fn discovered(
    local: Columns,
    peers: Vec<Columns>,
    old_peers: Option<Vec<Columns>>,
) -> (Topology, SocketAddr, Vec<String>) {
    let script = Script::new(move |received| match &received.request {
        RequestBody::Query(query) if query.query.contains("system.local") => table(std::slice::from_ref(&local)),
        RequestBody::Query(query) if query.query.contains("peers_v2") => match &old_peers {
            None => table(&peers),
            Some(_) => refuse(0x2200, Body::new()),
        },
        RequestBody::Query(query) if query.query.contains("system.peers") => table(old_peers.as_deref().unwrap()),
        _ => Reply::Nothing,
    });
    let connection = connected(&script).await;
    let dialled = connection.server().parse().unwrap();
    let topology = Topology::ask(&connection, dialled, Instant::now() + PATIENCE).await.unwrap();
    (topology, dialled, script.received())
}

/// PL-114: `native_address_is_used`
#[tokio::test]
async fn cq_12_native_addresses_and_ports_are_used_and_the_dialled_one_for_the_server_itself() {
    let peers = vec![peer(2, &["1"], "10.0.0.2", 19042), peer(3, &["2"], "10.0.0.3", 0)];
    let (topology, dialled, _) = discovered(local(1), peers, None).await;
    let addresses: Vec<SocketAddr> = topology.members.iter().map(|member| member.address).collect();
    let third = SocketAddr::new("10.0.0.3".parse().unwrap(), dialled.port());
    assert_eq!(addresses, [dialled, "10.0.0.2:19042".parse().unwrap(), third]);
    assert_eq!(topology.members[0].tokens, [Token(-5), Token(7)]);
    assert_eq!(topology.members[1].place.datacentre, "north");
    assert!(topology.is_murmur3());
    assert_eq!(topology.schemas, [Uuid::from_u128(99)]);
}

#[tokio::test]
async fn cq_12_rows_that_lack_something_and_the_server_among_its_own_peers_are_left_out() {
    let peers = vec![
        peer(0, &["1"], "10.0.0.2", 9042),
        peer(3, &[], "10.0.0.3", 9042),
        peer(4, &["3"], "0.0.0.0", 9042),
        peer(1, &["4"], "10.0.0.5", 9042),
        peer(6, &["not a token"], "10.0.0.6", 9042),
        peer(7, &["5"], "10.0.0.7", 9042),
    ];
    let (topology, _, _) = discovered(local(1), peers, None).await;
    let ids: Vec<u128> = topology.members.iter().map(|member| member.id.as_u128()).collect();
    assert_eq!(ids, [1, 7]);
}

/// Current servers no longer have this table, so only a scripted server can test it.
#[tokio::test]
async fn cq_12_old_servers_have_another_table_of_peers() {
    let old = |id: u128, rpc: &str, peer: &str| {
        let mut columns = member(id, &["3"]);
        columns.push(("rpc_address", Type::Inet, Value::Inet(rpc.parse().unwrap())));
        columns.push(("peer", Type::Inet, Value::Inet(peer.parse().unwrap())));
        columns
    };
    let peers = vec![old(2, "10.0.0.2", "10.1.0.2"), old(3, "0.0.0.0", "10.1.0.3")];
    let (topology, dialled, received) = discovered(local(1), vec![], Some(peers)).await;
    let addresses: Vec<SocketAddr> = topology.members[1..].iter().map(|member| member.address).collect();
    let at = |ip: &str| SocketAddr::new(ip.parse().unwrap(), dialled.port());
    assert_eq!(addresses, [at("10.0.0.2"), at("10.1.0.3")]);
    assert_eq!(received.len(), 5, "{received:?}");
}

#[tokio::test]
async fn cq_11_another_partitioner_is_noticed() {
    let mut local = local(1);
    local[5].2 = text("org.apache.cassandra.dht.RandomPartitioner");
    // Greater than any Murmur3 token; the server is used nevertheless.
    local[3].2 = Value::Set(vec![text("170141183460469231731687303715884105727")]);
    let peers =
        vec![peer(2, &["85070591730234615865843651857942052864"], "10.0.0.2", 9042), peer(3, &[], "10.0.0.3", 1)];
    let (topology, _, _) = discovered(local, peers, None).await;
    assert!(!topology.is_murmur3());
    assert_eq!(topology.members.len(), 2);
}

#[tokio::test]
async fn cq_12_a_real_server_lists_itself() {
    let Some(real) = RealServer::server() else { return };
    let settings = real.settings(Version::V5, Compression::None);
    let connection = honeyflow_cassandra::Connection::connect(real.address, &settings, limits()).await.unwrap();
    let by = Instant::now() + PATIENCE;
    let topology = Topology::ask(&connection, real.address, by).await.unwrap();
    assert_eq!(topology.members.len(), 1);
    let own = &topology.members[0];
    assert_eq!((own.address, own.tokens.len(), topology.is_murmur3()), (real.address, 16, true));
    assert_eq!((own.place.datacentre.as_str(), own.place.rack.as_str()), ("datacenter1", "rack1"));
    let keyspaces = keyspaces(&connection, by).await.unwrap();
    assert_eq!(keyspaces["system_auth"], Strategy::Simple(1));
    assert_eq!(keyspaces["system"], Strategy::Unknown);
}
