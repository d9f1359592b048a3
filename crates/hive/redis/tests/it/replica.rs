//! Replicas: the hive does not read from them, waits for them at transfers of leases, and gives no lease twice after
//! one of them is promoted.

use std::time::Duration;

use honeyflow_event::Epoch;
use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::{Claim, HeldLease, Mint, Refusal, limit},
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

async fn until_replica_follows(primary: &Throwaway, replica: &Throwaway) {
    let said = async |url: &str| -> String {
        server::ask(&server::connection(url).await, redis::cmd("INFO").arg("replication")).await
    };
    while !said(replica.url()).await.contains("master_link_status:up")
        || !said(primary.url()).await.contains("state=online")
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// HV-23, HV-51: a read-only server does not answer reads either; after its promotion it serves.
#[tokio::test]
async fn stuck_on_read_only_server() {
    let Some(primary) = throwaway_redis() else { return };
    let Some(replica) = replica_of(&primary) else { return };
    let node = Node::join(server::open(primary.url(), "x")).await;
    until_replica_follows(&primary, &replica).await;
    // The address leads to the replica, as in the middle of a failover.
    let elsewhere = Node { hive: server::open(replica.url(), "x"), id: node.id };
    for request in [elsewhere.beating(false), elsewhere.beating(true), Request::View, Request::Tally] {
        let failure = elsewhere.hive.call(request.clone()).await.expect_err("a replica has answered");
        assert_eq!((failure.class, &*failure.code), (Class::Retry, "read-only"), "{request:?}: {failure}");
        assert!(failure.message.contains("primary"), "{failure}");
    }
    server::send_command(replica.url(), &["REPLICAOF", "NO", "ONE"]).await;
    let status = elsewhere.beat().await;
    assert!(status.member, "after its promotion it serves the hive that was already open");
    assert_ne!(status.head.lineage.as_deref(), Some(&*status.head.server), "and it is recognised as another server");
}

#[tokio::test]
async fn replica_answers_under_limit() {
    let Some(primary) = throwaway_redis() else { return };
    let Some(replica) = replica_of(&primary) else { return };
    let node = Node::join(server::open(primary.url(), "x")).await;
    let rule = limit::Rule::rate(1, 1_000_000, 10);
    node.call(Request::Limit(limit::Request::Set { limit: "api".into(), was: None, rule, after_ms: 0 })).await;
    until_replica_follows(&primary, &replica).await;
    let elsewhere = server::open(replica.url(), "x");
    let exact = |peek| {
        let take = limit::ExactTake { limit: "api".into(), key: limit::Key(1), cost: 0, window: None };
        Request::Limit(limit::Request::Exact { takes: vec![take], peek })
    };
    let draw = limit::Draw { limit: "api".into(), key: limit::Key(1), want: 1, need: 1, reserve: None };
    let draw = Request::Limit(limit::Request::Draw(vec![draw]));
    for request in [exact(false), exact(true), draw, Request::Limit(limit::Request::Limits)] {
        let failure = elsewhere.call(request.clone()).await.expect_err("a replica has answered");
        assert_eq!(failure.code, "read-only", "{request:?}: {failure}");
    }
}

/// HV-40: with replicas, a transfer of a lease counts when one of them has received it; otherwise the lease is
/// released.
#[tokio::test]
async fn hv_40_a_transfer_of_a_lease_waits_for_a_replica() {
    let Some(primary) = throwaway_redis() else { return };
    let Some(replica) = replica_of(&primary) else { return };
    let node = Node::join(server::open(primary.url(), "x")).await;
    until_replica_follows(&primary, &replica).await;
    let epoch = node.take(LEASE).await;
    replica.pause();
    let claims = vec![Claim::new(LEASE.into(), epoch)];
    let mint = Mint { lineage: node.head().await.server.into(), watched: true };
    let over = Request::HandOver { node: node.id, successor: node.id, claims, cause: "again".into(), mint };
    let failure = node.hive.call(over).await.expect_err("no replica has received it");
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-replica"));
    assert!(failure.message.contains(LEASE) && failure.message.contains("require-replica"), "{failure}");
    let lease = node.look(LEASE).await;
    assert!(lease.free && lease.epoch > epoch, "given back, and the epoch was spent: {lease:?}");
    let careless = Options { require_replica: false, ..options(primary.url(), "x") };
    let careless = Node { hive: RedisHive::open(&careless).unwrap(), id: node.id };
    assert!(careless.take(LEASE).await > lease.epoch, "a hive that does not require a replica takes the lease");
    replica.resume();
}

/// The last take-over is lost with the primary. The node that takes the lease next, on the promoted replica, gets a
/// higher epoch, and not before the lost term has ended.
#[tokio::test]
async fn same_epoch_after_redis_failover() {
    let Some(mut primary) = throwaway_redis() else { return };
    let Some(replica) = replica_of(&primary) else { return };
    let proxy = Proxy::to(primary.port()).await;
    let open = || Node::join(server::open(&proxy.url, "x"));
    let (first, second) = (open().await, open().await);
    until_replica_follows(&primary, &replica).await;
    let known = first.take(LEASE).await;
    // The replica receives nothing after this.
    server::send_command(replica.url(), &["REPLICAOF", "NO", "ONE"]).await;
    first.call(Request::Release { node: first.id, held: held(known), cause: "x".into() }).await;
    // A sink or the clock of the old server was ahead: the epoch is higher than the time of the new server.
    let mint = Mint { lineage: second.head().await.server.into(), watched: true };
    let claims = vec![Claim { floor: Epoch(known.0 + 3_600_000), ..Claim::new(LEASE.into(), known) }];
    let take = Request::Take { node: second.id, claims, cause: "free".into(), mint: mint.clone() };
    let Reply::Taken(taken) = second.call(take).await else { panic!("not taken") };
    let lost = taken[0].epoch;
    primary.kill();
    proxy.lead_to(replica.port());

    let Reply::Beat(status) = call_until_answered(&first, first.beating(false)).await else { panic!("no beat") };
    let status = status.head;
    assert_ne!(status.server, &*mint.lineage);
    assert_eq!(status.lineage.as_deref(), Some(&*mint.lineage), "every heartbeat reports it");
    let row = first.look(LEASE).await;
    assert_eq!((row.epoch, row.holder), (known, Some(first.id)), "the take-over is gone");
    let again = Request::HandOver {
        node: first.id,
        successor: first.id,
        claims: vec![Claim::new(LEASE.into(), known)],
        cause: "again".into(),
        mint: Mint { lineage: mint.lineage.clone(), watched: true },
    };
    let refused = call_until_answered(&first, again).await;
    assert_eq!(refused, Reply::Refused(Refusal::Lineage), "the old lineage may not mint");
    first.records_lineage().await;
    call_until_answered(&second, second.beating(false)).await;
    let release = Request::Release { node: second.id, held: Vec::new(), cause: "x".into() };
    call_until_answered(&second, release).await;
    assert!(second.is_early("shard/x/1").await);
    // A node that has seen the lost epoch reports it. It is not given again, independent of the clocks.
    let lineage = first.head().await.server.into();
    let behind = Request::Behind { lineage, version: 0, leases: held(lost) };
    assert_eq!(second.call(behind).await, Reply::Done);
    let head = second.head().await;
    assert!(head.hold.is_none() && head.wait_ms() > 0, "on Redis it is a new lineage: {head:?}");
    first.call(Request::Leave { node: first.id }).await;
    let next = second.take(LEASE).await;
    assert!(next > lost && next > known, "{next:?} after {lost:?}");
}

fn held(epoch: Epoch) -> Vec<HeldLease> {
    vec![HeldLease { lease: LEASE.into(), epoch }]
}

/// Repeats the request until it reaches the new server: the old connections break first, and the hive does not repeat
/// requests by itself.
async fn call_until_answered(node: &Node, request: Request) -> Reply {
    loop {
        match node.hive.call(request.clone()).await {
            Ok(reply) => return reply,
            Err(failure) => assert_eq!(failure.class, Class::Retry, "{failure}"),
        }
    }
}
