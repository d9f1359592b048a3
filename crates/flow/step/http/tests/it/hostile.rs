//! Answers of servers, proxies and resolvers that are broken or hostile.

use std::{
    io::{self, Write},
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use flate2::{Compression, write::GzEncoder};
use futures_util::future::BoxFuture;
use honeyflow_conformance::step::{batch, item, outcomes};
use honeyflow_runtime::Class;
use honeyflow_step::{Outcome, Step};
use honeyflow_step_http::{Answer, Config, HttpStep, Lookup};
use serde_json::json;

use crate::{
    answer::{failed, given},
    request::{local, step},
    server::{Reply, Server},
};

const MEBIBYTE: usize = 1024 * 1024;

#[tokio::test]
async fn f39_half_answers_are_unknown_and_repeated() {
    for half in [
        "",
        "HTTP/1.1 20",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"a\":",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\n[1,2]\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5\r\n\r\n{\"a\":",
        "220 smtp.test ESMTP\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 5\r\n\r\nabcde",
        "HTTP/1.1 200 OK\r\ncontent-encoding: br\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip, gzip\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: 2\r\n\r\nok",
    ] {
        let failure = failed(Reply::raw(half)).await;
        assert_eq!(failure.class, Class::Retry, "{half:?}: {failure:?}");
    }
}

#[tokio::test]
async fn f39_a_page_is_no_answer_where_json_is_expected() {
    let server = Server::always(Reply::with("content-type: text/html\r\n", b"<h1>Please log in</h1>")).await;
    let config = Config { answer: Answer::Json, ..local(&server.url("/")) };
    let outcome = outcomes(&step(&config), vec![item(0, "k", json!({}))]).await.remove(0);
    assert!(matches!(&outcome, Outcome::Failed(failure) if failure.code == "broken-answer"), "{outcome:?}");
}

#[tokio::test]
async fn f39_a_gzip_bomb_is_not_unpacked() {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    for _ in 0..256 {
        encoder.write_all(&vec![b' '; MEBIBYTE]).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    let failure = failed(Reply::with("content-encoding: gzip\r\n", &bomb)).await;
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "broken-answer"));
}

#[tokio::test]
async fn se_22_answers_have_a_limit() {
    let text = |bytes: usize| Reply::with("content-type: text/plain\r\n", &vec![b'x'; bytes]);
    assert!(matches!(given(text(8 * MEBIBYTE)).await, Outcome::Done(Some(_))));
    let beyond = failed(text(8 * MEBIBYTE + 1)).await;
    assert_eq!((beyond.class, &*beyond.code), (Class::Reject, "output-too-large"));
    // an answer that only claims to be large, and an endless one without a length
    let claimed = "HTTP/1.1 200 OK\r\ncontent-length: 5368709120\r\n\r\nx";
    assert_eq!(failed(Reply { then_hang: true, ..Reply::raw(claimed) }).await.code, "output-too-large");
    let mut endless = Reply::raw("HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
    endless.pieces.extend(vec![vec![b'x'; MEBIBYTE]; 200]);
    assert_eq!(failed(endless).await.code, "output-too-large");
}

#[tokio::test]
async fn rl_22_every_wait_has_an_end() {
    let slow = Reply {
        pieces: "HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"
            .bytes()
            .chain([b'x'; 900])
            .map(|byte| vec![byte])
            .collect(),
        pause: Duration::from_millis(20),
        then_hang: true,
    };
    for reply in [
        Reply::silence(),
        slow,
        Reply { then_hang: true, ..Reply::raw("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n") },
    ] {
        let server = Server::always(reply).await;
        let mut work = batch((0..40).map(|n| item(n, "k", json!({}))).collect());
        work.timeout = Duration::from_millis(600);
        let begun = std::time::Instant::now();
        let given = step(&local(&server.url("/"))).execute(work).await;
        assert!(begun.elapsed() < Duration::from_secs(20));
        assert_eq!(given.len(), 40);
        for outcome in given {
            assert!(matches!(&outcome, Outcome::Failed(failure) if failure.class == Class::Retry), "{outcome:?}");
        }
    }
}

#[tokio::test]
async fn se_22_redirects_are_not_followed() {
    let other = Server::always(Reply::json("\"reached\"")).await;
    for location in ["http://169.254.169.254/latest/meta-data/", &other.url("/"), "/same-host", "file:///etc/passwd"] {
        for status in [301, 302, 303, 307, 308] {
            let reply = format!("HTTP/1.1 {status} X\r\nlocation: {location}\r\ncontent-length: 0\r\n\r\n");
            let server = Server::always(Reply::raw(reply)).await;
            let outcome = outcomes(&step(&local(&server.url("/"))), vec![item(0, "k", json!({}))]).await.remove(0);
            assert!(matches!(&outcome, Outcome::Failed(failure) if failure.code == "redirected"), "{outcome:?}");
            assert_eq!(server.requests().len(), 1);
        }
    }
    assert!(other.requests().is_empty());
}

/// A resolver that returns one list of addresses per lookup, and repeats the last one.
struct ScriptedLookup {
    answers: Vec<Vec<&'static str>>,
    asked: AtomicUsize,
}

impl ScriptedLookup {
    fn new(answers: &[&[&'static str]]) -> Arc<ScriptedLookup> {
        let answers = answers.iter().map(|answer| answer.to_vec()).collect();
        Arc::new(ScriptedLookup { answers, asked: AtomicUsize::new(0) })
    }
}

impl Lookup for ScriptedLookup {
    fn lookup(&self, _host: &str) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let answer = &self.answers[asked.min(self.answers.len() - 1)];
        let addresses = answer.iter().map(|text| text.parse().unwrap()).collect();
        Box::pin(async move { Ok(addresses) })
    }
}

async fn called(server: &Server, lookup: &Arc<ScriptedLookup>, networks: &[&str]) -> Outcome {
    let mut config = local(&format!("http://api.test:{}/", server.address.port()));
    config.allow_networks = networks.iter().map(|&network| network.to_owned()).collect();
    config.connect_timeout = Duration::from_secs(2);
    let step = HttpStep::with_lookup(&config, Arc::clone(lookup) as Arc<dyn Lookup>).unwrap();
    outcomes(&step, vec![item(0, "k", json!({}))]).await.remove(0)
}

fn refusal(outcome: &Outcome) -> (Class, &str) {
    match outcome {
        Outcome::Failed(failure) => (failure.class, &failure.code),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn se_22_names_of_internal_addresses_are_refused() {
    let server = Server::always(Reply::json("1")).await;
    for inside in [
        "127.0.0.1",
        "::1",
        "::ffff:127.0.0.1",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "0.0.0.0",
        "fd00:ec2::254",
    ] {
        let outcome = called(&server, &ScriptedLookup::new(&[&[inside]]), &[]).await;
        assert_eq!(refusal(&outcome), (Class::Retry, "address-refused"), "{inside}");
    }
    let everything = ["0.0.0.0/0", "::/0"];
    for never in ["169.254.169.254", "0.0.0.0", "::", "fe80::1", "::ffff:169.254.169.254", "fd00:ec2::254"] {
        let outcome = called(&server, &ScriptedLookup::new(&[&[never]]), &everything).await;
        assert_eq!(refusal(&outcome), (Class::Retry, "address-refused"), "{never}");
    }
    assert!(server.requests().is_empty());
}

#[tokio::test]
async fn se_22_only_checked_addresses_are_connected_to() {
    let server = Server::always(Reply::json("1")).await;
    // the resolver returns a forbidden and an allowed address: only the allowed one is used
    let lookup = ScriptedLookup::new(&[&["169.254.169.254", "127.0.0.1"]]);
    assert_eq!(called(&server, &lookup, &["127.0.0.1"]).await, Outcome::Done(Some(Arc::new(json!(1)))));
    let lookup = ScriptedLookup::new(&[&["127.0.0.2"]]);
    assert_eq!(refusal(&called(&server, &lookup, &["127.0.0.1"]).await).1, "address-refused");
}

#[tokio::test]
async fn se_22_a_rebinding_resolver_is_asked_once_per_connection_and_checked_each_time() {
    let server = Server::always(Reply::json("1")).await;
    let mut config = local(&format!("http://api.test:{}/", server.address.port()));
    config.allow_networks = vec!["127.0.0.1".to_owned()];
    let lookup = ScriptedLookup::new(&[&["127.0.0.1"], &["127.0.0.2"], &["169.254.169.254"]]);
    let step = HttpStep::with_lookup(&config, Arc::clone(&lookup) as Arc<dyn Lookup>).unwrap();
    let one = || async { outcomes(&step, vec![item(0, "k", json!({}))]).await.remove(0) };
    assert_eq!(one().await, Outcome::Done(Some(Arc::new(json!(1)))));
    assert_eq!(lookup.asked.load(Ordering::SeqCst), 1, "checked and connected to the same answer");
    assert_eq!(refusal(&one().await).1, "address-refused");
    assert_eq!(refusal(&one().await).1, "address-refused");
    assert_eq!(server.requests().len(), 1);
}

/// The variables must be set before the process starts, so this runs a test of answers again in a separate process.
#[test]
fn se_22_proxy_variables_are_ignored() {
    let mut again = std::process::Command::new(std::env::current_exe().unwrap());
    again.args(["--exact", "answer::wf_29_an_answer_is_the_output"]);
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        // no server listens on this port
        again.env(name, "http://127.0.0.1:9");
    }
    again.env("NO_PROXY", "").env("no_proxy", "");
    let output = again.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}
