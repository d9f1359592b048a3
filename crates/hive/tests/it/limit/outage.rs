//! Tests in which the store stops to answer and comes back.

use std::time::Duration;

use futures_util::FutureExt;
use honeyflow_hive::limit::{Definition, Limit, OnOutage, Reason};

use super::{BROKEN, Node, SILENT, SOON, Store, WELL, node, ready_limit, until};

async fn cut_off(node: &Node, limit: &Limit) {
    let _ = node;
    // The silence is noticed only if requests ask.
    loop {
        let _ = limit.key("any").try_take(1).await;
        if limit.snapshot().mode != "pool" {
            return;
        }
    }
}

/// HV-64, HV-67: as soon as the breaker is open, no request waits for the store.
#[tokio::test]
async fn store_down_costs_seconds_per_request() {
    for state in [SILENT, BROKEN] {
        let store = Store::new();
        let node = node(&store);
        let limit = node.limit("api", "1000/s");
        ready_limit(&limit).await;
        store.be(state);
        let denied =
            limit.key("a").try_take(1).await.map(|_| ()).expect_err("no local permits, and the store does not answer");
        assert_eq!(denied.reason, Reason::StoreSilent);
        cut_off(&node, &limit).await;
        assert_eq!(limit.snapshot().mode, "safe");
        for _ in 0..100 {
            assert!(limit.key("b").try_take(1).now_or_never().is_some(), "decided at once");
        }
    }
}

/// HV-64: while the store does not answer, the node admits its share of the limit, and afterwards the whole limit
/// again.
#[tokio::test]
async fn hv_64_safe_mode_admits_a_share_and_ends_with_the_outage() {
    let store = Store::new();
    let node = node(&store);
    let limit = node.limit("api", "1000/s");
    ready_limit(&limit).await;
    store.be(BROKEN);
    cut_off(&node, &limit).await;
    until("the share fills", || {
        limit.key("a").take_local(1).is_some()
            || limit.try_take(1).now_or_never().is_some_and(|verdict| verdict.is_ok())
    })
    .await;
    store.be(WELL);
    until("the store is back", || limit.snapshot().mode == "pool").await;
    limit.key("c").take(100, SOON).await.expect("half the burst, which is more than any share's burst");
}

/// HV-64
#[tokio::test]
async fn hv_64_closed_refuses_and_open_admits_during_an_outage() {
    for (on_outage, mode) in [(OnOutage::Closed, "closed"), (OnOutage::Open, "open")] {
        let store = Store::new();
        let node = node(&store);
        let definition = Definition::parse("api", "1000/s").unwrap().on_outage(on_outage);
        let limit = node.limits.define(&definition).unwrap();
        ready_limit(&limit).await;
        store.be(SILENT);
        cut_off(&node, &limit).await;
        assert_eq!(limit.snapshot().mode, mode);
        let verdict = limit.key("x").try_take(1).now_or_never().expect("at once").map(|_| ());
        match on_outage {
            OnOutage::Open => assert_eq!(verdict, Ok(())),
            _ => assert_eq!(verdict.expect_err("closed").reason, Reason::Outage),
        }
    }
}

/// HV-64: requests that wait when the store stops to answer are served from the share.
#[tokio::test]
async fn hv_69_waiters_are_woken_when_the_store_stops_to_answer() {
    let store = Store::new();
    let node = node(&store);
    let limit = node.limit("api", "1000/s");
    ready_limit(&limit).await;
    store.be(SILENT);
    limit.key("a").take(1, SOON).await.expect("from the share, without the store");
    assert_eq!(limit.snapshot().mode, "safe");
}

/// A node that starts while the store is down takes a share by the expected number of nodes, never the whole limit.
#[tokio::test]
async fn hv_30_a_cold_start_without_a_store_takes_the_expected_share() {
    let store = Store::new();
    store.be(BROKEN);
    let node = node(&store);
    node.limits.forget_node_counts();
    let limit = node.limit("api", "160/s");
    cut_off(&node, &limit).await;
    // 160/s over 16 expected nodes: ten a second.
    let begun = std::time::Instant::now();
    let mut admitted = 0;
    while admitted < 5 {
        if limit.try_take(1).await.is_ok() {
            admitted += 1;
        }
        tokio::task::yield_now().await;
    }
    assert!(begun.elapsed().as_secs_f64() * 10.0 + 3.0 >= f64::from(admitted), "not faster than its share");
}

/// A request that waits when the drawing task ends is refused, and so are later requests.
#[tokio::test]
async fn requests_do_not_wait_after_the_drawing_task_has_ended() {
    let store = Store::new();
    let node = node(&store);
    let limit = node.limit("api", "1/h");
    ready_limit(&limit).await;
    let key = limit.key("warm-up");
    let mut waiting = Box::pin(key.take(1, Duration::from_secs(3600)));
    assert!(waiting.as_mut().now_or_never().is_none(), "the limit is used up");
    drop(node);
    let denied = tokio::time::timeout(SOON, waiting)
        .await
        .expect("it hangs")
        .map(|_| ())
        .expect_err("the drawing task has ended");
    assert_eq!(denied.reason, Reason::Outage);
    let later = tokio::time::timeout(SOON, limit.key("other").take(1, Duration::from_secs(3600))).await;
    assert!(later.expect("it hangs").is_err());
}
