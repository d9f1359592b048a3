//! A cluster: the hash tag of a hive maps to one slot, which is on one server.

use honeyflow_hive::{HiveStore, Reply, Request};
use honeyflow_services::{Server, Throwaway, throwaway};

use crate::server::{self, Node};

/// Starts a server. Returns it with the port by which the other servers of its cluster reach it.
fn node() -> Option<(Throwaway, u16)> {
    let bus = server::free_port();
    let arguments = ["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf", "--cluster-port"];
    let server = throwaway(Server::Redis, &[&arguments[..], &[&bus.to_string()]].concat())?;
    Some((server, bus))
}

async fn until_all_slots_known(url: &str) {
    loop {
        let said: String = server::ask(&server::connection(url).await, redis::cmd("CLUSTER").arg("INFO")).await;
        if said.contains("cluster_state:ok") {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// HV-6: with the address of any server of the cluster the hive is found, and its scripts use only its slot.
#[tokio::test]
async fn hv_6_in_a_cluster_the_hive_is_found_on_the_server_of_its_slot() {
    let Some(((here, _), (there, bus))) = node().zip(node()) else { return };
    let slot: u16 =
        server::ask(&server::connection(here.url()).await, redis::cmd("CLUSTER").arg("KEYSLOT").arg("{hive:x}:view"))
            .await;
    // The other server has the hive's slot; this one has all other slots.
    let (below, above) = ((slot - 1).to_string(), (slot + 1).to_string());
    server::send_command(here.url(), &["CLUSTER", "ADDSLOTSRANGE", "0", &below, &above, "16383"]).await;
    server::send_command(there.url(), &["CLUSTER", "ADDSLOTS", &slot.to_string()]).await;
    server::send_command(there.url(), &["CLUSTER", "SET-CONFIG-EPOCH", "2"]).await;
    let (port, bus) = (there.port().to_string(), bus.to_string());
    server::send_command(here.url(), &["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).await;
    until_all_slots_known(here.url()).await;
    until_all_slots_known(there.url()).await;

    let named = |server: &Throwaway| server::open(server.url(), "x");
    let (one, two) = (Node::join(named(&here)).await, Node::join(named(&there)).await);
    assert_eq!(one.view().await.nodes.len(), 2, "the same hive by either address");
    assert_eq!(one.head().await.server, two.head().await.server);
    let epoch = one.take("shard/x/0").await;
    // Removing a node uses keys whose names only the script computes.
    let slots =
        honeyflow_hive::contract::limit::Slots { limit: "calls".into(), key: Default::default(), seq: 1, wants: 2 };
    let set = honeyflow_hive::contract::limit::Request::Set {
        limit: "calls".into(),
        was: None,
        rule: honeyflow_hive::contract::limit::Rule::count(2),
        after_ms: 0,
    };
    two.call(Request::Limit(set)).await;
    let asks = honeyflow_hive::contract::limit::Request::Slots { node: one.id, asks: vec![slots] };
    assert!(matches!(one.call(Request::Limit(asks)).await, Reply::Limit(_)));
    assert_eq!(two.call(Request::Leave { node: one.id }).await, Reply::Done);
    assert!(two.take("shard/x/0").await > epoch);
    let lost = server::open(here.url(), "y");
    assert!(lost.call(Request::View).await.is_ok(), "another hive may be on another server");
}
