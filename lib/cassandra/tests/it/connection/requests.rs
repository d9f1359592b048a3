//! Many requests on one connection: order, deadlines, orphans, notices, and how it ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::connection::Settings;
use honeyflow_cassandra::error::{Cause, Executed};
use honeyflow_cassandra::wire::{Compression, Notice, Version};
use honeyflow_cassandra::{Malformed, Options};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::{PATIENCE, connect, connected, patient, text};
use crate::scripted::{ReceivedRequest, Reply, Script, text_row};
use crate::speak::{self, Body, opcode};

fn asked(received: &ReceivedRequest) -> &str {
    match &received.request {
        RequestBody::Query(query) => &query.query,
        _ => "",
    }
}

fn row(received: &ReceivedRequest) -> (i16, u8, Vec<u8>) {
    let Reply::Answer(opcode, body) = text_row(asked(received)) else { unreachable!() };
    (received.stream, opcode, body)
}

#[tokio::test]
async fn cq_1_answers_in_any_order_reach_their_callers() {
    let held = Mutex::new(Vec::new());
    // Replies come in groups of ten, the last request first.
    let script = Script::new(move |received| {
        let mut held = held.lock().unwrap();
        held.push(row(received));
        if held.len() < 10 { Reply::Nothing } else { Reply::Messages(held.drain(..).rev().collect()) }
    });
    let connection = connected(&script).await;
    let asked: Vec<_> = (0..200)
        .map(|n| {
            let connection = connection.clone();
            tokio::spawn(async move { (n, text(connection.query(&format!("SELECT {n}"), &patient()).await.unwrap())) })
        })
        .collect();
    for one in asked {
        let (n, answer) = one.await.unwrap();
        assert_eq!(answer, format!("SELECT {n}"));
    }
    assert_eq!(connection.in_flight(), 0);
}

/// PL-109
#[tokio::test]
async fn cq_8_a_late_answer_reaches_no_other_request() {
    let late = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&late);
    let script = Script::new(move |received| {
        let mut slot = slot.lock().unwrap();
        match asked(received) {
            "SELECT slow" => {
                *slot = Some(row(received));
                Reply::Nothing
            }
            "SELECT flush" => Reply::Messages([slot.take(), Some(row(received))].into_iter().flatten().collect()),
            _ => {
                // The stream of the abandoned request is not used by another one.
                assert!(slot.as_ref().is_none_or(|(stream, _, _)| *stream != received.stream));
                text_row(asked(received))
            }
        }
    });
    let connection = connected(&script).await;
    let hasty = Options::within(Duration::from_millis(30));
    let error = connection.query("SELECT slow", &hasty).await.unwrap_err();
    assert!(matches!(error.cause, Cause::Silent { asked: "QUERY", .. }), "{error}");
    assert_eq!(error.cause.executed(), Executed::Unknown);
    assert!(!connection.broken(), "one late answer is no reason to close");
    assert_eq!(connection.in_flight(), 1);
    for n in 0..50 {
        let statement = format!("SELECT {n}");
        assert_eq!(text(connection.query(&statement, &patient()).await.unwrap()), statement);
    }
    assert_eq!(text(connection.query("SELECT flush", &patient()).await.unwrap()), "SELECT flush");
    assert_eq!(connection.in_flight(), 0);
}

#[tokio::test]
async fn cq_8_too_many_orphans_end_the_connection_once_only_orphans_use_it() {
    let script = Script::new(
        |received| if asked(received) == "SELECT slow" { Reply::Nothing } else { text_row(asked(received)) },
    );
    let few = Settings { orphans_max: 2, orphan_age_max: Duration::from_secs(3600), ..Settings::default() };
    let connection = connect(&script, &few).await.unwrap();
    let hasty = Options::within(Duration::from_millis(30));
    for _ in 0..3 {
        connection.query("SELECT slow", &hasty).await.unwrap_err();
    }
    tokio::time::timeout(PATIENCE, connection.closed()).await.unwrap();
    assert!(connection.broken());
    let aged = Settings { orphan_age_max: Duration::from_millis(1), ..Settings::default() };
    let old = connect(&script, &aged).await.unwrap();
    old.query("SELECT slow", &hasty).await.unwrap_err();
    tokio::time::timeout(PATIENCE, old.closed()).await.unwrap();
}

