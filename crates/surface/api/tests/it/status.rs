//! Health, readiness, status, metrics and the page.

use std::{sync::Arc, time::Duration};

use honeyflow_api::HiveView;
use honeyflow_engine::core::gate::ClosedGate;
use honeyflow_hive::{
    Hive, Options, Reply, Request,
    contract::{EventKind, HIVE_TIME_START_MS},
    service::Role,
};
use honeyflow_hive_memory::MemoryHive;
use honeyflow_store::admin::Lag;
use serde_json::json;

use crate::harness::{PATIENCE, event, start, start_with};

/// Returns a hive in which this node is the only member and the queen.
async fn hive() -> Hive {
    hive_with(Options::named("node-1").fast()).await
}

async fn hive_with(options: Options) -> Hive {
    let store = MemoryHive::new(|| {
        let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(0) - HIVE_TIME_START_MS.cast_unsigned()
    });
    let hive = Hive::join(Arc::new(store), options).await.unwrap();
    until(async || matches!(hive.role(), Role::Queen(_))).await;
    hive
}

async fn until(is: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(3 * PATIENCE, waiting).await.expect("it comes to that");
}

fn shown(hive: &Hive) -> HiveView {
    HiveView { place: "memory".to_owned(), sources: vec!["shop".into()], hive: hive.clone() }
}

#[tokio::test]
async fn health_does_not_depend_on_the_store() {
    let server = start().await;
    *server.outbox.away.lock().unwrap() = true;
    let health = server.get("/health").await;
    assert_eq!((health.status, health.json()), (200, json!({ "status": "ok" })));
}

#[tokio::test]
async fn ready_lists_the_reasons_why_the_node_is_not_ready() {
    let server = start().await;
    assert_eq!(server.get("/ready").await.status, 200);
    server.status.lock().unwrap().sources[0].epoch = None;
    server.status.lock().unwrap().draining = true;
    *server.outbox.away.lock().unwrap() = true;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let ready = server.get("/ready").await;
    assert_eq!(ready.status, 503);
    let answer = ready.json();
    let codes: Vec<_> = answer["reasons"].as_array().unwrap().iter().map(|reason| reason["code"].clone()).collect();
    assert_eq!(codes, ["draining", "no-lease", "store-away"]);
    assert!(!ready.body.contains("secret-user"), "internal details are not shown: {}", ready.body);
}

