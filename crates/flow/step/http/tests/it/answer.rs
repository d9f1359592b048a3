//! Answers of well-behaved servers.

use std::{io::Write, sync::Arc, time::Duration};

use flate2::{Compression, write::GzEncoder};
use honeyflow_conformance::step::{item, outcomes};
use honeyflow_runtime::{Class, Failure};
use honeyflow_step::Outcome;
use serde_json::{Value, json};

use crate::{
    request::{local, step},
    server::{Reply, Server},
};

pub async fn given(reply: Reply) -> Outcome {
    let server = Server::always(reply).await;
    let secret = server.url("/path?token={.token}");
    let mut config = local(&secret);
    config.headers = vec![("authorization".to_owned(), "canary-header".to_owned())];
    let outcome = outcomes(&step(&config), vec![item(0, "k", json!({"token": "canary-query"}))]).await.remove(0);
    assert!(!format!("{outcome:?}").contains("canary"), "{outcome:?}");
    outcome
}

pub async fn failed(reply: Reply) -> Failure {
    match given(reply).await {
        Outcome::Failed(failure) => failure,
        other => panic!("{other:?}"),
    }
}

fn done(value: Value) -> Outcome {
    Outcome::Done(Some(Arc::new(value)))
}

#[tokio::test]
async fn wf_29_statuses_are_classes() {
    for (status, class, code) in [
        (408, Class::Retry, "server-error"),
        (425, Class::Retry, "server-error"),
        (500, Class::Retry, "server-error"),
        (503, Class::Retry, "server-error"),
        (401, Class::Retry, "refused"),
        (403, Class::Retry, "refused"),
        (429, Class::RetryAfter, "told-to-wait"),
        (400, Class::Reject, "rejected"),
        (404, Class::Reject, "rejected"),
        (422, Class::Reject, "rejected"),
        (302, Class::Reject, "redirected"),
    ] {
        let failure = failed(Reply::status(status)).await;
        assert_eq!((failure.class, &*failure.code), (class, code), "{status}");
    }
}

#[tokio::test]
async fn wf_29_retry_after_is_obeyed() {
    let waiting = "HTTP/1.1 503 X\r\nretry-after: 17\r\ncontent-length: 0\r\n\r\n";
    let failure = failed(Reply::raw(waiting)).await;
    assert_eq!((failure.class, failure.after), (Class::RetryAfter, Some(Duration::from_secs(17))));
    let dated = "HTTP/1.1 429 X\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                 retry-after: Sun, 06 Nov 1994 08:50:37 GMT\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(failed(Reply::raw(dated)).await.after, Some(Duration::from_secs(60)));
}

#[tokio::test]
async fn wf_29_an_answer_is_the_output() {
    assert_eq!(given(Reply::json("{\"a\": [1, null]}")).await, done(json!({"a": [1, null]})));
    assert_eq!(given(Reply::json("null")).await, Outcome::Done(None));
    assert_eq!(given(Reply::status(204)).await, Outcome::Done(None));
    assert_eq!(given(Reply::status(200)).await, Outcome::Done(None));
    assert_eq!(given(Reply::with("content-type: text/plain\r\n", b"fine")).await, done(json!("fine")));
    let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n";
    assert_eq!(given(Reply::raw(chunked)).await, done(json!([1, 2])));
}

#[tokio::test]
async fn wf_29_packed_answers_are_unpacked() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(b"{\"packed\": true}").unwrap();
    let headers = "content-type: application/json\r\ncontent-encoding: gzip\r\n";
    let reply = Reply::with(headers, &encoder.finish().unwrap());
    assert_eq!(given(reply).await, done(json!({"packed": true})));
}

#[tokio::test]
async fn wf_29_a_server_that_is_not_there_is_tried_again() {
    let gone = Server::always(Reply::default()).await.url("/");
    let outcome = outcomes(&step(&local(&gone)), vec![item(0, "k", json!({}))]).await.remove(0);
    // the port is free again, or still half open: both are failures of the server
    assert!(matches!(&outcome, Outcome::Failed(failure) if failure.class == Class::Retry), "{outcome:?}");
}
