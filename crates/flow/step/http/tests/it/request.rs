//! The requests that the step sends.

use std::{sync::Arc, time::Duration};

use honeyflow_conformance::step::{self, Subject, batch, item, outcomes};
use honeyflow_step::{Outcome, Step};
use honeyflow_step_http::{CALLS_MAX, Config, HttpStep};
use honeyflow_workflow::Expression;
use serde_json::{Value, json};

use crate::server::{Reply, Server};

pub fn local(url: &str) -> Config {
    Config { http: true, allow_networks: vec!["127.0.0.0/8".to_owned()], ..Config::new(url) }
}

pub fn step(config: &Config) -> HttpStep {
    HttpStep::new(config).unwrap()
}

#[tokio::test]
async fn wf_25_http_call_keeps_the_step_contract() {
    let server = Server::start(|heard| {
        let number = heard.target().strip_prefix("/book/").and_then(|tail| tail.split('?').next());
        match number.and_then(|number| number.parse::<i64>().ok()) {
            Some(number) if number >= 0 => Reply::json(&json!({ "number": number }).to_string()),
            _ => Reply::status(422),
        }
    })
    .await;
    let url = server.url("/book/{.id}?key={$event.key}");
    let subject = Subject {
        step: Arc::new(step(&local(&url))),
        good: |n| item(n, &format!("k{n}"), json!({ "id": n })),
        output: |n| Some(Arc::new(json!({ "number": n }))),
        poison: |n| item(n, &format!("bad{n}"), json!({ "id": -1 })),
    };
    step::suite(&subject).await;
}

/// WF-15
#[tokio::test]
async fn wf_15_url_and_body_see_run_and_steps() {
    let server = Server::always(Reply::json("{}")).await;
    let mut config = local(&server.url("/{$run.entity}/{$steps.load.id}"));
    config.body = Some(Expression::parse("{title: $steps.load.title}").unwrap());
    let context = honeyflow_step::Context {
        event: None,
        run: Some(Arc::new(json!({ "entity": "book" }))),
        steps: vec![("load".into(), Some(Arc::new(json!({ "id": 7, "title": "Ulysses" }))))],
        item: None,
    };
    let sent = honeyflow_step::Item { context: Some(Arc::new(context)), ..item(5, "a", json!({})) };
    outcomes(&step(&config), vec![sent]).await;
    let heard = &server.requests()[0];
    assert!(heard.head.starts_with("POST /book/7 HTTP/1.1\r\n"), "{}", heard.head);
    assert_eq!(serde_json::from_slice::<Value>(&heard.body).unwrap(), json!({"title": "Ulysses"}));
}

