//! The event endpoint, `POST /v1/events`.

use std::{sync::Arc, time::Duration};

use honeyflow_event::Kind;
use honeyflow_store::{Store, admin::Lag};
use serde_json::{Value, json};

use crate::harness::{Answer, Outbox, event, start, start_with};

fn message(answer: &Answer) -> String {
    answer.json()["error"]["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn wf_137_one_event_is_stored_as_it_was_sent() {
    let server = start().await;
    let body = r#"{"source":"shop","entity":"book","key":42,"payload":{"b":1.10,"a":12345678901234567890123},
                   "priority":1,"delay":"5s","dedupe":"m-1"}"#;
    let trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let answer = server.post_with(&format!("traceparent: {trace}\r\n"), body).await;
    assert_eq!((answer.status, answer.json()), (202, json!({ "ids": [1] })));
    let stored = server.outbox.events.lock().unwrap()[0].clone();
    assert_eq!((&*stored.entity, &*stored.key, stored.priority), ("book", "42", 1));
    assert_eq!((stored.kind, stored.delay), (Kind::Message, Some(Duration::from_secs(5))));
    assert_eq!((stored.dedupe.as_deref(), stored.traceparent.as_deref()), (Some("m-1"), Some(trace)));
    assert_eq!(stored.payload.as_deref(), Some(r#"{"b":1.10,"a":12345678901234567890123}"#), "number for number");
}

#[tokio::test]
async fn wf_137_without_a_payload_the_run_reads_the_current_row() {
    let server = start().await;
    assert_eq!(server.post(event("a").to_string()).await.status, 202);
    let stored = server.outbox.events.lock().unwrap()[0].clone();
    assert_eq!((stored.kind, stored.priority, stored.payload), (Kind::Row, 4, None));
}

#[tokio::test]
async fn wf_137_a_thousand_events_are_one_request_and_one_more_is_refused() {
    let server = start().await;
    let events = |count: usize| json!((0..count).map(|n| event(&n.to_string())).collect::<Vec<_>>()).to_string();
    let answer = server.post(events(1000)).await;
    assert_eq!(answer.json()["ids"].as_array().unwrap().len(), 1000);
    assert_eq!(server.post(events(1001)).await.code(), "too-many-events");
    assert_eq!(server.post("[]").await.code(), "no-events");
    assert_eq!(server.stored(), 1000);
}

#[tokio::test]
async fn wf_137_all_or_none_and_the_bad_item_is_named() {
    let server = start().await;
    for (bad, place, hint) in [
        (
            json!({ "entity": "bok", "key": "1" }),
            "[1].entity: source `shop` has no entity `bok`",
            "did you mean `book`?",
        ),
        (json!({ "key": "1" }), "[1].entity: missing", "entities: book, author"),
        (json!({ "entity": 5, "key": "1" }), "[1].entity: not a string", ""),
        (json!({ "entity": "book" }), "[1].key: missing", ""),
        (json!({ "entity": "book", "key": "" }), "[1].key: empty", ""),
        (json!({ "entity": "book", "key": 1.5 }), "[1].key: not a string or whole number", ""),
        (json!({ "entity": "book", "key": "a\u{0}b" }), "[1].key: contains a NUL character", ""),
        (json!({ "entity": "book", "key": "k".repeat(1025) }), "[1].key: 1025 bytes, 1024 is the most", ""),
        (
            json!({ "entity": "book", "key": "1", "source": "shp" }),
            "[1].source: there is no source `shp`",
            "did you mean `shop`?",
        ),
        (
            json!({ "entity": "book", "key": "1", "priority": 10 }),
            "[1].priority: not a whole number from 0 (first) to 9 (last)",
            "",
        ),
        (
            json!({ "entity": "book", "key": "1", "delay": "5 parsecs" }),
            "[1].delay: `5 parsecs` is not a duration",
            "one number and one unit: \"200ms\", \"5s\", \"10m\", \"2h\", \"1d\"",
        ),
        (json!({ "entity": "book", "key": "1", "delay": 5 }), "[1].delay: not a string", "for example \"5s\""),
        (json!({ "entity": "book", "key": "1", "dedupe": "" }), "[1].dedupe: 0 bytes, it must have 1 to 512", ""),
        (
            json!({ "entity": "book", "key": "1", "payloud": 1 }),
            "[1].`payloud`: unknown field",
            "did you mean `payload`?",
        ),
        (json!("book"), "[1]: an event is an object", "{\"entity\": \"book\", \"key\": \"42\"}"),
    ] {
        let answer = server.post(json!([event("1"), bad]).to_string()).await;
        assert_eq!(answer.status, 400, "{place}");
        assert_eq!(message(&answer), place);
        assert_eq!(answer.json()["error"]["hint"], hint, "{place}");
    }
    assert_eq!(message(&server.post(r#"{"entity":"book","key":"1","key":"2"}"#).await), "key: given twice");
    assert_eq!(server.stored(), 0);
}

#[tokio::test]
async fn wf_137_a_body_that_is_not_json_is_refused() {
    let server = start().await;
    for body in ["", "x", "{", "[{]", "{\"entity\":\"book\",\"key\":\"1\"} {}", "null", "3", "[1,]", "\"\\ud800\""] {
        let answer = server.post(body).await;
        assert_eq!(answer.status, 400, "{body}: {answer:?}");
    }
    let mut bytes = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n".to_vec();
    bytes.extend_from_slice(b"{\"\xff\"");
    assert_eq!(server.send(bytes).await.code(), "bad-json");
    let nested = |depth: usize| {
        let payload = "[".repeat(depth - 1) + &"]".repeat(depth - 1);
        format!(r#"{{"entity":"book","key":"1","payload":{payload}}}"#)
    };
    assert_eq!(server.post(nested(64)).await.status, 202);
    assert_eq!(server.post(nested(65)).await.code(), "too-deep");
    assert_eq!(server.post(nested(64_000)).await.code(), "too-deep");
    assert_eq!(server.stored(), 1);
}

#[tokio::test]
async fn wf_137_a_payload_has_its_own_limit() {
    let server = start().await;
    let sized = |bytes: usize| json!([event("1"), { "entity": "book", "key": "2", "payload": "a".repeat(bytes - 2) }]);
    assert_eq!(server.post(sized(1 << 20).to_string()).await.status, 202);
    let answer = server.post(sized((1 << 20) + 1).to_string()).await;
    assert_eq!((answer.status, answer.code().as_str()), (413, "payload-too-large"));
    assert!(message(&answer).starts_with("[1].payload: 1048577 bytes"), "{answer:?}");
    assert_eq!(server.stored(), 2);
}

#[tokio::test]
async fn wf_137_a_source_must_be_named_where_there_are_several() {
    let second = Arc::new(Outbox::default());
    let other = second.clone();
    let server = start_with(|node| {
        node.sources.push(("crm".into(), other as Arc<dyn Store>));
        node.entities.push(("crm".into(), "person".into()));
    })
    .await;
    assert!(message(&server.post(event("1").to_string()).await).starts_with("source: missing"));
    let person = json!({ "source": "crm", "entity": "person", "key": "1" });
    assert_eq!(server.post(person.to_string()).await.status, 202);
    assert_eq!((server.stored(), second.events.lock().unwrap().len()), (0, 1));
    let book = json!({ "source": "shop", "entity": "book", "key": "1" });
    let answer = server.post(json!([book, person]).to_string()).await;
    assert!(message(&answer).starts_with("[1].source: events of two sources"), "{answer:?}");
    let stray = json!({ "source": "crm", "entity": "book", "key": "1" });
    assert_eq!(server.post(stray.to_string()).await.status, 400, "an entity belongs to its source");
}

#[tokio::test]
async fn wf_73_a_repeat_gets_the_first_ids_and_another_body_a_conflict() {
    let server = start().await;
    let key = "Idempotency-Key: order-7\r\n";
    let first = server.post_with(key, event("1").to_string()).await;
    assert_eq!((first.status, first.header("idempotent-replay")), (202, ""));
    let again = server.post_with(key, event("1").to_string()).await;
    assert_eq!((again.status, again.header("idempotent-replay")), (202, "true"));
    assert_eq!(again.json(), first.json());
    let other = server.post_with(key, event("2").to_string()).await;
    assert_eq!((other.status, other.code().as_str()), (409, "idempotency-conflict"));
    assert_eq!(server.stored(), 1);
    let long = "k".repeat(256);
    for bad in [
        "Idempotency-Key: \r\n",
        "Idempotency-Key: a\r\nIdempotency-Key: b\r\n",
        &format!("Idempotency-Key: {long}\r\n"),
    ] {
        assert_eq!(server.post_with(bad, event("1").to_string()).await.code(), "bad-idempotency-key");
    }
}

#[tokio::test]
async fn wf_137_above_the_backlog_limit_producers_must_wait() {
    let server = start_with(|node| node.limits.backlog_max = 10).await;
    let waiting = |waiting| Lag { waiting, ..Lag::default() };
    *server.outbox.lag.lock().unwrap() = waiting(10);
    assert_eq!(server.post(event("1").to_string()).await.status, 202);
    *server.outbox.lag.lock().unwrap() = waiting(11);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let answer = server.post(event("2").to_string()).await;
    assert_eq!((answer.status, answer.code().as_str(), answer.header("retry-after")), (429, "backlog-full", "5"));
    assert_eq!(server.stored(), 1);
    *server.outbox.lag.lock().unwrap() = waiting(9);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.post(event("2").to_string()).await.status, 202);
}

#[tokio::test]
async fn wf_137_without_the_store_nothing_is_accepted() {
    let server = start().await;
    *server.outbox.away.lock().unwrap() = true;
    let answer = server.post(event("1").to_string()).await;
    assert_eq!((answer.status, answer.code().as_str()), (503, "store-unavailable"));
    assert_ne!(answer.header("retry-after"), "");
    assert!(answer.json()["error"]["id"].is_string() && !answer.body.contains("secret-user"), "{answer:?}");
    *server.outbox.away.lock().unwrap() = false;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(server.post(event("1").to_string()).await.json(), json!({ "ids": [1] }));
}

#[tokio::test]
async fn se_32_no_body_makes_the_event_endpoint_panic() {
    let server = start().await;
    let pieces = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"entity\"",
        "\"book\"",
        "\"key\"",
        "\"1\"",
        "null",
        "1e999",
        "-0",
        "\"\\u0000\"",
        "\"payload\"",
        "\"\\ud83d\"",
        " ",
        "true",
        "\"delay\"",
        "\"5s\"",
        "99999999999999999999",
    ];
    let mut seed = 5_u64;
    for _ in 0..400 {
        let mut body = String::new();
        for _ in 0..(seed % 12) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            body.push_str(pieces[usize::try_from(seed >> 33).unwrap() % pieces.len()]);
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let answer = server.post(&body).await;
        assert!(matches!(answer.status, 202 | 400), "{body}: {answer:?}");
        let _: Value = answer.json();
    }
}
