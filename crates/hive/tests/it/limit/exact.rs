//! Tests of limits for which the store decides, of calendar quotas and of slots.

use std::time::Duration;

use futures_util::FutureExt;
use honeyflow_hive::{
    contract::Request,
    limit::{Definition, Reason, all},
};

use super::{LATE, Node, SOON, Store, WELL, node, ready_limit, until};

/// Lets the node join the hive: only members can hold slots.
fn join(store: &Store, node: &Node) {
    store.ask(Request::Join {
        node: node.id,
        name: "n".into(),
        heartbeat_ms: 2000,
        ttl_ms: 6000,
        meta: "{}".to_owned(),
    });
}

/// HV-65: a limit of three an hour admits three, on whichever node the requests arrive.
#[tokio::test]
async fn replica_answers_under_limit() {
    let store = Store::new();
    let nodes = [node(&store), node(&store), node(&store)];
    let mut admitted = 0;
    for node in &nodes {
        let limit = node.limit("mail", "3/h");
        ready_limit(&limit).await;
        for _ in 0..3 {
            admitted += u32::from(limit.key("a").try_take(1).await.is_ok());
        }
    }
    assert_eq!(admitted, 3);
}

/// HV-65: used permits stay used when nodes start and stop.
#[tokio::test]
async fn long_window_lost_on_rollout() {
    let store = Store::new();
    for round in 0..3 {
        let node = node(&store);
        let limit = node.limit("mail", "3/h");
        ready_limit(&limit).await;
        let verdict = limit.key("a").try_take(3).await.map(|_| ());
        assert_eq!(verdict.is_ok(), round == 0, "{verdict:?}");
    }
}

/// HV-60: a rate per hour does not fill up at the start of a full hour.
#[tokio::test]
async fn double_burst_at_window_edge() {
    let store = Store::new();
    let (before, after) = (node(&store), node(&store));
    let limit = before.limit("mail", "3/h");
    ready_limit(&limit).await;
    // To just before a full hour of hive time, then just after it.
    let hour = Duration::from_secs(3600);
    store.pass(hour - Duration::from_millis(200_000_000_000 % 3_600_000) - Duration::from_secs(5));
    assert!(limit.key("a").try_take(3).await.is_ok());
    store.pass(Duration::from_secs(10));
    let limit = after.limit("mail", "3/h");
    ready_limit(&limit).await;
    let denied = limit.key("a").try_take(1).await.map(|_| ()).expect_err("all three are used");
    assert_eq!(denied.reason, Reason::Exhausted);
    let minutes = denied.retry_after.as_secs_f64() / 60.0;
    assert!((19.0..=20.0).contains(&minutes), "a third of an hour, less what has passed: {minutes}");
}

/// HV-65: a refusal is remembered, and until it ends the store is not asked again.
#[tokio::test]
async fn hv_65_a_remembered_refusal_does_not_ask_the_store() {
    let store = Store::new();
    let node = node(&store);
    let limit = node.limit("mail", "3/h");
    ready_limit(&limit).await;
    limit.key("a").try_take(3).await.expect("all three");
    assert!(limit.key("a").try_take(1).await.is_err());
    let calls = store.calls();
    for _ in 0..100 {
        let verdict = limit.key("a").try_take(1).now_or_never().expect("at once").map(|_| ());
        assert_eq!(verdict.expect_err("remembered").reason, Reason::Exhausted);
    }
    assert_eq!(store.calls(), calls);
}

/// HV-65: permits that the store took for requests that had been refused by then go back.
#[tokio::test]
async fn hv_65_permits_that_no_request_waited_for_go_back() {
    let store = Store::new();
    let node = node(&store);
    let limit = node.limit("mail", "3/h");
    until("the store knows it", || limit.terms().version > 0).await;
    store.be(LATE);
    let key = limit.key("a");
    let verdicts = futures_util::future::join_all((0..3).map(|_| key.try_take(1))).await;
    for verdict in verdicts {
        assert_eq!(verdict.map(|_| ()).expect_err("too late").reason, Reason::StoreSilent);
    }
    store.be(WELL);
    until("the permits come back", || store.issued("mail") == 0).await;
    limit.key("a").try_take(3).await.expect("all three");
}

/// HV-70: permits of several limits go back, too, if the caller has gone before all were taken.
#[tokio::test]
async fn hv_70_permits_taken_for_a_caller_who_has_gone_go_back() {
    let store = Store::new();
    let node = node(&store);
    let limits = ["left", "right"].map(|name| node.limit(name, "3/h"));
    let slots = node.limits.define(&Definition::slots("workers", 2)).unwrap();
    let pool = node.limit("api", "600/min burst 600");
    join(&store, &node);
    until("the store knows them", || limits.iter().chain([&slots, &pool]).all(|limit| limit.terms().version > 0)).await;
    store.be(LATE);
    let wanted = [(limits[0].whole(), 2), (limits[1].whole(), 1), (slots.whole(), 2), (pool.whole(), 300)];
    tokio::select! {
        _ = all(&wanted) => panic!("it was answered before the caller had gone"),
        () = until("the permits were taken", || store.issued("left") == 2) => {}
    }
    until("the permits come back", || store.issued("left") + store.issued("right") == 0).await;
    assert!(slots.whole().take(2, SOON).await.is_ok());
    assert!(pool.whole().take_local(300).is_some(), "the permits are local again");
}

