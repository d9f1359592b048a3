//! The limit of the event endpoint: a client above it gets a refusal that says when to retry.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use honeyflow_api::{EventLimit, HeaderName};
use honeyflow_hive::{
    Hive, Options,
    limit::{Definition, Limit},
};
use honeyflow_hive_memory::MemoryHive;

use tokio::io::AsyncWriteExt as _;

use crate::harness::{PATIENCE, Server, answer_to, event, start_with};

async fn limit(definition: Definition) -> (Hive, Limit) {
    let begun = Instant::now();
    let store = MemoryHive::new(move || 200_000_000_000 + begun.elapsed().as_millis() as u64);
    let options = Options::named("events").limit(definition);
    let hive = Hive::join(Arc::new(store), options).await.unwrap();
    let api = hive.limit("api").unwrap();
    while api.terms().version == 0 {
        assert!(begun.elapsed() < PATIENCE, "the store never learns the limit");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    (hive, api)
}

async fn served(quota: &str, shadow: bool) -> (Hive, Server) {
    served_under(Definition::parse("api", quota).unwrap(), shadow).await
}

async fn served_under(definition: Definition, shadow: bool) -> (Hive, Server) {
    let (hive, limit) = limit(definition).await;
    let counted = hive.limits().unwrap();
    let server = start_with(|node| {
        let key = Some(HeaderName::from_static("x-client"));
        node.event_limit = Some(EventLimit { limit, key, shadow, legacy_headers: true });
        node.limit_counters = Arc::new(move || counted.snapshots());
    });
    (hive, server.await)
}

/// HV-73, HV-74: the limit applies per key; a refused request stores nothing, and its answer says how many permits
/// there are and when to retry.
#[tokio::test]
async fn hv_74_the_event_endpoint_refuses_by_key_and_says_when_to_retry() {
    let (_hive, server) = served("2/h", false).await;
    let post = async |client: &str| server.post_with(&format!("x-client: {client}\r\n"), event("a").to_string()).await;
    let first = post("one").await;
    assert_eq!(first.status, 202);
    assert!(first.header("ratelimit-policy").starts_with("\"api\";q=2;w=3600;pk=:"), "{first:?}");
    assert_eq!(post("one").await.status, 202);
    let refused = post("one").await;
    assert_eq!((refused.status, refused.code()), (429, "limit".to_owned()));
    assert!(refused.header("ratelimit").starts_with("\"api\";r=0;t="), "{refused:?}");
    assert_eq!(refused.header("x-ratelimit-remaining"), "0");
    let retry: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1_700..=1_800).contains(&retry), "half an hour, rounded up: {retry}");
    assert_eq!(server.stored(), 2);
    assert_eq!(post("two").await.status, 202, "another key has its own");
}

/// HV-68, HV-74: a client holds a slot from before its body is read until its answer is sent.
#[tokio::test]
async fn hv_68_a_request_holds_its_slot_until_it_is_answered() {
    let (_hive, server) = served_under(Definition::slots("api", 1), false).await;
    let post = async |client: &str| server.post_with(&format!("x-client: {client}\r\n"), event("a").to_string()).await;
    let body = event("a").to_string();
    let mut slow = server.connect().await;
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: localhost:7171\r\nContent-Length: {}\r\nx-client: one\r\n\r\n",
        body.len()
    );
    slow.write_all(head.as_bytes()).await.unwrap();
    let begun = Instant::now();
    while !server.get("/metrics").await.body.contains("honeyflow_limit_in_use{limit=\"api\"} 1") {
        assert!(begun.elapsed() < PATIENCE, "the request never takes its slot");
    }
    let refused = post("one").await;
    assert_eq!((refused.status, refused.code()), (429, "limit".to_owned()));
    assert!(refused.header("ratelimit-policy").starts_with("\"api\";q=1;qu=\"concurrent-requests\""), "{refused:?}");
    assert_eq!(refused.header("retry-after"), "1");
    let metrics = server.get("/metrics").await.body;
    assert!(metrics.contains("honeyflow_limit_denied_total{limit=\"api\",reason=\"exhausted\"} 1"), "{metrics}");
    assert_eq!(post("two").await.status, 202, "another key has its own");
    slow.write_all(body.as_bytes()).await.unwrap();
    assert_eq!(answer_to(&mut slow, false).await.status, 202);
    // A request that is refused for another reason releases its slot too.
    assert_eq!(server.post_with("x-client: three\r\n", "{").await.status, 400);
    for client in ["one", "three"] {
        while post(client).await.status != 202 {
            assert!(begun.elapsed() < PATIENCE, "its slot is never released");
        }
    }
    let begun = Instant::now();
    loop {
        let metrics = server.get("/metrics").await.body;
        assert!(metrics.contains("honeyflow_limit_at_once{limit=\"api\"} 1"), "{metrics}");
        if metrics.contains("honeyflow_limit_in_use{limit=\"api\"} 0") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{metrics}");
    }
}

/// HV-73: a shadow limit counts the requests that it would refuse.
#[tokio::test]
async fn hv_73_a_shadow_limit_counts_and_refuses_no_request() {
    let (_hive, server) = served("1/h", true).await;
    for _ in 0..3 {
        let answer = server.post_with("x-client: one\r\n", event("a").to_string()).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (202, ""));
    }
    assert_eq!(server.stored(), 3);
    let metrics = server.get("/metrics").await;
    let line = "honeyflow_limit_denied_total{limit=\"api\",reason=\"exhausted\"} 2";
    assert!(metrics.body.contains(line), "{}", metrics.body);
}

/// HV-76: there is one set of numbers per limit, independent of the number of keys.
#[tokio::test]
async fn hv_76_metrics_of_limits_have_no_label_per_key() {
    let (_hive, server) = served("1000/h", false).await;
    for client in 0..20 {
        let answer = server.post_with(&format!("x-client: secret-client-{client}\r\n"), event("a").to_string()).await;
        assert_eq!(answer.status, 202);
    }
    let metrics = server.get("/metrics").await.body;
    for line in
        ["honeyflow_limit_admitted_total{limit=\"api\"} 20", "honeyflow_limit_mode{limit=\"api\",mode=\"pool\"} 1"]
    {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }
    assert!(!metrics.contains("secret-client"));
    for name in ["limit_pool", "limit_keys", "limit_store_ops_total", "limit_waits_total", "limit_wait_seconds_total"] {
        assert_eq!(metrics.matches(&format!("\nhoneyflow_{name}{{")).count(), 1, "{name} in\n{metrics}");
    }
}
