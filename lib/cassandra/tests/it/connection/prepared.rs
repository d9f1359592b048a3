//! Prepared statements: prepared once per server and again when forgotten; rows are read by the columns that came.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cassandra_protocol::frame::message_request::RequestBody;
use cassandra_protocol::types::{CBytes, CBytesShort};
use honeyflow_cassandra::error::Cause;
use honeyflow_cassandra::wire::{Compression, Version};
use honeyflow_cassandra::{Batch, Statement, Type};
use tokio::time::Instant;

use super::{PATIENCE, connect, connected, patient, settings};
use crate::scripted::{ReceivedRequest, Reply, Script, refuse};
use crate::speak::{self, Body, opcode};

/// A server that remembers prepared statements until the test makes it forget them. Every execution returns 7.
#[derive(Clone, Default)]
struct PreparingServer {
    known: Arc<Mutex<HashSet<Vec<u8>>>>,
    prepares: Arc<AtomicUsize>,
    flags: Arc<Mutex<Vec<u8>>>,
}

impl PreparingServer {
    fn script(&self) -> Script {
        let memory = self.clone();
        Script::new(move |received| memory.reply(received))
    }

    fn reply(&self, received: &ReceivedRequest) -> Reply {
        let unprepared = |id: &[u8]| refuse(0x2500, Body::new().short_bytes(id));
        match &received.request {
            RequestBody::Prepare(prepare) => {
                self.prepares.fetch_add(1, Ordering::Relaxed);
                let id = prepare.query.clone().into_bytes();
                self.known.lock().unwrap().insert(id.clone());
                let columns = [("n", Type::Int)];
                let body = speak::prepared(received.version, &id, &[("id", Type::Int)], &[0], &columns);
                Reply::Answer(opcode::RESULT, body)
            }
            RequestBody::Execute(execute) => {
                let id = execute.id.clone().into_bytes().unwrap();
                if !self.known.lock().unwrap().contains(&id) {
                    return unprepared(&id);
                }
                self.flags.lock().unwrap().push(execute_flags(received));
                let row = vec![Some(7_i32.to_be_bytes().to_vec())];
                let skip = execute_flags(received) & 2 != 0;
                let body =
                    if skip { speak::bare_rows(1, &[row]) } else { speak::rows(&[("n", Type::Int)], &[row], None) };
                Reply::Answer(opcode::RESULT, body)
            }
            RequestBody::Batch(_) if self.known.lock().unwrap().is_empty() => unprepared(b"?"),
            RequestBody::Batch(_) => Reply::Answer(opcode::RESULT, Body::new().i32(1).0),
            _ => Reply::Nothing,
        }
    }

    fn forget(&self) {
        self.known.lock().unwrap().clear();
    }

    fn prepares(&self) -> usize {
        self.prepares.load(Ordering::Relaxed)
    }
}

/// Reads the flags of an EXECUTE, which the other implementation does not expose.
fn execute_flags(received: &ReceivedRequest) -> u8 {
    let skip = |at: usize| at + 2 + usize::from(u16::from_be_bytes([received.body[at], received.body[at + 1]]));
    let after_id = skip(0);
    match received.version {
        Version::V4 => received.body[after_id + 2],
        Version::V5 => received.body[skip(after_id) + 2 + 3],
    }
}

#[tokio::test]
async fn cq_9_a_statement_is_prepared_once_for_many_concurrent_callers() {
    let memory = PreparingServer::default();
    let connection = connected(&memory.script()).await;
    let statement = Statement::new("SELECT n FROM t WHERE id = ?");
    let all = (0..100).map(|_| connection.execute(&statement, (1_i32,), &HOW)).collect::<Vec<_>>();
    for answer in futures_util::future::join_all(all).await {
        assert_eq!(answer.unwrap().into_rows().first::<(i32,)>().unwrap(), Some((7,)));
    }
    assert_eq!(memory.prepares(), 1);
}

static HOW: std::sync::LazyLock<honeyflow_cassandra::Options> = std::sync::LazyLock::new(patient);

