//! Whole exchanges with a server that says anything at all to any question: whoever asked gets an answer or an error that
//! names the server, in time, and the task behind the connection lives until it ends by itself.

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
use crate::scripted::{Heard, Say, Script, text_row};

/// Everything that is ever asked, in the order of an exchange.
const QUESTIONS: [&str; 11] = [
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

fn question(heard: &Heard) -> &'static str {
    match &heard.request {
        RequestBody::Query(query) => {
            QUESTIONS.into_iter().find(|question| query.query.contains(question)).unwrap_or("QUERY")
        }
        other => {
            let word = format!("{other:?}").split(['(', ' ']).next().unwrap_or_default().to_uppercase();
            QUESTIONS.into_iter().find(|question| word == *question).unwrap_or("OPTIONS")
        }
    }
}

fn good() -> Script {
    let script = Script::new(|heard| match &heard.request {
        RequestBody::Query(query) if query.query.contains("keyspaces") => {
            let columns =
                [("keyspace_name", Type::Text), ("replication", Type::Map(Box::new((Type::Text, Type::Text))))];
            Say::Answer(opcode::RESULT, speak::rows(&columns, &[], None))
        }
        RequestBody::Query(query) => text_row(&query.query),
        RequestBody::Prepare(_) => {
            Say::Answer(opcode::RESULT, speak::prepared(heard.version, b"id", &[], &[], &[("text", Type::Text)]))
        }
        RequestBody::Execute(_) => text_row("executed"),
        _ => Say::Answer(opcode::RESULT, Body::new().i32(1).0),
    });
    Script { password: Some(("bee", "honey")), ..script }
}

fn login(way: (Version, Compression)) -> Settings {
    let login = Password { user: "bee".to_owned(), password: Secret::Plain("honey".to_owned()) };
    Settings { login: Some(Arc::new(login)), ..settings(way.0, way.1) }
}

/// A connection over this stream, and no other.
pub async fn over(stream: DuplexStream, settings: &Settings) -> Result<Connection, Error> {
    let stream = Mutex::new(Some(stream));
    let dial = || {
        let stream = stream.lock().unwrap().take();
        async move { stream.ok_or_else(|| std::io::ErrorKind::ConnectionRefused.into()) }
    };
    Connection::connect_as(&"server".into(), settings, limits(), dial).await
}

/// Every question, one after the other, until one is not answered well.
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

/// `Closed` is what is left to say where a task has vanished: nobody here closes anything before the first error.
fn is_typed(outcome: Result<(), Error>) -> bool {
    let Err(error) = outcome else { return true };
    assert!(error.to_string().starts_with("server "), "{error}");
    let vanished = |cause: &Cause| matches!(cause, Cause::Lost { why, .. } if matches!(**why, Cause::Closed));
    assert!(!vanished(&error.cause) && !matches!(error.cause, Cause::Closed), "{error}");
    false
}

/// PL-165: each kind of answer to each question, whole, cut and spoilt.
#[tokio::test(start_paused = true)]
async fn cq_7_any_answer_to_any_question_is_an_answer_or_a_typed_error() {
    let mut refused = 0;
    for seed in Seeds::new(3) {
        for way in [(Version::V4, Compression::None), (Version::V5, Compression::None)] {
            // After its answer to STARTUP this server and ours would not agree on how messages are framed.
            let asked = QUESTIONS.into_iter().filter(|question| way.0 == Version::V4 || *question != "STARTUP");
            for at in asked {
                for (kind, (opcode, body)) in corpus(way.0).into_iter().enumerate() {
                    let mut random = Random(seed.number() << 8 | kind as u64);
                    let body = match seed.number() {
                        0 => body,
                        1 => body[..random.below(body.len().max(1))].to_vec(),
                        _ => spoilt(&mut random, body),
                    };
                    let script = good().first(move |heard| {
                        // A notice answers nobody.
                        let stream = if opcode == opcode::EVENT { -1 } else { heard.stream };
                        (question(heard) == at).then(|| Say::Messages(vec![(stream, opcode, body.clone())]))
                    });
                    let (client, server) = tokio::io::duplex(1 << 16);
                    let server = tokio::spawn(script.talk(server));
                    refused += usize::from(!is_typed(exchange(client, &login(way)).await));
                    server.abort();
                }
            }
        }
    }
    assert!(Seeds::are_chosen() || refused > 500, "so few were found out: {refused}");
}

/// What the server sends is carried to us in pieces, and one of them is spoilt; then it hangs up.
async fn spoil(seed: u64, way: (Version, Compression)) -> bool {
    let mut random = Random(seed);
    let (client, mut middle) = tokio::io::duplex(1 << 16);
    let (mut far, server) = tokio::io::duplex(1 << 16);
    let notice = |heard: &Heard| {
        let up = Body::new().string("STATUS_CHANGE").string("UP").u8(4).raw(&[127, 0, 0, 2]).i32(9042).0;
        matches!(heard.request, RequestBody::Register(_))
            .then(|| Say::Messages(vec![(-1, opcode::EVENT, up), (heard.stream, opcode::READY, vec![])]))
    };
    let server = tokio::spawn(good().first(notice).talk(server));
    let carry = tokio::spawn(async move {
        let mut whole = random.below(QUESTIONS.len() + 1);
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

/// A body far above what is taken, announced or really sent: refused by its header, and what came is all that is kept.
#[tokio::test(start_paused = true)]
async fn cq_7_a_huge_answer_to_any_question_is_refused_by_its_header() {
    for at in QUESTIONS {
        let huge = Arc::new(AtomicUsize::new(0));
        let said = Arc::new(AtomicBool::new(false));
        let (count, once) = (Arc::clone(&huge), Arc::clone(&said));
        let script = good().first(move |heard| {
            if question(heard) != at || once.swap(true, Ordering::SeqCst) {
                return None;
            }
            let mut header = speak::message(Version::V4, 0, heard.stream, opcode::RESULT, &[]);
            header[5..9].copy_from_slice(&(i32::MAX - 7).to_be_bytes());
            count.store(header.len(), Ordering::SeqCst);
            Some(Say::Raw(header))
        });
        let (client, server) = tokio::io::duplex(1 << 16);
        let server = tokio::spawn(script.talk(server));
        let error = exchange(client, &login((Version::V4, Compression::None))).await.unwrap_err();
        let large = |cause: &Cause| matches!(cause, Cause::Malformed(Malformed::Large { max, .. }) if *max == 64 << 20);
        let lost = matches!(&error.cause, Cause::Lost { why, .. } if large(why));
        assert!(large(&error.cause) || lost, "{at}: {error}");
        assert!(huge.load(Ordering::SeqCst) > 0, "{at} was asked");
        server.abort();
    }
}
