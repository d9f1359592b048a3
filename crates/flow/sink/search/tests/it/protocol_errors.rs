//! PL-71: the pool counts violations of HTTP by a server, with and without a request that waits for an answer. A closed
//! connection or a refusal by the server is not a violation.

use std::{io, net::SocketAddr, time::Duration};

use honeyflow_pool::{Dial, Pool, Settings};
use honeyflow_sink_search::{Cause, Client, Config, Http, Request, Search};
use tokio::{
    io::{AsyncWriteExt, DuplexStream},
    sync::mpsc,
    time::Instant,
};

use crate::{
    PATIENCE, client, config, eventually,
    http2::TestServer,
    plain, ready,
    scripted::{Act, ScriptedServers, answer, ok},
    within,
};

const AT: &str = "10.0.0.1:9200";

fn alone() -> Settings {
    Settings { connections_per_server: Some(1), ..plain() }
}

/// PL-71: in the same packet as the answer, and later.
#[tokio::test]
async fn pl_71_bytes_after_the_end_of_an_answer_are_counted() {
    let servers = ScriptedServers::default();
    let (go, wait) = tokio::sync::watch::channel(false);
    servers.serve(AT, move |received| match received.target.as_str() {
        "/tail" => vec![Act::Send([answer("200 OK", "{}"), answer("200 OK", "unexpected")].concat())],
        "/later" => {
            vec![Act::Send(answer("200 OK", "{}")), Act::Wait(wait.clone()), Act::Send(b"unexpected".to_vec())]
        }
        "/goodbye" => vec![Act::Send(answer("200 OK", "{}")), Act::Close],
        _ => ok("{}"),
    });
    let client = client(&servers, config(&[AT]), alone());
    for (path, counted) in [("/", 0), ("/tail", 1), ("/goodbye", 1), ("/later", 2), ("/", 2)] {
        ready(&client, 1).await;
        let dialled = servers.dialled(AT);
        assert_eq!(client.send(&Request::get(path), PATIENCE).await.unwrap().body, "{}", "{path}");
        go.send_replace(path == "/later");
        if path != "/" {
            eventually("replaced", || servers.dialled(AT) > dialled).await;
        }
        assert_eq!(client.pool().counters().wrong_answers, counted, "{path}");
    }
}

/// Dials a correct HTTP/2 server and lets the test insert frames between the server's own.
#[derive(Clone)]
struct FrameInjector {
    server: TestServer,
    /// Sends frames into the newest connection.
    newest: tokio::sync::watch::Sender<Option<mpsc::UnboundedSender<Vec<u8>>>>,
}

impl FrameInjector {
    fn new() -> FrameInjector {
        FrameInjector { server: TestServer::plain(), newest: tokio::sync::watch::Sender::new(None) }
    }

    fn inject(&self, frames: &[Vec<u8>]) {
        let newest = self.newest.borrow().clone().expect("there is a connection");
        newest.send(frames.concat()).expect("it is open");
    }
}

impl Dial for FrameInjector {
    type Stream = DuplexStream;

    async fn dial(&self, to: SocketAddr, within: Duration) -> io::Result<DuplexStream> {
        let server = self.server.dial(to, within).await?;
        let (near, far) = tokio::io::duplex(4096);
        let (inject, mut injected) = mpsc::unbounded_channel::<Vec<u8>>();
        self.newest.send_replace(Some(inject));
        tokio::spawn(async move {
            let (mut from_server, mut to_server) = tokio::io::split(server);
            let (mut from_client, mut to_client) = tokio::io::split(far);
            let asking = tokio::io::copy(&mut from_client, &mut to_server);
            let answering = async {
                let mut chunk = Vec::with_capacity(4096);
                loop {
                    chunk.clear();
                    tokio::select! {
                        read = tokio::io::AsyncReadExt::read_buf(&mut from_server, &mut chunk) => {
                            if read.unwrap_or(0) == 0 {
                                return;
                            }
                            let _ = to_client.write_all(&chunk).await;
                        }
                        Some(frames) = injected.recv() => drop(to_client.write_all(&frames).await),
                    }
                }
            };
            tokio::select! {
                _ = asking => {}
                () = answering => {}
            }
        });
        Ok(near)
    }
}

/// Builds a frame: length, kind, flags, stream, body.
fn frame(kind: u8, flags: u8, stream: u32, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), body].concat()
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GOODBYE: u8 = 7;
const WHOLE: u8 = 4;
const LAST: u8 = 1;
/// The stream of the second request; the first request of a connection is the health check.
const SECOND_REQUEST: u32 = 3;

fn two(server: &FrameInjector) -> Client<FrameInjector> {
    let config = Config { http: Http::Two, ..config(&[AT]) };
    let settings = config.settings(alone());
    Client::over(Pool::start(Search::dialling(config, server.clone()), settings).unwrap())
}

/// PL-71, PL-165
#[tokio::test]
async fn pl_71_violations_of_http2_are_counted() {
    // Status 200 with a length of 5; the data that follows is longer.
    let head = frame(HEADERS, WHOLE, SECOND_REQUEST, &[0x88, 0x0f, 0x0d, 1, b'5']);
    let too_long = vec![head, frame(DATA, LAST, SECOND_REQUEST, b"more than five")];
    let protocol_error = 1_u32.to_be_bytes();
    let goodbye = frame(GOODBYE, 0, 0, &[1_u32.to_be_bytes(), protocol_error].concat());
    let refusal = frame(RESET, 0, SECOND_REQUEST, &protocol_error);
    for (what, frames, wrong, of_a_request) in [
        ("data of no stream", vec![frame(DATA, 0, 0, b"x")], true, false),
        ("an answer on a stream without a request", vec![frame(DATA, LAST, 77, b"x")], true, false),
        ("half a setting", vec![frame(SETTINGS, 0, 0, b"xx")], true, false),
        ("more than was announced", too_long, true, true),
        ("a refusal", vec![refusal], false, true),
        ("a goodbye with an error", vec![goodbye], false, false),
    ] {
        for waiting in [true, false] {
            if of_a_request && !waiting {
                continue;
            }
            let server = FrameInjector::new();
            let client = two(&server);
            assert!(client.pool().control().ready(1, Instant::now() + PATIENCE).await);
            if waiting {
                let asking = tokio::spawn({
                    let client = client.clone();
                    async move { client.send(&Request::post("/wait", "{}"), PATIENCE).await }
                });
                eventually("it is under way", || *server.server.waiting.borrow() == 1).await;
                server.inject(&frames);
                let error = within("an end", asking).await.unwrap().unwrap_err();
                let malformed = error.cause.as_ref().map(|error| matches!(error.cause, Cause::Malformed(_)));
                assert_eq!(malformed, Some(wrong), "{what}: {error}");
            } else {
                server.inject(&frames);
            }
            if what != "a refusal" {
                eventually("replaced", || server.server.dialled.available_permits() == 2).await;
            }
            eventually("of its size", || {
                let status = client.pool().status();
                (status.open, status.closing) == (1, 0)
            })
            .await;
            let counted = client.pool().counters().wrong_answers;
            assert_eq!(counted, u64::from(wrong), "{what}, a request waiting: {waiting}");
        }
    }
}