/// HV-65: the quota of a month is available again in the next month, not before.
#[tokio::test]
async fn hv_65_a_calendar_quota_is_full_again_in_the_next_month() {
    let store = Store::new();
    let node_one = node(&store);
    let limit = node_one.limit("export", "5/month");
    assert!(limit.key("a").take(5, SOON).await.is_ok());
    let denied = limit.key("a").try_take(1).await.map(|_| ()).expect_err("used up");
    assert!(denied.retry_after > Duration::from_secs(3600));
    store.pass(denied.retry_after + Duration::from_secs(1));
    let node_two = node(&store);
    let limit = node_two.limit("export", "5/month");
    assert!(limit.key("a").take(5, SOON).await.is_ok(), "a new month");
}

/// HV-68: all nodes together use as many slots as the limit has, and a dropped permit gives its slots back.
#[tokio::test]
async fn hv_68_two_nodes_share_the_slots() {
    let store = Store::new();
    let nodes = [node(&store), node(&store)];
    let mut limits = Vec::new();
    for node in &nodes {
        join(&store, node);
        limits.push(node.limits.define(&Definition::slots("workers", 3)).unwrap());
    }
    let first = limits[0].take(2, SOON).await.expect("two of three");
    let second = limits[1].take(1, SOON).await.expect("the third").into_owned();
    let denied = limits[1].try_take(1).await.map(|_| ()).expect_err("none left");
    assert_eq!(denied.reason, Reason::Exhausted);
    drop(first);
    let third = limits[1].take(2, SOON).await.expect("idle slots go back to the store, and from there to another node");
    drop((second, third));
    store.ask(Request::Leave { node: nodes[1].id });
    assert!(limits[0].take(3, SOON).await.is_ok(), "the slots of a node that left are free");
}

/// HV-68: `try_take` does not wait for slots that another node holds, but once that node has given them back it gets
/// them.
#[tokio::test]
async fn hv_68_try_take_gets_slots_that_another_node_no_longer_uses() {
    let store = Store::new();
    let nodes = [node(&store), node(&store)];
    let mut limits = Vec::new();
    for node in &nodes {
        join(&store, node);
        limits.push(node.limits.define(&Definition::slots("door", 3)).unwrap());
    }
    ready_limit(&limits[0]).await;
    let begun = std::time::Instant::now();
    let first = loop {
        match limits[0].try_take(3).await {
            Ok(permit) => break permit,
            Err(denied) => assert!(begun.elapsed() < SOON, "{denied}"),
        }
    };
    assert!(limits[1].try_take(1).await.is_err(), "all slots are in use");
    drop(first);
    let second = loop {
        match limits[1].try_take(3).await {
            Ok(permit) => break permit,
            Err(denied) => assert!(begun.elapsed() < SOON, "{denied}"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    assert_eq!((store.issued("door"), second.cost()), (3, 3));
}

/// HV-68: slots that were taken together can be given back one by one.
#[tokio::test]
async fn hv_68_slots_are_taken_together_and_come_back_one_by_one() {
    let store = Store::new();
    let node = node(&store);
    join(&store, &node);
    let limit = node.limits.define(&Definition::slots("workers", 3)).unwrap();
    let other = limit.take(1, SOON).await.expect("one of three");
    let mut both = limit.whole().take_up_to(9, SOON).await.expect("the others");
    assert_eq!((both.cost(), limit.snapshot().slots), (2, Some((3, 3))));
    let one = both.split(1);
    assert_eq!((one.cost(), both.cost(), limit.snapshot().slots), (1, 1, Some((3, 3))));
    drop(one);
    assert_eq!(limit.snapshot().slots, Some((2, 3)));
    let again = limit.whole().take_up_to(9, SOON).await.expect("the slot that came back");
    assert_eq!(again.cost(), 1);
    drop((other, both, again));
    assert_eq!(limit.snapshot().slots, Some((0, 3)));
}

/// HV-68: when a rate becomes a concurrency limit, the permits that it issued do not count as held slots.
#[tokio::test]
async fn hv_68_a_rate_can_become_a_concurrency_limit() {
    let store = Store::new();
    let before = node(&store);
    let rate = before.limit("api", "3/h");
    assert!(rate.take(3, SOON).await.is_ok());
    assert_eq!(store.issued("api"), 3);
    let after = node(&store);
    join(&store, &after);
    let slots = after.limits.define(&Definition::slots("api", 2)).unwrap();
    let held = slots.take(2, SOON).await.expect("no node holds a slot");
    assert_eq!(store.issued("api"), 5, "the two slots, and the three permits issued before");
    drop(held);
}