/// HV-17: the hive learns what `/ready` says, except that a draining node still counts as ready: it serves the requests
/// that it has accepted. Each change is reported once.
#[tokio::test]
async fn hv_17_the_node_reports_to_the_hive_whether_it_is_ready() {
    let hive = hive_with(Options { ready: false, ..Options::named("node-1") }).await;
    let reports = async || match hive.store().call(Request::History { lease: None, until_ms: None, max: 100 }).await {
        Ok(Reply::History(events)) => {
            let kinds = events.into_iter().rev().map(|event| event.kind);
            kinds.filter(|kind| matches!(kind, EventKind::Ready | EventKind::Unready)).collect::<Vec<_>>()
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(reports().await, [], "it is already the queen, but has not reported that it is ready");
    let server = start_with(|node| node.hives.push(shown(&hive))).await;
    until(async || reports().await.len() == 1).await;
    server.status.lock().unwrap().sources[0].epoch = None;
    until(async || reports().await.len() == 2).await;
    assert_eq!(server.get("/ready").await.status, 503);
    {
        let mut status = server.status.lock().unwrap();
        (status.sources[0].epoch, status.draining) = (Some(8), true);
    }
    until(async || reports().await.len() == 3).await;
    assert_eq!(server.get("/ready").await.status, 503, "but it should get no new clients");
    *server.outbox.away.lock().unwrap() = true;
    until(async || server.get("/ready").await.body.contains("store-away")).await;
    until(async || reports().await.len() == 4).await;
    // The store is called again and again, with the same result.
    let asked = *server.outbox.asked.lock().unwrap();
    until(async || *server.outbox.asked.lock().unwrap() >= asked + 3).await;
    *server.outbox.away.lock().unwrap() = false;
    until(async || reports().await.len() == 5).await;
    assert_eq!(
        reports().await,
        [true, false, true, false, true].map(|ready| if ready { EventKind::Ready } else { EventKind::Unready })
    );
}

/// HV-76
#[tokio::test]
async fn hv_76_metrics_show_the_hive() {
    let hive = hive().await;
    let server = start_with(|node| node.hives.push(shown(&hive))).await;
    hive.engage();
    // The queen's term is an event like any other: it counts once this node has read it.
    until(async || hive.counters().terms.len() == 1 && hive.engaged().count == Some(1)).await;
    let scraped = server.get("/metrics").await.body;
    let Ok(Reply::View(view)) = hive.store().call(Request::View).await else { panic!("no view") };
    let epoch = format!("honeyflow_hive_epoch{{lease=\"queen\"}} {}", view.leases[0].epoch.0);
    for line in [
        "honeyflow_hive_nodes{state=\"engaged\"} 1",
        "honeyflow_hive_nodes{state=\"ready\"} 0",
        "honeyflow_hive_divisor 1",
        "honeyflow_hive_queen 1",
        "honeyflow_hive_count_age_seconds 0",
        &epoch,
        "honeyflow_hive_burials_total 0",
        "honeyflow_hive_clock_steps_total 0",
        "honeyflow_hive_fence_refused_total 0",
        "honeyflow_hive_unstopped_total 0",
        "honeyflow_hive_store_up 1",
        "honeyflow_hive_terms_total{cause=\"free\"} 1",
    ] {
        assert!(scraped.lines().any(|own| own == line), "{line} is not in\n{scraped}");
    }
    for name in ["honeyflow_hive_beats_total", "honeyflow_hive_beat_seconds_total", "honeyflow_hive_heard_seconds"] {
        let value = scraped.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        assert!(value.is_some_and(|value| value > 0.0), "{name} is {value:?} in\n{scraped}");
    }
}

/// The node still accepts events and answers searches, so a load balancer should not send clients elsewhere.
#[tokio::test]
async fn wf_50_a_stopped_workflow_makes_the_node_degraded() {
    let server = start().await;
    let stopped = |reason| ClosedGate { name: "book".into(), reason, detail: "no such column: secret-user".into() };
    server.status.lock().unwrap().closed = vec![stopped("paused"), stopped("breaker")];
    assert_eq!(server.get("/ready").await.json(), json!({ "status": "ready" }));
    server.status.lock().unwrap().closed = vec![stopped("fatal")];
    let ready = server.get("/ready").await;
    assert_eq!((ready.status, ready.json()["status"].as_str()), (200, Some("degraded")));
    assert_eq!(ready.json()["reasons"][0]["workflow"], "book");
    assert!(!ready.body.contains("secret-user"), "internal details are not shown: {}", ready.body);
    let status = server.get("/v1/status").await.json();
    assert_eq!((&status["node"]["ready"], &status["node"]["degraded"]), (&json!(true), &json!(true)));
    server.status.lock().unwrap().draining = true;
    let ready = server.get("/ready").await;
    assert_eq!((ready.status, ready.json()["reasons"].as_array().unwrap().len()), (503, 2));
}

#[tokio::test]
async fn a_store_failure_of_the_past_does_not_make_the_node_unready() {
    let server = start().await;
    server.status.lock().unwrap().last_store_failure = Some("it was away".to_owned());
    assert_eq!(server.get("/ready").await.status, 200);
}

#[tokio::test]
async fn ob_82_status_shows_engine_lag_and_sinks() {
    let server = start().await;
    server.index("42", 7 << 22, json!({ "title": "Dune" }));
    *server.outbox.lag.lock().unwrap() =
        Lag { waiting: 3, by_priority: vec![(4, 3)], delayed: 1, parked: 2, oldest_ms: 1500 };
    let status = server.get("/v1/status").await.json();
    assert_eq!(status["node"]["name"], "node-1");
    assert_eq!(status["node"]["ready"], true);
    assert_eq!(status["engine"]["events"], 12);
    assert_eq!(status["engine"]["workflows"][0]["ended"], 9);
    assert_eq!(status["engine"]["workflows"][0]["steps"][1], json!({ "done": 8, "retried": 0, "failed": 1 }));
    assert_eq!(status["lag"]["shop"]["oldest_ms"], 1500);
    assert_eq!(status["sinks"], json!([{ "name": "books", "entity": "book", "documents": 1 }]));
}

#[tokio::test]
async fn ob_83_metrics_count_what_the_status_counts() {
    let server = start().await;
    *server.outbox.lag.lock().unwrap() =
        Lag { waiting: 3, by_priority: vec![(4, 3)], delayed: 1, parked: 2, oldest_ms: 1500 };
    let metrics = server.get("/metrics").await;
    assert!(metrics.header("content-type").starts_with("application/openmetrics-text"));
    for line in [
        "honeyflow_events_total 12",
        "honeyflow_ready 1",
        "honeyflow_lag_milliseconds{source=\"shop\"} 1500",
        "honeyflow_events_waiting{source=\"shop\"} 3",
        "honeyflow_events_waiting_by_priority{source=\"shop\",priority=\"4\"} 3",
        "honeyflow_events_set_aside{source=\"shop\"} 2",
        "honeyflow_store_up{source=\"shop\"} 1",
        "honeyflow_epoch{source=\"shop\"} 7",
        "honeyflow_workflow_runs_total{workflow=\"book\"} 9",
        "honeyflow_step_done_total{workflow=\"book\",step=\"load\"} 8",
        "honeyflow_step_retried_total{workflow=\"book\",step=\"index\"} 2",
        "honeyflow_step_failed_total{workflow=\"book\",step=\"load\"} 1",
        "honeyflow_step_ready{workflow=\"book\",step=\"index\"} 1",
        "honeyflow_sink_documents{sink=\"books\"} 0",
        "# EOF",
    ] {
        assert!(metrics.body.lines().any(|own| own == line), "{line} is not in\n{}", metrics.body);
    }
}

#[tokio::test]
async fn se_9_no_key_payload_or_error_text_is_in_health_and_metrics() {
    let server = start().await;
    let marked =
        json!({ "entity": "book", "key": "MARKER-key", "payload": "MARKER-payload", "dedupe": "MARKER-dedupe" });
    assert_eq!(server.post(marked.to_string()).await.status, 202);
    server.index("MARKER-key", 7 << 22, json!({ "title": "MARKER-document" }));
    {
        let mut status = server.status.lock().unwrap();
        status.last_store_failure = Some("MARKER-failure".to_owned());
        status.sources[0].held = vec!["MARKER-held".to_owned()];
    }
    for path in ["/health", "/ready", "/metrics"] {
        let answer = server.get(path).await;
        assert!(!answer.body.contains("MARKER"), "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn lag_is_read_at_most_once_a_second() {
    let server = start().await;
    let begun = std::time::Instant::now();
    for _ in 0..50 {
        assert_eq!(server.get("/metrics").await.status, 200);
        assert_eq!(server.post(event("1").to_string()).await.status, 202);
    }
    let asked = *server.outbox.asked.lock().unwrap();
    assert!((1..=2 + begun.elapsed().as_secs()).contains(&u64::from(asked)), "{asked} in {:?}", begun.elapsed());
}

#[tokio::test]
async fn the_page_is_complete_without_its_script() {
    let server = start().await;
    server.status.lock().unwrap().sources[0].held = vec!["book: the statement no longer fits the table".to_owned()];
    let page = server.get("/").await.body;
    for id in [
        "node",
        "state",
        "uptime",
        "connection",
        "events-rate",
        "runs-rate",
        "lag",
        "in-flight",
        "parked",
        "chart",
        "chart-events",
        "chart-runs",
        "workflow-0-rate",
        "step-0-0-ready",
        "step-0-1-ready",
        "search",
        "sink",
        "results",
        "results-note",
        "waits",
        "waits-count",
        "source-0-epoch",
        "source-0-lag",
        "source-0-in-flight",
        "sink-0-documents",
    ] {
        assert_eq!(page.matches(&format!("id=\"{id}\"")).count(), 1, "{id}");
    }
    assert!(page.contains("book: the statement no longer fits the table"));
    assert!(page.contains(">1 ready<") && page.contains("sql.load"));
}

/// The page shows retries and failures at their step; it shows nothing for steps without them.
#[tokio::test]
async fn the_page_shows_retries_and_failures_of_each_step() {
    let server = start().await;
    let page = server.get("/").await.body;
    let text = |id: &str| page.split(&format!("id=\"{id}\"")).nth(1).unwrap().split(['>', '<']).nth(1).unwrap();
    assert_eq!((text("step-0-0-retried"), text("step-0-0-failed")), ("↻ 2", ""));
    assert_eq!((text("step-0-1-retried"), text("step-0-1-failed")), ("", "✕ 1"));
    assert_eq!(text("step-0-0-rate"), "0/s");
}
