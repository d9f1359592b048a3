//! Whole exchanges with a server that sends any reply to any request: the caller gets an answer or an error that names
//! the server, in time, and the connection's task does not vanish.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::connection::{Connection, Password, Secret, Settings};
use honeyflow_cassandra::error::{Cause, Error};
use honeyflow_cassandra::topology::{Topology, keyspaces};
use honeyflow_cassandra::{Batch, Options, Statement};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::time::Instant;

use super::*;
use crate::connection::{PATIENCE, limits, settings};
use crate::scripted::{ReceivedRequest, Reply, Script, text_row};

/// All kinds of requests, in the order of an exchange.
const REQUESTS: [&str; 11] = [
    "OPTIONS",
    "STARTUP",
    "AUTHRESPONSE",
    "REGISTER",
    "QUERY",
    "PREPARE",
    "EXECUTE",
    "BATCH",
    "system.local",
    "system.peers_v2",
    "system_schema.keyspaces",
];

fn request_name(received: &ReceivedRequest) -> &'static str {
    match &received.request {
        RequestBody::Query(query) => {
            REQUESTS.into_iter().find(|request_name| query.query.contains(request_name)).unwrap_or("QUERY")
        }
        other => {
            let word = format!("{other:?}").split(['(', ' ']).next().unwrap_or_default().to_uppercase();
            REQUESTS.into_iter().find(|request_name| word == *request_name).unwrap_or("OPTIONS")
        }
    }
}

fn good() -> Script {
    let script = Script::new(|received| match &received.request {
        RequestBody::Query(query) if query.query.contains("keyspaces") => {
            let columns =
                [("keyspace_name", Type::Text), ("replication", Type::Map(Box::new((Type::Text, Type::Text))))];
            Reply::Answer(opcode::RESULT, speak::rows(&columns, &[], None))
        }
        RequestBody::Query(query) => text_row(&query.query),
        RequestBody::Prepare(_) => {
            Reply::Answer(opcode::RESULT, speak::prepared(received.version, b"id", &[], &[], &[("text", Type::Text)]))
        }
        RequestBody::Execute(_) => text_row("executed"),
        _ => Reply::Answer(opcode::RESULT, Body::new().i32(1).0),
    });
    Script { password: Some(("bee", "honey")), ..script }
}

fn login(way: (Version, Compression)) -> Settings {
    let login = Password { user: "bee".to_owned(), password: Secret::Plain("honey".to_owned()) };
    Settings { login: Some(Arc::new(login)), ..settings(way.0, way.1) }
}

/// Opens a connection over this stream alone.
pub async fn over(stream: DuplexStream, settings: &Settings) -> Result<Connection, Error> {
    let stream = Mutex::new(Some(stream));
    let dial = || {
        let stream = stream.lock().unwrap().take();
        async move { stream.ok_or_else(|| std::io::ErrorKind::ConnectionRefused.into()) }
    };
    Connection::connect_as(&"server".into(), settings, limits(), dial).await
}

/// Sends every request, one after the other, until one fails.
async fn exchange(stream: DuplexStream, settings: &Settings) -> Result<(), Error> {
    let on = over(stream, settings).await?;
    let (how, by) = (Options::within(PATIENCE), Instant::now() + PATIENCE);
    let _notices = on.listen(by).await?;
    let rows = on.query("SELECT 1", &how).await?.into_rows();
    rows.iter().try_for_each(|row| row.map(drop)).ok();
    let statement = Statement::new("SELECT 1");
    on.execute(&statement, (), &how).await?;
    let mut batch = Batch::logged();
    batch.push(&statement, ());
    on.batch(&batch, &how).await?;
    let topology = Topology::ask(&on, ([10, 0, 0, 1], 9042).into(), by).await?;
    assert!(topology.members.len() < 100);
    keyspaces(&on, by).await.map(drop)
}

/// Checks the outcome. `Closed` would mean that a task has vanished: this test closes nothing before the first error.
fn is_typed(outcome: Result<(), Error>) -> bool {
    let Err(error) = outcome else { return true };
    assert!(error.to_string().starts_with("server "), "{error}");
    let vanished = |cause: &Cause| matches!(cause, Cause::Lost { why, .. } if matches!(**why, Cause::Closed));
    assert!(!vanished(&error.cause) && !matches!(error.cause, Cause::Closed), "{error}");
    false
}