#[tokio::test]
async fn cq_1_an_answer_without_a_request_ends_the_connection() {
    for stream in [5000_i16, 77, -2] {
        let script = Script::new(move |_| Reply::Messages(vec![(stream, opcode::RESULT, Body::new().i32(1).0)]));
        let connection = connected(&script).await;
        let error = connection.query("INSERT", &patient()).await.unwrap_err();
        assert!(error.to_string().contains(&format!("never sent (stream {stream})")), "{error}");
        let Cause::Lost { why, sent: true } = &error.cause else { panic!("{error}") };
        assert!(matches!(**why, Cause::Stranger(found) if found == stream));
        assert_eq!(error.cause.executed(), Executed::Unknown);
        tokio::time::timeout(PATIENCE, connection.closed()).await.unwrap();
        assert!(connection.answered_wrongly());
        let after = connection.query("INSERT", &patient()).await.unwrap_err();
        assert!(matches!(after.cause, Cause::Lost { sent: false, .. }));
        assert_eq!(after.cause.executed(), Executed::No);
    }
}

#[tokio::test]
async fn cq_4_a_wrong_checksum_ends_the_connection_and_is_the_cause() {
    let mut segment = bytes::BytesMut::new();
    let ready = speak::message(Version::V5, 0, 0, opcode::READY, &[]);
    honeyflow_cassandra::wire::segment::append(&ready, true, Compression::None, &mut segment);
    let last = segment.len() - 1;
    segment[last] ^= 1;
    let script = Script::new(move |_| Reply::Raw(segment.to_vec()));
    let connection = connected(&script).await;
    let error = connection.query("SELECT 1", &patient()).await.unwrap_err();
    let Cause::Lost { why, .. } = &error.cause else { panic!("{error}") };
    assert!(matches!(**why, Cause::Malformed(Malformed::Checksum { part: "payload" })), "{error}");
    assert!(connection.broken() && connection.answered_wrongly());
}

#[tokio::test]
async fn cq_7_a_body_that_cannot_be_read_ends_the_connection() {
    let script = Script::new(|_| Reply::Answer(opcode::RESULT, Body::new().i32(2).i32(1).i32(i32::MAX).0));
    let connection = connected(&script).await;
    let error = connection.query("SELECT 1", &patient()).await.unwrap_err();
    assert!(matches!(error.cause, Cause::Malformed(_)), "{error}");
    tokio::time::timeout(PATIENCE, connection.closed()).await.unwrap();
    assert!(connection.answered_wrongly());
}

#[tokio::test]
async fn a_server_that_closes_leaves_requests_of_unknown_outcome() {
    let script = Script::new(|_| Reply::Close);
    let connection = connected(&script).await;
    let error = connection.query("INSERT", &patient()).await.unwrap_err();
    assert!(matches!(error.cause, Cause::Lost { sent: true, .. }), "{error}");
    assert!(error.to_string().contains("closed the connection"), "{error}");
    assert!(connection.ended().is_some() && !connection.answered_wrongly());
}

#[tokio::test]
async fn a_connection_to_a_server_that_reads_nothing_fails() {
    let script = Script::new(|_| Reply::Hang);
    let impatient = Settings { write_timeout: Duration::from_millis(100), ..Settings::default() };
    let connection = connect(&script, &impatient).await.unwrap();
    let long = format!("SELECT '{}'", "x".repeat(8 << 20));
    let how = patient();
    let asked = (0..8).map(|_| connection.query(&long, &how));
    let errors = futures_util::future::join_all(asked).await;
    let stuck = |cause: &Cause| matches!(cause, Cause::Lost { why, .. } if matches!(**why, Cause::Stuck(_)));
    assert!(errors.iter().all(|one| stuck(&one.as_ref().unwrap_err().cause)));
}

