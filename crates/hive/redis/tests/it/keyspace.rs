//! The keys of a hive, and the cost of requests.

use honeyflow_hive::{
    NodeId, Reply, Request,
    contract::limit::{self, Draw, ExactTake, Key, Rule, Slots},
    contract::{HeldLease, Removal},
    member,
};
use uuid::Uuid;

use crate::server::{self, Node};

/// Sends one request of every kind.
async fn everything(node: &Node, dead: NodeId) {
    let limit = |request| Request::Limit(request);
    let term = member::take_as_member(&node.hive, node.id, "queen").await.unwrap();
    let set = limit::Request::Set { limit: "api".into(), was: None, rule: Rule::rate(10, 1000, 10), after_ms: 0 };
    let slot = limit::Request::Set { limit: "calls".into(), was: None, rule: Rule::count(5), after_ms: 0 };
    let exact = || vec![ExactTake { limit: "api".into(), key: Key(2), cost: 0, window: None }];
    let asks = vec![Slots { limit: "calls".into(), key: Key(1), seq: 1, wants: 2 }];
    let held = vec![HeldLease { lease: "queen".into(), epoch: term.epoch() }];
    let bury = vec![Removal { node: dead, beat: 1, silent: true, cause: "test".into() }];
    for request in [
        node.beating(true),
        limit(set),
        limit(slot),
        limit(limit::Request::Draw(vec![Draw { limit: "api".into(), key: Key(1), want: 1, need: 0, reserve: None }])),
        limit(limit::Request::Exact { takes: exact(), peek: false }),
        limit(limit::Request::Refund(exact())),
        limit(limit::Request::Slots { node: dead, asks }),
        limit(limit::Request::Limits),
        limit(limit::Request::Ledger { limit: "api".into(), max: 10 }),
        Request::SetSuccessor { fence: term.fence(), successor: Some(node.id) },
        Request::Count { fence: term.fence(), every_ms: 0, remove: bury },
        Request::Tally,
        Request::Missed { fence: term.fence(), cause: "x".into() },
        Request::Sweep { fence: term.fence(), event_ms: 0, events_max: 1, idle_ms: 0, rows_max: 10 },
        Request::View,
        Request::Events { after: 1, max: 100 },
        Request::History { lease: Some("queen".into()), until_ms: None, max: 10 },
        Request::Mend,
        Request::Release { node: node.id, held, cause: "x".into() },
        Request::Leave { node: dead },
    ] {
        let reply = node.call(request.clone()).await;
        assert!(!matches!(reply, Reply::Stale(_) | Reply::Refused(_)), "{request:?}: {reply:?}");
    }
}

async fn settle(url: &str, hive: &str) {
    server::send_command(url, &["HSET", &format!("{{hive:{hive}}}:view"), "lineage_ms", "0"]).await;
}

/// HV-6: all keys of a hive begin with its name, and no script scans for keys.
#[tokio::test]
async fn keyspace_scan() {
    let Some(redis) = honeyflow_services::throwaway_redis() else { return };
    let (node, dead) =
        (Node::join(server::open(redis.url(), "here")).await, Node::join(server::open(redis.url(), "here")).await);
    settle(redis.url(), "here").await;
    server::send_command(redis.url(), &["CONFIG", "RESETSTAT"]).await;
    everything(&node, dead.id).await;
    let connection = server::connection(redis.url()).await;
    let commands: String = server::ask(&connection, redis::cmd("INFO").arg("commandstats")).await;
    for scan in ["scan", "keys", "randomkey", "dbsize"] {
        assert!(!commands.contains(&format!("cmdstat_{scan}:")), "{scan} in {commands}");
    }
    assert!(commands.contains("cmdstat_evalsha"), "{commands}");
    let keys: Vec<String> = server::ask(&connection, redis::cmd("KEYS").arg("*")).await;
    assert!(keys.len() > 15, "{keys:?}");
    assert!(keys.iter().all(|key| key.starts_with("{hive:here}:")), "{keys:?}");
    let slots: Vec<&String> = keys.iter().filter(|key| key.contains(":slots:")).collect();
    assert!(slots.is_empty(), "the slots of removed nodes were given back: {slots:?}");
}

/// HV-11: the commands of a heartbeat, as the server counts them.
#[tokio::test]
async fn hv_11_a_beat_costs_the_same_with_many_nodes() {
    let Some(redis) = honeyflow_services::throwaway_redis() else { return };
    let node = Node::join(server::open(redis.url(), "here")).await;
    let connection = server::connection(redis.url()).await;
    let mut cost = Vec::new();
    for others in [20, 180] {
        for _ in 0..others {
            node.call(server::join(NodeId(Uuid::new_v4()))).await;
        }
        server::ask::<()>(&connection, redis::cmd("CONFIG").arg("RESETSTAT")).await;
        node.beat().await;
        let said: String = server::ask(&connection, redis::cmd("INFO").arg("commandstats")).await;
        let calls = said.lines().filter_map(|line| line.split_once("calls=")?.1.split(',').next()?.parse::<u64>().ok());
        cost.push(calls.sum::<u64>());
    }
    assert_eq!(cost[0], cost[1], "with 20 others, and with 200");
}

/// If the server has lost the scripts, the hive sends them again.
#[tokio::test]
async fn hv_40_a_forgotten_script_is_sent_again() {
    let Some(redis) = honeyflow_services::throwaway_redis() else { return };
    let node = Node::join(server::open(redis.url(), "here")).await;
    let beat = node.beat().await;
    assert!(beat.member && beat.renewed);
    server::send_command(redis.url(), &["SCRIPT", "FLUSH"]).await;
    assert!(node.beat().await.renewed);
    assert_eq!(node.view().await.nodes[0].beat, 3, "each was done once");
}