/// PL-165: each kind of reply to each request, whole, cut and spoilt.
#[tokio::test(start_paused = true)]
async fn cq_7_any_reply_to_any_request_is_an_answer_or_a_typed_error() {
    let mut refused = 0;
    for seed in Seeds::new(3) {
        for way in [(Version::V4, Compression::None), (Version::V5, Compression::None)] {
            // After a changed reply to STARTUP, server and client would use different framings.
            let asked = REQUESTS.into_iter().filter(|request_name| way.0 == Version::V4 || *request_name != "STARTUP");
            for at in asked {
                for (kind, (opcode, body)) in corpus(way.0).into_iter().enumerate() {
                    let mut random = Random(seed.number() << 8 | kind as u64);
                    let body = match seed.number() {
                        0 => body,
                        1 => body[..random.below(body.len().max(1))].to_vec(),
                        _ => spoilt(&mut random, body),
                    };
                    let script = good().first(move |received| {
                        // A notice answers no request.
                        let stream = if opcode == opcode::EVENT { -1 } else { received.stream };
                        (request_name(received) == at).then(|| Reply::Messages(vec![(stream, opcode, body.clone())]))
                    });
                    let (client, server) = tokio::io::duplex(1 << 16);
                    let server = tokio::spawn(script.serve(server));
                    refused += usize::from(!is_typed(exchange(client, &login(way)).await));
                    server.abort();
                }
            }
        }
    }
    assert!(Seeds::are_chosen() || refused > 500, "too few were refused: {refused}");
}

/// The server's bytes are forwarded in pieces; one of them is spoilt, and then the connection is closed.
async fn spoil(seed: u64, way: (Version, Compression)) -> bool {
    let mut random = Random(seed);
    let (client, mut middle) = tokio::io::duplex(1 << 16);
    let (mut far, server) = tokio::io::duplex(1 << 16);
    let notice = |received: &ReceivedRequest| {
        let up = Body::new().string("STATUS_CHANGE").string("UP").u8(4).raw(&[127, 0, 0, 2]).i32(9042).0;
        matches!(received.request, RequestBody::Register(_))
            .then(|| Reply::Messages(vec![(-1, opcode::EVENT, up), (received.stream, opcode::READY, vec![])]))
    };
    let server = tokio::spawn(good().first(notice).serve(server));
    let carry = tokio::spawn(async move {
        let mut whole = random.below(REQUESTS.len() + 1);
        let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
        loop {
            tokio::select! {
                read = middle.read(&mut up) => match read {
                    Ok(0) | Err(_) => return,
                    Ok(read) => far.write_all(&up[..read]).await.unwrap(),
                },
                read = far.read(&mut down) => {
                    let read = read.unwrap();
                    let piece = if whole == 0 { spoilt(&mut random, down[..read].to_vec()) } else { down[..read].to_vec() };
                    if middle.write_all(&piece).await.is_err() || whole == 0 {
                        return;
                    }
                    whole -= 1;
                }
            }
        }
    });
    let good = is_typed(exchange(client, &login(way)).await);
    carry.abort();
    server.abort();
    good
}

#[tokio::test(start_paused = true)]
async fn cq_7_a_spoilt_exchange_ends_with_a_typed_error() {
    let mut wrong = 0;
    for seed in Seeds::new(60) {
        for (n, way) in WAYS.into_iter().enumerate() {
            wrong += usize::from(!spoil(seed.number() << 8 | n as u64, way).await);
        }
    }
    assert!(Seeds::are_chosen() || wrong > 120, "so few were found out: {wrong}");
}

/// A body far above the limit, announced or really sent, is refused by its header; only the received bytes are kept.
#[tokio::test(start_paused = true)]
async fn cq_7_a_huge_reply_to_any_request_is_refused_by_its_header() {
    for at in REQUESTS {
        let huge = Arc::new(AtomicUsize::new(0));
        let was_sent = Arc::new(AtomicBool::new(false));
        let (count, once) = (Arc::clone(&huge), Arc::clone(&was_sent));
        let script = good().first(move |received| {
            if request_name(received) != at || once.swap(true, Ordering::SeqCst) {
                return None;
            }
            let mut header = speak::message(Version::V4, 0, received.stream, opcode::RESULT, &[]);
            header[5..9].copy_from_slice(&(i32::MAX - 7).to_be_bytes());
            count.store(header.len(), Ordering::SeqCst);
            Some(Reply::Raw(header))
        });
        let (client, server) = tokio::io::duplex(1 << 16);
        let server = tokio::spawn(script.serve(server));
        let error = exchange(client, &login((Version::V4, Compression::None))).await.unwrap_err();
        let large = |cause: &Cause| matches!(cause, Cause::Malformed(Malformed::Large { max, .. }) if *max == 64 << 20);
        let lost = matches!(&error.cause, Cause::Lost { why, .. } if large(why));
        assert!(large(&error.cause) || lost, "{at}: {error}");
        assert!(huge.load(Ordering::SeqCst) > 0, "{at} was asked");
        server.abort();
    }
}