/// PL-166
#[tokio::test]
async fn cq_9_a_forgotten_statement_is_prepared_once_more_and_executed() {
    let memory = PreparingServer::default();
    let connection = connected(&memory.script()).await;
    let statement = Statement::new("SELECT n FROM t WHERE id = ?");
    connection.execute(&statement, (1_i32,), &HOW).await.unwrap();
    memory.forget();
    let all = (0..1000).map(|_| connection.execute(&statement, (1_i32,), &HOW)).collect::<Vec<_>>();
    for answer in futures_util::future::join_all(all).await {
        assert_eq!(answer.unwrap().into_rows().first::<(i32,)>().unwrap(), Some((7,)));
    }
    assert_eq!(memory.prepares(), 2);
}

#[tokio::test]
async fn cq_9_batches_are_prepared_again_too_each_statement_once() {
    let memory = PreparingServer::default();
    let connection = connected(&memory.script()).await;
    let (one, two) = (Statement::new("INSERT 1"), Statement::new("INSERT 2"));
    let mut batch = Batch::logged();
    for n in 0..5_i32 {
        batch.push(&one, (n,));
        batch.push(&two, (n,));
    }
    batch.push_text("DELETE FROM t WHERE id = 3");
    connection.batch(&batch, &HOW).await.unwrap();
    assert_eq!(memory.prepares(), 2);
    memory.forget();
    connection.batch(&batch, &HOW).await.unwrap();
    assert_eq!(memory.prepares(), 4);
}

#[tokio::test]
async fn cq_9_a_server_that_never_remembers_is_tried_twice_and_no_more() {
    let memory = PreparingServer::default();
    let script = memory.script().first(|received| match &received.request {
        RequestBody::Execute(_) => Some(refuse(0x2500, Body::new().short_bytes(b"id"))),
        _ => None,
    });
    let connection = connected(&script).await;
    let error = connection.execute(&Statement::new("SELECT n"), (1_i32,), &HOW).await.unwrap_err();
    assert!(error.to_string().contains("statement not prepared"), "{error}");
    assert_eq!(memory.prepares(), 2);
}

#[tokio::test]
async fn cq_9_a_statement_is_prepared_at_each_server_separately() {
    let (first, second) = (PreparingServer::default(), PreparingServer::default());
    let statement = Statement::new("SELECT n FROM t WHERE id = ?");
    for memory in [&first, &second] {
        let connection = connected(&memory.script()).await;
        connection.prepare(&statement, Instant::now() + PATIENCE).await.unwrap();
        connection.execute(&statement, (1_i32,), &HOW).await.unwrap();
    }
    assert_eq!((first.prepares(), second.prepares()), (1, 1));
}

#[tokio::test]
async fn cq_10_version_4_always_requests_the_columns_unless_they_are_fixed() {
    let memory = PreparingServer::default();
    let connection = connect(&memory.script(), &settings(Version::V4, Compression::None)).await.unwrap();
    let statement = Statement::new("SELECT n FROM t WHERE id = ?");
    connection.execute(&statement, (1_i32,), &HOW).await.unwrap();
    let fixed = statement.columns_fixed();
    let rows = connection.execute(&fixed, (1_i32,), &HOW).await.unwrap().into_rows();
    assert_eq!(rows.first::<(i32,)>().unwrap(), Some((7,)));
    let skips: Vec<u8> = memory.flags.lock().unwrap().iter().map(|flags| flags & 2).collect();
    assert_eq!(skips, [0, 2]);
}

