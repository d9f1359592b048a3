//! Tests of pool mode through the whole service.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::FutureExt;
use honeyflow_hive::limit::{self, Class, Definition, Reason};

use super::{LOST_ANSWER, SOON, Store, WELL, node, ready_limit, until};

/// HV-60, HI-7: two nodes that take all they can admit together at most rate × time + burst.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hi_7_two_nodes_together_keep_to_the_limit() {
    let store = Store::new();
    let nodes = [node(&store), node(&store)];
    let limits = [nodes[0].limit("api", "2000/s"), nodes[1].limit("api", "2000/s")];
    ready_limit(&limits[0]).await;
    ready_limit(&limits[1]).await;
    let begun = Instant::now();
    let tasks = limits.clone().map(|limit| {
        tokio::spawn(async move {
            let mut admitted = 0;
            while begun.elapsed() < Duration::from_millis(700) {
                match limit.try_take(1).await {
                    Ok(_) => admitted += 1,
                    Err(denied) => {
                        // On a busy machine the drawing task may be too late for a request, which is not an error here.
                        assert!(matches!(denied.reason, Reason::Exhausted | Reason::StoreSilent), "{denied}");
                        tokio::task::yield_now().await;
                    }
                }
            }
            admitted
        })
    });
    let mut admitted = 0;
    for task in tasks {
        admitted += task.await.unwrap();
    }
    let allowed = 2000.0 * begun.elapsed().as_secs_f64() + 400.0;
    assert!(f64::from(admitted) <= allowed, "{admitted} of {allowed}");
    assert!(admitted > 400, "and much of the limit is used: {admitted}");
}

/// HV-69, HV-74: `take` waits for permits where `try_take` refuses.
#[tokio::test]
async fn hv_74_take_waits_where_try_take_refuses() {
    let store = Store::new();
    let node = node(&store);
    let limit = node.limit("api", "100/s");
    ready_limit(&limit).await;
    let denied = loop {
        if let Err(denied) = limit.try_take(1).await {
            break denied;
        }
    };
    assert_eq!((denied.reason, &*denied.limit), (Reason::Exhausted, "api"));
    assert!(denied.retry_after > Duration::ZERO);
    for _ in 0..15 {
        limit.take(1, SOON).await.expect("a permit becomes available");
    }
    while limit.whole().take_local(1).is_some() {}
    let denied = limit.take(1, Duration::ZERO).await.map(|_| ()).expect_err("no time to wait");
    assert_eq!(denied.reason, Reason::Deadline);
}

/// HV-69
#[tokio::test]
async fn hv_69_more_than_half_the_burst_is_an_error_at_once() {
    let store = Store::new();
    let node = node(&store);
    let limit = node.limit("api", "1000/s");
    ready_limit(&limit).await;
    let denied = limit.take(101, SOON).await.map(|_| ()).expect_err("never");
    assert_eq!(denied.reason, Reason::CostTooHigh);
    assert!(limit.take(100, SOON).await.is_ok());
    assert!(limit.try_take(0).await.is_ok(), "a cost of 0 is always met");
}

/// HV-75: permits that were reserved and not used can be taken by other requests.
#[tokio::test]
async fn hv_75_a_reservation_gives_back_what_it_did_not_use() {
    let store = Store::new();
    let node = node(&store);
    // Batches of this limit live for half an hour, so that none expires in this test.
    let limit = node.limit("api", "1000/h");
    ready_limit(&limit).await;
    let reserved = limit.key("a").reserve(400).await.expect("there");
    assert_eq!(reserved.max(), 400);
    reserved.commit(100);
    assert_eq!(limit.key("a").peek().left, 300);
    let permit = limit.key("a").take_local(300).expect("the permits that came back");
    assert!(limit.key("a").take_local(1).is_none());
    permit.refund(999);
    assert_eq!(limit.key("a").peek().left, 300, "a refund of no more than its cost");
}

/// The permit of a request that was dropped while it waited goes to the next request.
#[tokio::test]
async fn a_permit_for_a_dropped_request_goes_back() {
    let store = Store::new();
    let node = node(&store);
    let limit = node.limit("api", "1000/h");
    ready_limit(&limit).await;
    store.be(super::SILENT);
    let waiting = limit.key("a").take(100, SOON);
    assert!(waiting.now_or_never().is_none(), "polled once, then dropped");
    store.be(super::WELL);
    limit.key("a").take(100, SOON).await.expect("the store has 500");
    until("the first hundred are back", || limit.key("a").peek().left == 100).await;
}

/// HV-70: if the second limit refuses, nothing is taken from the first.
#[tokio::test]
async fn refusal_still_counts_elsewhere() {
    let store = Store::new();
    let node = node(&store);
    let (wide, narrow) = (node.limit("wide", "1000/h"), node.limit("narrow", "20/h"));
    let (day, hour) = (node.limit("day", "3/day"), node.limit("hour", "2/h"));
    for limit in [&wide, &narrow, &day, &hour] {
        ready_limit(limit).await;
    }
    let (wide, narrow) = (wide.key("a"), narrow.key("a"));
    limit::all(&[(wide, 100), (narrow, 8)]).await.expect("both have it");
    let left = wide.peek().left;
    let denied =
        limit::all(&[(wide, 100), (narrow, 8)]).await.map(|_| ()).expect_err("the narrow limit has only two left");
    assert_eq!(&*denied.limit, "narrow");
    assert!(wide.peek().left >= left, "{} of {left} left", wide.peek().left);
    // Exact limits are decided in one operation.
    let (day, hour) = (day.key("a"), hour.key("a"));
    let taken = limit::all(&[(day, 2), (hour, 2)]).await.expect("both have it");
    assert_eq!(taken.iter().map(limit::Permit::cost).collect::<Vec<_>>(), [2, 2]);
    let denied = limit::all(&[(day, 1), (hour, 1)]).await.map(|_| ()).expect_err("the hour is used up");
    assert_eq!((&*denied.limit, denied.reason), ("hour", Reason::Exhausted));
    assert!(day.try_take(1).await.is_ok(), "the third permit of the day is still available");
}

