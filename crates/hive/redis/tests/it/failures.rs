//! Failures of the server, and the errors that users see.

use std::time::Duration;

use honeyflow_hive::{Hive, HiveStore, NodeId, Reply, Request};
use honeyflow_hive_redis::{Options, RedisHive};
use honeyflow_runtime::{Class, Failure};
use honeyflow_services::throwaway_redis;
use uuid::Uuid;

use crate::{
    proxy::Proxy,
    server::{self, Node, options},
};

const LEASE: &str = "shard/x/0";

async fn joining(options: &Options) -> Failure {
    let hive = RedisHive::open(options).expect("opening contacts no server");
    hive.call(server::join(NodeId(Uuid::new_v4()))).await.expect_err("not joined")
}

/// HV-40: a server that evicts keys when its memory is full is refused, at the first connection and later.
#[tokio::test]
async fn evicted_lease() {
    let Some(redis) = throwaway_redis() else { return };
    let evicts = async |policy| server::send_command(redis.url(), &["CONFIG", "SET", "maxmemory-policy", policy]).await;
    let watchful = Options { check_every: Duration::ZERO, ..options(redis.url(), "x") };
    let node = Node::join(RedisHive::open(&watchful).unwrap()).await;
    let epoch = node.take(LEASE).await;
    evicts("allkeys-lru").await;
    let store = std::sync::Arc::new(RedisHive::open(&watchful).unwrap());
    let failure = Hive::join(store, honeyflow_hive::Options::named("late").fast()).await.err().expect("refused");
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "evicting-server"));
    for part in ["allkeys-lru", "noeviction", "127.0.0.1"] {
        assert!(failure.message.contains(part), "{part} in {failure}");
    }
    for request in [node.beating(false), node.beating(true), Request::View] {
        let failure = node.hive.call(request).await.expect_err("under way");
        assert_eq!(failure.code, "evicting-server");
    }
    evicts("noeviction").await;
    assert!(node.beat().await.member, "after the setting is corrected, the hive works again");
    // Even if the server had evicted the epochs meanwhile, the next epoch would be higher.
    server::send_command(redis.url(), &["DEL", "{hive:x}:epoch"]).await;
    node.call(Request::Leave { node: node.id }).await;
    let next = Node::join(server::open(redis.url(), "x")).await;
    assert!(next.take(LEASE).await > epoch);
}

/// HV-23, HV-33: the server loses everything while connections stay open.
#[tokio::test]
async fn flushall_lowers_epoch() {
    let Some(redis) = throwaway_redis() else { return };
    let node = Node::join(server::open(redis.url(), "x")).await;
    let epoch = node.take(LEASE).await;
    server::send_command(redis.url(), &["FLUSHALL"]).await;
    let status = node.beat().await;
    assert!(!status.member && status.head.lineage.is_none(), "{status:?}");
    let next = Node::join(server::open(redis.url(), "x")).await;
    assert!(next.is_early(LEASE).await, "the old holder may not know yet");
    assert!(next.take(LEASE).await > epoch, "after the wait");
}

/// The same with a server that was restarted empty.
#[tokio::test]
async fn hv_23_an_empty_restart_is_a_new_lineage() {
    let Some(mut redis) = throwaway_redis() else { return };
    let node = Node::join(server::open(redis.url(), "x")).await;
    let epoch = node.take(LEASE).await;
    let before = node.head().await.server;
    redis.restart_empty().unwrap();
    let broken = node.hive.call(node.beating(false)).await;
    assert!(broken.is_err_and(|failure| failure.class == Class::Retry), "its connection is gone");
    let status = node.beat().await;
    assert!(!status.member && status.head.server != before, "{status:?}");
    let next = Node::join(server::open(redis.url(), "x")).await;
    assert!(next.is_early(LEASE).await);
    assert!(next.take(LEASE).await > epoch);
}

/// HV-10: a connection that missed a deadline is dropped, so that a late answer on it cannot confuse a later request.
#[tokio::test]
async fn hv_10_a_connection_that_missed_its_deadline_is_dropped() {
    let Some(redis) = throwaway_redis() else { return };
    let node = Node::join(server::open(redis.url(), "x")).await;
    let watching = server::connection(redis.url()).await;
    let connections = async || -> u64 {
        let said: String = server::ask(&watching, redis::cmd("INFO").arg("stats")).await;
        let made = said.lines().find_map(|line| line.strip_prefix("total_connections_received:"));
        made.unwrap().trim().parse().unwrap()
    };
    let before = connections().await;
    let beats = node.view().await.nodes[0].beat;
    redis.pause();
    // The caller no longer waits; the server may still execute the heartbeat when it continues.
    let unanswered = tokio::time::timeout(Duration::from_millis(200), node.hive.call(node.beating(false))).await;
    assert!(unanswered.is_err());
    redis.resume();
    assert!(node.beat().await.renewed, "over a new connection");
    let landed = node.view().await.nodes[0].beat - beats;
    assert!((1..=2).contains(&landed), "sent once, and at most once more by us: {landed}");
    assert_eq!(connections().await, before + 1, "one was dropped, one was made");
}