#[tokio::test]
async fn wf_29_a_call_carries_key_version_and_body() {
    let server = Server::always(Reply::json("{}")).await;
    let step = step(&local(&server.url("/hook")));
    let mut sent = item(5, "a", json!({"title": "Ulysses"}));
    let first = batch(vec![sent.clone()]);
    let key = sent.idempotency_key(&first);
    step.execute(first).await;
    sent.attempt = 2;
    outcomes(&step, vec![sent.clone()]).await;
    for heard in server.requests() {
        assert!(heard.head.starts_with("POST /hook HTTP/1.1\r\n"), "{}", heard.head);
        assert_eq!(heard.header("idempotency-key"), Some(&*key), "the same for every attempt");
        assert_eq!(heard.header("honeyflow-version"), Some(&*sent.stamp.to_string()));
        assert_eq!(heard.header("content-type"), Some("application/json"));
        assert_eq!(serde_json::from_slice::<Value>(&heard.body).unwrap(), json!({"title": "Ulysses"}));
    }
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn wf_29_method_headers_and_body_are_as_configured() {
    let server = Server::always(Reply::status(204)).await;
    let mut config = local(&server.url("/book/{.id}"));
    config.method = "PUT".to_owned();
    config.headers =
        vec![("Authorization".to_owned(), "Bearer canary".to_owned()), ("X-Kind".to_owned(), "book".to_owned())];
    config.body = Some(Expression::parse("{name: .title, key: $event.key}").unwrap());
    assert_eq!(
        outcomes(&step(&config), vec![item(1, "k", json!({"id": 7, "title": "T"}))]).await,
        [Outcome::Done(None)]
    );
    let heard = server.requests().remove(0);
    assert!(heard.head.starts_with("PUT /book/7 "), "{}", heard.head);
    assert_eq!(heard.header("authorization"), Some("Bearer canary"));
    assert_eq!(heard.header("x-kind"), Some("book"));
    assert_eq!(serde_json::from_slice::<Value>(&heard.body).unwrap(), json!({"name": "T", "key": "k"}));
    assert!(!format!("{config:?}").contains("canary"));

    config.method = "GET".to_owned();
    config.body = None;
    outcomes(&step(&config), vec![item(1, "k", json!({"id": 7}))]).await;
    let heard = server.requests().remove(1);
    assert_eq!((heard.header("content-type"), heard.body.len()), (None, 0));
}

#[tokio::test]
async fn se_22_keys_and_documents_make_no_header() {
    let server = Server::always(Reply::status(204)).await;
    let step = step(&local(&server.url("/{$event.key}?v={.v}")));
    let evil = "x\r\nX-Injected: 1\r\n\r\nGET /second HTTP/1.1\r\n";
    outcomes(&step, vec![item(0, evil, json!({ "v": evil }))]).await;
    let heard = server.requests();
    assert_eq!(heard.len(), 1);
    assert_eq!(heard[0].header("x-injected"), None);
    let encoded = "x%0D%0AX-Injected%3A%201%0D%0A%0D%0AGET%20%2Fsecond%20HTTP%2F1.1%0D%0A";
    assert_eq!(heard[0].target(), format!("/{encoded}?v={encoded}"));
}

#[tokio::test]
async fn wf_29_sixteen_calls_of_a_batch_are_under_way_at_once() {
    let server = Server::always(Reply::silence()).await;
    let mut work = batch((0..100).map(|n| item(n, "k", json!({}))).collect());
    work.timeout = Duration::from_secs(3);
    let given = step(&local(&server.url("/"))).execute(work).await;
    assert_eq!(server.requests().len(), CALLS_MAX);
    let codes: Vec<_> = given
        .iter()
        .filter_map(|outcome| match outcome {
            Outcome::Failed(failure) => Some(&*failure.code),
            _ => None,
        })
        .collect();
    assert_eq!(
        codes.iter().filter(|code| **code == "timeout").count(),
        CALLS_MAX,
        "the server may have received these"
    );
    assert_eq!(codes.iter().filter(|code| **code == "not-reached").count(), 100 - CALLS_MAX);
}

#[tokio::test]
async fn wf_29_a_slow_call_delays_no_other() {
    let server = Server::start(|heard| if heard.target() == "/0" { Reply::silence() } else { Reply::json("1") }).await;
    let mut work = batch((0..200).map(|n| item(n, "k", json!({ "id": n }))).collect());
    work.timeout = Duration::from_secs(12);
    let given = step(&local(&server.url("/{.id}"))).execute(work).await;
    assert!(matches!(&given[0], Outcome::Failed(failure) if failure.code == "timeout"), "{:?}", given[0]);
    assert!(given[1..].iter().all(|outcome| matches!(outcome, Outcome::Done(_))));
}

#[tokio::test]
async fn se_22_the_size_of_a_request_body_is_bounded() {
    let server = Server::always(Reply::status(204)).await;
    let step = step(&local(&server.url("/")));
    let text = |bytes: usize| item(0, "k", json!("x".repeat(bytes - 2)));
    let max = honeyflow_step_http::REQUEST_BYTES_MAX;
    let given = outcomes(&step, vec![text(max), text(max + 1)]).await;
    assert_eq!(given[0], Outcome::Done(None));
    assert!(matches!(&given[1], Outcome::Failed(failure) if failure.code == "request-too-large"));
    assert_eq!(server.requests().len(), 1);
}
