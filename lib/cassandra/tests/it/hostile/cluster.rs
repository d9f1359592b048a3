//! Servers that report an invented cluster: each cell of each row may be null, cut, doubled or noise. The accepted
//! members can be dialled and have tokens, or the result is a typed error.

use std::collections::BTreeSet;

use honeyflow_cassandra::replica::Ring;
use honeyflow_cassandra::token::Token;
use honeyflow_cassandra::topology::{Topology, keyspaces};
use tokio::time::Instant;

use super::exchange::over;
use super::*;
use crate::connection::{PATIENCE, settings};
use crate::scripted::{Reply, Script, refuse};
use crate::topology::{Columns, local, member, peer, row, text};

/// Encodes a table with some spoilt cells; sometimes the encoded table itself is spoilt.
fn spoilt_table(random: &mut Random, rows: &[Columns]) -> Vec<u8> {
    let columns: Vec<(&str, Type)> = rows[0].iter().map(|(name, kind, _)| (*name, kind.clone())).collect();
    let mut cells: Vec<speak::Cells> = rows.iter().map(row).collect();
    for cell in cells.iter_mut().flatten().filter(|_| random.below(6) == 0).collect::<Vec<_>>() {
        *cell = match random.below(4) {
            0 => None,
            1 => {
                let length = random.below(40);
                Some(random.bytes(length))
            }
            _ => cell.take().map(|cell| spoilt(random, cell)),
        };
    }
    let body = speak::rows(&columns, &cells, None);
    if random.below(4) == 0 { spoilt(random, body) } else { body }
}

fn old_peer(id: u128, rpc: &str, address: &str) -> Columns {
    let mut columns = member(id, &["3"]);
    for (name, address) in [("rpc_address", rpc), ("peer", address)] {
        columns.push((name, Type::Inet, Value::Inet(address.parse().unwrap())));
    }
    columns
}

fn keyspace(name: &str, replication: &[(&str, &str)]) -> Columns {
    let replication = replication.iter().map(|(key, value)| (text(key), text(value))).collect();
    let kind = Type::Map(Box::new((Type::Text, Type::Text)));
    vec![("keyspace_name", Type::Text, text(name)), ("replication", kind, Value::Map(replication))]
}

/// CQ-12 PL-177
#[tokio::test(start_paused = true)]
async fn cq_12_any_reported_cluster_is_usable_or_a_typed_error() {
    let (mut whole, mut fewer, mut errors) = (0, 0, 0);
    for seed in Seeds::new(400) {
        let random = &mut Random(seed.number());
        let old = random.below(2) == 0;
        let local = spoilt_table(random, &[local(1)]);
        let peers = spoilt_table(random, &[peer(2, &["1", "-9"], "10.0.0.2", 19042), peer(3, &["2"], "10.0.0.3", 0)]);
        let old_peers =
            spoilt_table(random, &[old_peer(2, "10.0.0.2", "10.1.0.2"), old_peer(3, "0.0.0.0", "10.1.0.3")]);
        let simple = [("class", "org.apache.cassandra.locator.SimpleStrategy"), ("replication_factor", "2")];
        let network = [("class", "NetworkTopologyStrategy"), ("north", "3/1")];
        let spaces = spoilt_table(random, &[keyspace("one", &simple), keyspace("two", &network)]);
        let script = Script::new(move |received| {
            let asked = String::from_utf8_lossy(&received.body);
            Reply::Answer(
                opcode::RESULT,
                match () {
                    () if asked.contains("system.local") => local.clone(),
                    () if asked.contains("peers_v2") && old => return refuse(0x2200, Body::new()),
                    () if asked.contains("peers_v2") => peers.clone(),
                    () if asked.contains("system.peers") => old_peers.clone(),
                    () => spaces.clone(),
                },
            )
        });
        let (client, server) = tokio::io::duplex(1 << 16);
        let server = tokio::spawn(script.serve(server));
        let on = over(client, &settings(Version::V4, Compression::None)).await.unwrap();
        let by = Instant::now() + PATIENCE;
        let dialled = ([10, 0, 0, 1], 9042).into();
        match Topology::ask(&on, dialled, by).await {
            Err(error) => {
                assert!(error.to_string().starts_with("server "), "{error}");
                errors += 1;
            }
            Ok(topology) => {
                let members = &topology.members;
                let ids: BTreeSet<_> = members.iter().map(|member| member.id).collect();
                assert_eq!(ids.len(), members.len(), "each is there once");
                for member in members {
                    assert!(!member.address.ip().is_unspecified() && member.address.port() > 0, "{member:?}");
                    assert!(!topology.is_murmur3() || !member.tokens.is_empty(), "{member:?}");
                }
                *(if members.len() == 3 { &mut whole } else { &mut fewer }) += 1;
                let ring = Ring::new(members.iter().map(|member| (member.place.clone(), member.tokens.clone())));
                for strategy in keyspaces(&on, by).await.unwrap_or_default().values() {
                    let replicas = ring.replicas(strategy, Token(random.next().cast_signed()));
                    assert!(replicas.iter().all(|server| *server < members.len()));
                    assert_eq!(replicas.iter().collect::<BTreeSet<_>>().len(), replicas.len());
                }
            }
        }
        server.abort();
    }
    assert!(Seeds::are_chosen() || whole > 20 && fewer > 20 && errors > 20, "{whole} {fewer} {errors}");
}