/// The error of a request that is not answered in time says that the outcome is unknown.
#[tokio::test]
async fn hv_36_an_unanswered_request_is_not_repeated() {
    let Some(redis) = throwaway_redis() else { return };
    let hurried = Options { timeout: Duration::from_millis(200), ..options(redis.url(), "x") };
    let node = Node::join(RedisHive::open(&options(redis.url(), "x")).unwrap()).await;
    let take = node.taking(LEASE, true).await;
    let hasty = RedisHive::open(&hurried).unwrap();
    // After this, its connection is open.
    while hasty.call(Request::Tally).await.is_err() {}
    let before = node.view().await.nodes[0].beat;
    redis.pause();
    let failure = hasty.call(node.beating(false)).await.expect_err("paused");
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-answer"), "{failure}");
    assert!(failure.message.contains("unknown"), "{failure}");
    redis.resume();
    while node.hive.call(node.beating(true)).await.is_err() {}
    let beats = node.view().await.nodes[0].beat - before;
    assert!((1..=2).contains(&beats), "it may have landed, once: {beats}");
    assert!(matches!(node.call(take).await, Reply::Taken(_)));
}

/// HV-67: a connection that takes longer to open than its caller waits serves the next request.
#[tokio::test]
async fn hv_67_a_connection_outlives_the_request_it_was_made_for() {
    let Some(redis) = honeyflow_services::redis() else { return };
    let port = redis.url.trim_end_matches('/').rsplit_once(':').expect("a port").1.parse().expect("a port");
    let far = Proxy::slow(port, Duration::from_millis(400)).await;
    let hive = server::open(&far.url, &server::fresh_name("far"));
    for _ in 0..40 {
        if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(150), hive.call(Request::Tally)).await {
            return;
        }
    }
    panic!("every request opened a new connection");
}

/// At most 256 requests wait; further ones are refused.
#[tokio::test]
async fn a_storm_of_requests_is_turned_away() {
    let Some(redis) = throwaway_redis() else { return };
    let hurried = Options { timeout: Duration::from_secs(1), ..options(redis.url(), "x") };
    let node = Node::join(RedisHive::open(&hurried).unwrap()).await;
    redis.pause();
    let storm = (0..300).map(|_| node.hive.call(Request::Tally));
    let failures = futures_util::future::join_all(storm).await.into_iter().map(|reply| reply.unwrap_err().code);
    let busy = failures.filter(|code| code == "hive-busy").count();
    assert_eq!(busy, 300 - 256);
    redis.resume();
    while node.hive.call(Request::Tally).await.is_err() {}
}

/// HV-22: other data have filled the server's memory; it still accepts the few bytes of a heartbeat.
#[tokio::test]
async fn hv_22_a_full_server_ends_no_terms() {
    let Some(redis) = throwaway_redis() else { return };
    let node = Node::join(server::open(redis.url(), "x")).await;
    server::send_command(redis.url(), &["CONFIG", "SET", "maxmemory", "1"]).await;
    let connection = server::connection(redis.url()).await;
    let full = redis::cmd("SET").arg("theirs").arg("x").query_async::<()>(&mut connection.clone()).await;
    assert_eq!(full.expect_err("it is full").code(), Some("OOM"));
    assert!(node.beat().await.renewed);
    let epoch = node.take(LEASE).await;
    assert_eq!(node.look(LEASE).await.epoch, epoch);
}

#[tokio::test]
async fn a_server_that_is_down_is_reported() {
    let Some(mut redis) = throwaway_redis() else { return };
    let url = redis.url().replace("redis://", "redis://me:secret@");
    redis.stop();
    let failure = joining(&options(&url, "x")).await;
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-connection"), "{failure}");
    for part in ["join the hive", &redis.port().to_string(), "is the server up"] {
        assert!(failure.message.contains(part), "{part} in {failure}");
    }
    assert!(!failure.message.contains("secret"), "{failure}");
    // A hive that was opened while the server was down works when the server is up.
    let hive = server::open(redis.url(), "x");
    assert!(hive.call(Request::View).await.is_err());
    redis.start().unwrap();
    assert!(hive.call(Request::View).await.is_ok());
}

#[tokio::test]
async fn a_wrong_password_is_reported_at_once() {
    let Some(redis) = throwaway_redis() else { return };
    server::send_command(redis.url(), &["CONFIG", "SET", "requirepass", "right"]).await;
    for given in ["", "wrong"] {
        let url = if given.is_empty() { redis.url().to_owned() } else { redis.url().replace("//", "//:wrong@") };
        let failure = joining(&options(&url, "x")).await;
        assert_eq!((failure.class, &*failure.code), (Class::Fatal, "access-denied"), "{failure}");
        assert!(failure.message.contains("password") && !failure.message.contains("wrong@"), "{failure}");
    }
    let right = redis.url().replace("//", "//:right@");
    assert!(server::open(&right, "x").call(Request::View).await.is_ok());
}

/// A user with exactly the rights that the error message names can use the hive.
#[tokio::test]
async fn the_rights_in_the_message_are_enough() {
    let Some(redis) = throwaway_redis() else { return };
    let rights = |rights: &[&'static str]| [&["ACL", "SETUSER", "bee", "reset", "on", ">sting"], rights].concat();
    server::send_command(redis.url(), &rights(&["~{hive:*", "+@read"])).await;
    let url = redis.url().replace("//", "//bee:sting@");
    let failure = joining(&options(&url, "x")).await;
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "no-privilege"), "{failure}");
    let named = "~{hive:* +@scripting +@read +@write +info +time +wait";
    assert!(failure.message.contains(named), "{failure}");
    let enough: Vec<&str> = named.split(' ').collect();
    server::send_command(redis.url(), &rights(&enough)).await;
    let node = Node::join(server::open(&url, "x")).await;
    node.take(LEASE).await;
    node.call(Request::Leave { node: node.id }).await;
}

#[tokio::test]
async fn a_key_that_is_used_otherwise_is_reported() {
    let Some(redis) = throwaway_redis() else { return };
    server::send_command(redis.url(), &["SET", "{hive:x}:view", "mine"]).await;
    let failure = joining(&options(redis.url(), "x")).await;
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "key-taken"), "{failure}");
}