/// The server reports changed columns and their new id.
#[tokio::test]
async fn cq_10_version_5_follows_a_change_of_columns() {
    let memory = PreparingServer::default();
    let ids = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&ids);
    let script = memory.script().first(move |received| {
        let RequestBody::Execute(execute) = &received.request else { return None };
        let id = execute.result_metadata_id.clone().and_then(CBytesShort::into_bytes).unwrap();
        seen.lock().unwrap().push(String::from_utf8(id.clone()).unwrap());
        let cells = Body::new().i32(1).bytes(Some(&9_i64.to_be_bytes())).bytes(Some(b"new"));
        let body = if id == b"columns-2" {
            Body::new().i32(2).i32(4).i32(2)
        } else {
            let start = Body::new().i32(2).i32(1 | 8).i32(2).short_bytes(b"columns-2").string("k").string("t");
            start.string("n").kind(&Type::Bigint).string("added").kind(&Type::Text)
        };
        Some(Reply::Answer(opcode::RESULT, body.raw(&cells.0).0))
    });
    let connection = connect(&script, &settings(Version::V5, Compression::None)).await.unwrap();
    let statement = Statement::new("SELECT * FROM t WHERE id = ?");
    for _ in 0..2 {
        let rows = connection.execute(&statement, (1_i32,), &HOW).await.unwrap().into_rows();
        assert_eq!(rows.first::<(i64, &str)>().unwrap(), Some((9, "new")));
    }
    assert_eq!(*ids.lock().unwrap(), ["columns-1", "columns-2"]);
}

/// PL-71: such an answer is wrong, unless the caller declared the columns as fixed and version 4 did not send them.
#[tokio::test]
async fn cq_10_rows_of_another_width_than_their_columns_are_refused() {
    let statement = Statement::new("SELECT n");
    for (version, statement, wrong) in [
        (Version::V5, statement.clone(), true),
        (Version::V5, statement.clone().columns_fixed(), true),
        (Version::V4, statement.clone(), true),
        (Version::V4, statement.columns_fixed(), false),
    ] {
        let memory = PreparingServer::default();
        let script = memory.script().first(|received| match &received.request {
            RequestBody::Execute(_) => Some(Reply::Answer(opcode::RESULT, speak::bare_rows(2, &[vec![None, None]]))),
            _ => None,
        });
        let connection = connect(&script, &settings(version, Compression::None)).await.unwrap();
        let error = connection.execute(&statement, (1_i32,), &HOW).await.unwrap_err();
        assert!(matches!(error.cause, Cause::Malformed(_)), "{error}");
        assert_eq!(connection.answered_wrongly(), wrong, "{version}");
        if wrong {
            tokio::time::timeout(PATIENCE, connection.closed()).await.expect("it gets no further request");
        }
        assert_eq!(connection.broken(), wrong, "{version}");
    }
}

#[tokio::test]
async fn values_that_do_not_fit_are_refused_before_they_are_sent() {
    let memory = PreparingServer::default();
    let script = memory.script();
    let connection = connected(&script).await;
    let statement = Statement::new("SELECT n FROM t WHERE id = ?");
    let error = connection.execute(&statement, ("one",), &HOW).await.unwrap_err();
    assert!(error.to_string().ends_with("was not asked: column id: text does not fit int"), "{error}");
    let received = script.received();
    assert_eq!(received.iter().filter(|word| *word == "EXECUTE").count(), 0, "{received:?}");
}

#[tokio::test]
async fn cq_14_pages_follow_one_another() {
    let page = |from: i32, next: Option<&[u8]>| {
        let rows: Vec<speak::Cells> = (from..from + 2).map(|n| vec![Some(n.to_be_bytes().to_vec())]).collect();
        Reply::Answer(opcode::RESULT, speak::rows(&[("n", Type::Int)], &rows, next))
    };
    let script = Script::new(move |received| match &received.request {
        RequestBody::Query(query) => {
            assert_eq!(query.query_params.page_size, Some(2));
            match query.query_params.paging_state.clone().and_then(CBytes::into_bytes).as_deref() {
                None => page(0, Some(b"two")),
                Some(b"two") => page(2, None),
                other => panic!("{other:?}"),
            }
        }
        _ => Reply::Nothing,
    });
    let connection = connected(&script).await;
    let how = patient().page_size(2);
    let first = connection.query("SELECT n FROM t", &how).await.unwrap().into_rows();
    let next = first.next_page().unwrap().clone();
    let second = connection.query("SELECT n FROM t", &how.page(next)).await.unwrap().into_rows();
    assert_eq!(second.next_page(), None);
    let all: Vec<(i32,)> = first.typed().chain(second.typed()).collect::<Result<_, _>>().unwrap();
    assert_eq!(all, [(0,), (1,), (2,), (3,)]);
}