/// HV-76: there is one set of metrics per limit, independent of the number of keys.
#[tokio::test]
async fn metric_per_key() {
    let store = Store::new();
    let node = node(&store);
    let limit = node.limit("api", "100000/s");
    ready_limit(&limit).await;
    for n in 0..500 {
        limit.key(&format!("client-{n}")).take(1, SOON).await.expect("there");
    }
    let snapshots = node.limits.snapshots();
    assert_eq!(snapshots.len(), 1);
    assert_eq!(snapshots[0].denied.len(), limit::counters::REASONS.len());
    assert!(snapshots[0].admitted >= 500 && snapshots[0].keys >= 500, "{snapshots:?}");
}

/// HV-72: keys beyond the bound share the permits of one key.
#[tokio::test]
async fn hv_72_keys_beyond_the_bound_share_one_bucket() {
    let store = Store::new();
    let node = node(&store);
    let definition = Definition::parse("api", "1000/h").unwrap().keys_max(2);
    let limit = node.limits.define(&definition).unwrap();
    ready_limit(&limit).await;
    for key in ["a", "b", "c", "d"] {
        let permit = limit.key(key).take(10, SOON).await.expect("there");
        // Some permits stay local, so that the key is not idle.
        permit.refund(5);
    }
    let snapshot = limit.snapshot();
    assert!(snapshot.keys <= 2 && snapshot.overflowed > 0, "{snapshot:?}");
}

/// HV-71: a change comes into force on every node, and no permits of the old limit remain.
#[tokio::test]
async fn hv_71_a_change_reaches_every_node() {
    use honeyflow_hive::contract::{Request, limit as ledger};
    let store = Store::new();
    let nodes = [node(&store), node(&store)];
    let limits: Vec<_> = nodes.iter().map(|node| node.limit("api", "1000/h")).collect();
    for limit in &limits {
        ready_limit(limit).await;
        limit.key("a").take(10, SOON).await.unwrap().refund(10);
        assert_eq!(limit.key("a").peek().left, 10);
    }
    let was = Some(limits[0].terms().version);
    let rule = ledger::Rule::rate(100, 3_600_000, 100);
    store.ask(Request::Limit(ledger::Request::Set { limit: "api".into(), was, rule, after_ms: 0 }));
    nodes.iter().for_each(|node| node.limits.on_limits_version(u64::MAX));
    for limit in &limits {
        until("the new version", || limit.terms().burst == 100 && Some(limit.terms().version) > was).await;
        assert!(limit.key("a").take_local(1).is_none(), "permits drawn under the higher limit are void");
    }
    let burst = limits[0].key("b").take(51, SOON).await.map(|_| ()).expect_err("half the burst is 50 now");
    assert_eq!(burst.reason, Reason::CostTooHigh);
}

/// HV-71: after a node has set the limit, a later change by an operator stays, even if the node lost the answer.
#[tokio::test]
async fn hv_71_after_a_lost_answer_a_node_does_not_overwrite_a_later_change() {
    use honeyflow_hive::{
        contract::{Reply, Request, limit as ledger},
        limit::service::change::declared_name,
    };
    let stored = |store: &Store, name: &str| match store.ask(Request::Limit(ledger::Request::Limits)) {
        Reply::Limit(ledger::Reply::Limits { limits, .. }) => limits.into_iter().find(|limit| *limit.name == *name),
        other => panic!("{other:?}"),
    };
    let store = Store::new();
    store.be(LOST_ANSWER);
    let node = node(&store);
    let limit = node.limit("api", "1000/h");
    until("the node sees that the limit is stored", || {
        node.limits.on_limits_version(u64::MAX);
        limit.terms().version > 0
    })
    .await;
    let rule = ledger::Rule::rate(100, 3_600_000, 100);
    let was = Some(limit.terms().version);
    store.ask(Request::Limit(ledger::Request::Set { limit: "api".into(), was, rule, after_ms: 0 }));
    store.be(WELL);
    until("its declaration is recorded", || {
        node.limits.on_limits_version(u64::MAX);
        stored(&store, &declared_name("api")).is_some()
    })
    .await;
    let api = stored(&store, "api").expect("set");
    assert_eq!(api.next.unwrap_or(api.now).rule, rule);
}

/// HV-69: the higher class is served first.
#[tokio::test]
async fn hv_69_classes_are_served_in_order() {
    let store = Store::new();
    let node = node(&store);
    let limit = Arc::new(node.limit("api", "100/s"));
    ready_limit(&limit).await;
    while limit.try_take(1).await.is_ok() {}
    let (done, mut order) = tokio::sync::mpsc::unbounded_channel();
    for (name, class) in [("low", Class::Low), ("normal", Class::Normal), ("high", Class::High)] {
        let (limit, done) = (limit.clone(), done.clone());
        let queued = limit.clone();
        tokio::spawn(async move {
            queued.whole().take_as(class, 10, SOON).await.expect("in time");
            done.send(name).unwrap();
        });
        tokio::task::yield_now().await;
    }
    let mut names = Vec::new();
    for _ in 0..3 {
        names.push(order.recv().await.unwrap());
    }
    assert_eq!(names, ["high", "normal", "low"]);
}
