//! Replicas: they answer nothing, they are waited for, and what they have not heard of is not given twice.

use std::time::Duration;

use honeyflow_event::Epoch;
use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::{Claim, Held, Mint, Refusal, limit},
};
use honeyflow_hive_redis::{Options, RedisHive};
use honeyflow_runtime::Class;
use honeyflow_services::{Server, Throwaway, throwaway, throwaway_redis};

use crate::{
    proxy::Proxy,
    server::{self, Node, options},
};

const LEASE: &str = "shard/x/0";

fn replica_of(primary: &Throwaway) -> Option<Throwaway> {
    throwaway(
        Server::Redis,
        &["--replicaof", "127.0.0.1", &primary.port().to_string(), "--repl-diskless-sync-delay", "0"],
    )
}

async fn follows(primary: &Throwaway, replica: &Throwaway) {
    let said = async |url: &str| -> String {
        server::ask(&server::connection(url).await, redis::cmd("INFO").arg("replication")).await
    };
    while !said(replica.url()).await.contains("master_link_status:up")
        || !said(primary.url()).await.contains("state=online")
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// HV-23, HV-51: a server that only reads is no place for questions either; once it is promoted it serves.
#[tokio::test]
async fn stuck_on_read_only_server() {
    let Some(primary) = throwaway_redis() else { return };
    let Some(replica) = replica_of(&primary) else { return };
    let node = Node::join(server::open(primary.url(), "x")).await;
    follows(&primary, &replica).await;
    // The address leads to the replica, as after a failover that is only half done.
    let elsewhere = Node { hive: server::open(replica.url(), "x"), id: node.id };
    for request in [elsewhere.beating(false), elsewhere.beating(true), Request::View, Request::Tally] {
        let failure = elsewhere.hive.call(request.clone()).await.expect_err("a replica has answered");
        assert_eq!((failure.class, &*failure.code), (Class::Retry, "read-only"), "{request:?}: {failure}");
        assert!(failure.message.contains("primary"), "{failure}");
    }
    server::tell(replica.url(), &["REPLICAOF", "NO", "ONE"]).await;
    let status = elsewhere.beat().await;
    assert!(status.member, "promoted, it serves, without anybody opening it anew");
    assert_ne!(status.head.lineage.as_deref(), Some(&*status.head.server), "and is another server");
}

#[tokio::test]
async fn replica_answers_under_limit() {
    let Some(primary) = throwaway_redis() else { return };
    let Some(replica) = replica_of(&primary) else { return };
    let node = Node::join(server::open(primary.url(), "x")).await;
    let rule = limit::Rule::rate(1, 1_000_000, 10);
    node.call(Request::Limit(limit::Request::Set { limit: "api".into(), was: None, rule, after_ms: 0 })).await;
    follows(&primary, &replica).await;
    let elsewhere = server::open(replica.url(), "x");
    let exact = |peek| {
        let take = limit::Exact { limit: "api".into(), key: limit::Key(1), cost: 0, window: None };
        Request::Limit(limit::Request::Exact { takes: vec![take], peek })
    };
    let draw = limit::Draw { limit: "api".into(), key: limit::Key(1), want: 1, need: 1, book: None };
    let draw = Request::Limit(limit::Request::Draw(vec![draw]));
    for request in [exact(false), exact(true), draw, Request::Limit(limit::Request::Limits)] {
        let failure = elsewhere.call(request.clone()).await.expect_err("a replica has answered");
        assert_eq!(failure.code, "read-only", "{request:?}: {failure}");
    }
}

/// HV-40: with replicas, a lease has changed hands once one of them knows; else it is given back.
#[tokio::test]
async fn hv_40_a_change_of_hands_waits_for_a_replica() {
    let Some(primary) = throwaway_redis() else { return };
    let Some(replica) = replica_of(&primary) else { return };
    let node = Node::join(server::open(primary.url(), "x")).await;
    follows(&primary, &replica).await;
    let epoch = node.take(LEASE).await;
    replica.pause();
    let claims = vec![Claim::new(LEASE.into(), epoch)];
    let mint = Mint { lineage: node.head().await.server.into(), watched: true };
    let over = Request::HandOver { node: node.id, heir: node.id, claims, cause: "anew".into(), mint };
    let failure = node.hive.call(over).await.expect_err("nobody knows of it");
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-replica"));
    assert!(failure.message.contains(LEASE) && failure.message.contains("require-replica"), "{failure}");
    let lease = node.look(LEASE).await;
    assert!(lease.free && lease.epoch > epoch, "given back, and the epoch was spent: {lease:?}");
    let careless = Options { require_replica: false, ..options(primary.url(), "x") };
    let careless = Node { hive: RedisHive::open(&careless).unwrap(), id: node.id };
    assert!(careless.take(LEASE).await > lease.epoch, "unless nobody wants it so");
    replica.resume();
}

/// The last take-over is lost with the server that knew of it. Whoever takes the lease next, on the replica that was
/// promoted, gets a higher epoch, and not before what was held has ended.
#[tokio::test]
async fn same_epoch_after_redis_failover() {
    let Some(mut primary) = throwaway_redis() else { return };
    let Some(replica) = replica_of(&primary) else { return };
    let proxy = Proxy::to(primary.port()).await;
    let open = || Node::join(server::open(&proxy.url, "x"));
    let (first, second) = (open().await, open().await);
    follows(&primary, &replica).await;
    let known = first.take(LEASE).await;
    // As far as the replica comes.
    server::tell(replica.url(), &["REPLICAOF", "NO", "ONE"]).await;
    first.call(Request::Release { node: first.id, held: held(known), cause: "x".into() }).await;
    // A sink was ahead, or the clock of the old server was: the epoch lies beyond what the new server's clock says.
    let mint = Mint { lineage: second.head().await.server.into(), watched: true };
    let claims = vec![Claim { floor: Epoch(known.0 + 3_600_000), ..Claim::new(LEASE.into(), known) }];
    let take = Request::Take { node: second.id, claims, cause: "free".into(), mint: mint.clone() };
    let Reply::Taken(taken) = second.call(take).await else { panic!("not taken") };
    let lost = taken[0].epoch;
    primary.kill();
    proxy.lead_to(replica.port());

    let Reply::Beat(status) = reached(&first, first.beating(false)).await else { panic!("no beat") };
    let status = status.head;
    assert_ne!(status.server, &*mint.lineage);
    assert_eq!(status.lineage.as_deref(), Some(&*mint.lineage), "told with every beat");
    let row = first.look(LEASE).await;
    assert_eq!((row.epoch, row.holder), (known, Some(first.id)), "the take-over is gone");
    let anew = Request::HandOver {
        node: first.id,
        heir: first.id,
        claims: vec![Claim::new(LEASE.into(), known)],
        cause: "anew".into(),
        mint: Mint { lineage: mint.lineage.clone(), watched: true },
    };
    let refused = reached(&first, anew).await;
    assert_eq!(refused, Reply::Refused(Refusal::Lineage), "under the lineage that was");
    first.records_lineage().await;
    reached(&second, second.beating(false)).await;
    let release = Request::Release { node: second.id, held: Vec::new(), cause: "x".into() };
    reached(&second, release).await;
    assert!(second.is_early("shard/x/1").await);
    // Whoever saw the epoch says so; it is not given again, whatever the clocks say.
    let lineage = first.head().await.server.into();
    let behind = Request::Behind { lineage, version: 0, leases: held(lost) };
    assert_eq!(second.call(behind).await, Reply::Done);
    let head = second.head().await;
    assert!(head.hold.is_none() && head.wait_ms() > 0, "on Redis it is a new lineage: {head:?}");
    first.call(Request::Leave { node: first.id }).await;
    let next = second.take(LEASE).await;
    assert!(next > lost && next > known, "{next:?} after {lost:?}");
}

fn held(epoch: Epoch) -> Vec<Held> {
    vec![Held { lease: LEASE.into(), epoch }]
}

/// Once the new server is reached: the old connections break first, and what was asked over them is not asked again.
async fn reached(node: &Node, request: Request) -> Reply {
    loop {
        match node.hive.call(request.clone()).await {
            Ok(reply) => return reply,
            Err(failure) => assert_eq!(failure.class, Class::Retry, "{failure}"),
        }
    }
}