#[tokio::test]
async fn cq_13_notices_reach_the_subscriber() {
    let sent = AtomicBool::new(false);
    let script = Script::new(move |received| {
        let address = Body::new().u8(4).raw(&[127, 0, 0, 2]).i32(9042).0;
        let status = Body::new().string("STATUS_CHANGE").string("DOWN").raw(&address).0;
        let added = Body::new().string("TOPOLOGY_CHANGE").string("NEW_NODE").raw(&address).0;
        let later = Body::new().string("WEATHER_CHANGE").string("RAIN").0;
        let mut messages = vec![row(received)];
        if !sent.swap(true, Ordering::Relaxed) {
            messages.extend([status, later, added].map(|body| (-1, opcode::EVENT, body)));
        }
        Reply::Messages(messages)
    });
    let connection = connected(&script).await;
    let mut notices = connection.listen(Instant::now() + PATIENCE).await.unwrap();
    assert_eq!(script.received().last().map(String::as_str), Some("REGISTER"));
    connection.query("SELECT 1", &patient()).await.unwrap();
    let at = "127.0.0.2:9042".parse().unwrap();
    assert_eq!(notices.recv().await, Some(Notice::Down(at)));
    assert_eq!(notices.recv().await, Some(Notice::Other("WEATHER_CHANGE".to_owned())));
    assert_eq!(notices.recv().await, Some(Notice::Added(at)));
    connection.close(Instant::now()).await;
    assert_eq!(notices.recv().await, None);
}

/// PL-103: requests in flight may finish, later ones are refused.
#[tokio::test]
async fn a_closing_connection_lets_requests_finish() {
    let release = Arc::new(Notify::new());
    let (seen, mut was_seen) = mpsc::unbounded_channel();
    let held = Arc::clone(&release);
    let script = Script::new(move |received| {
        seen.send(()).unwrap();
        Reply::After(Arc::clone(&held), Box::new(text_row(asked(received))))
    });
    let connection = connected(&script).await;
    let clone = connection.clone();
    let under_way = tokio::spawn(async move { clone.query("SELECT 1", &patient()).await });
    was_seen.recv().await.unwrap();
    let clone = connection.clone();
    let closing = tokio::spawn(async move { clone.close(Instant::now() + PATIENCE).await });
    let newcomer = loop {
        match connection.query("SELECT 2", &Options::within(Duration::from_millis(20))).await {
            Err(error) if matches!(error.cause, Cause::Lost { .. }) => break error,
            _ => {}
        }
    };
    assert_eq!(newcomer.cause.executed(), Executed::No);
    assert!(!under_way.is_finished() && !closing.is_finished());
    release.notify_one();
    assert_eq!(text(under_way.await.unwrap().unwrap()), "SELECT 1");
    closing.await.unwrap();
}

#[tokio::test]
async fn a_probe_finds_whether_the_server_answers() {
    let connection = connected(&Script::echo()).await;
    assert!(connection.probe(Instant::now() + PATIENCE).await);
    let before = connection.last_read();
    assert!(connection.probe(Instant::now() + PATIENCE).await);
    assert!(connection.last_read() >= before);
    let count = std::sync::atomic::AtomicUsize::new(0);
    let once = Script::echo().first(move |received| match received.request {
        RequestBody::Options(_) if count.fetch_add(1, Ordering::Relaxed) > 0 => Some(Reply::Nothing),
        _ => None,
    });
    let connection = connected(&once).await;
    assert!(!connection.probe(Instant::now() + Duration::from_millis(30)).await);
}

/// CQ-14
#[tokio::test]
async fn cq_14_a_conditional_statement_cannot_have_a_timestamp() {
    let script = Script::echo();
    let connection = connected(&script).await;
    let how = patient().timestamp(17);
    let error = connection.query("UPDATE t SET v = 1 WHERE k = 1 IF v = 2", &how).await.unwrap_err();
    assert!(matches!(error.cause, Cause::TimestampOnConditional), "{error}");
    assert_eq!(script.received(), ["OPTIONS", "STARTUP"]);
    assert!(connection.query("UPDATE t SET v = 1 WHERE k = 1", &how).await.is_ok());
}

#[tokio::test]
async fn a_refusal_names_the_server_and_its_message() {
    let script = Script::new(|_| crate::scripted::refuse(0x2000, Body::new()));
    let connection = connected(&script).await;
    let error = connection.query("SELEC", &patient()).await.unwrap_err();
    let server = connection.server();
    assert_eq!(error.to_string(), format!("{server} refused: syntax error: because"));
    assert!(!connection.broken());
}
