//! Servers that come back and have forgotten their prepared statements.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::connection::Settings;
use honeyflow_cassandra::{Session, Statement};

use super::{eventually, patient_pool};
use crate::connection::patient;
use crate::scripted::{Reply, Script, refuse, text_row};
use crate::speak::{self, Body, opcode};

/// A server that knows only the statements prepared since its last start.
#[derive(Clone)]
struct ForgetfulServer {
    script: Script,
    starts: Arc<AtomicU32>,
    /// How often each statement was prepared since the last start.
    prepared: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl ForgetfulServer {
    fn new() -> Self {
        let starts = Arc::new(AtomicU32::new(0));
        let prepared: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
        let (own_starts, own_prepared) = (starts.clone(), prepared.clone());
        let script = Script::new(move |received| match &received.request {
            RequestBody::Prepare(prepare) => {
                *own_prepared.lock().unwrap().entry(prepare.query.clone()).or_default() += 1;
                let id = format!("{}:{}", own_starts.load(Ordering::SeqCst), prepare.query);
                Reply::Answer(opcode::RESULT, speak::prepared(received.version, id.as_bytes(), &[], &[], &[]))
            }
            RequestBody::Execute(execute) => {
                let id = execute.id.clone().into_bytes().unwrap();
                let text = String::from_utf8(id.clone()).unwrap();
                if text.starts_with(&format!("{}:", own_starts.load(Ordering::SeqCst))) {
                    text_row(&text)
                } else {
                    refuse(0x2500, Body::new().short_bytes(&id))
                }
            }
            _ => Reply::Nothing,
        });
        Self { script, starts, prepared }
    }

    async fn session(&self) -> Session {
        let mut settings = patient_pool(self.script.listen().await);
        settings.discovery = false;
        Session::open(Settings::default(), settings).unwrap()
    }

    fn restart(&self) {
        self.starts.fetch_add(1, Ordering::SeqCst);
        self.prepared.lock().unwrap().clear();
        self.script.cut_all();
    }

    fn prepared(&self) -> BTreeMap<String, u32> {
        self.prepared.lock().unwrap().clone()
    }
}

fn named(n: u32) -> String {
    format!("SELECT {n:03}")
}

async fn prepared(session: &Session, count: u32) -> Vec<Statement> {
    let mut statements = Vec::new();
    for n in 0..count {
        statements.push(session.prepare(&named(n)).await.unwrap());
    }
    statements
}

#[tokio::test]
async fn cq_9_the_hundred_most_used_statements_are_prepared_at_a_returned_server() {
    let server = ForgetfulServer::new();
    let session = server.session().await;
    let statements = prepared(&session, 120).await;
    for statement in &statements[20..] {
        session.execute(statement, (), &patient()).await.unwrap();
    }
    server.restart();
    eventually("a hundred are prepared", || server.prepared().len() >= 100).await;
    let expected_at_return: BTreeMap<String, u32> = (20..120).map(|n| (named(n), 1)).collect();
    assert_eq!(server.prepared(), expected_at_return);
    // The others are prepared when they are used, and none twice.
    for n in [5, 119, 5] {
        session.execute(&statements[n], (), &patient()).await.unwrap();
    }
    let expected: BTreeMap<String, u32> = expected_at_return.into_iter().chain([(named(5), 1)]).collect();
    assert_eq!(server.prepared(), expected);
}

/// PL-166
#[tokio::test]
async fn cq_9_a_thousand_callers_prepare_each_statement_once_after_a_restart() {
    let server = ForgetfulServer::new();
    let session = server.session().await;
    let statements = prepared(&session, 10).await;
    server.restart();
    // These wait for a connection, and then run at the same time as the preparation at the returned server.
    let how = patient().idempotent();
    let all = (0..1000).map(|n| session.execute(&statements[n % 10], (), &how));
    for (n, answer) in futures_util::future::join_all(all).await.into_iter().enumerate() {
        // Only a request that was sent on the old connection may be lost.
        if let Ok(response) = answer {
            let row = response.into_rows().first::<(String,)>().unwrap().unwrap().0;
            assert_eq!(row, format!("1:{}", named(n as u32 % 10)));
        }
    }
    let how = patient();
    for statement in &statements {
        session.execute(statement, (), &how).await.unwrap();
    }
    assert_eq!(server.prepared(), (0..10).map(|n| (named(n), 1)).collect());
    // PL-71
    assert_eq!(session.pool().counters().own, [("prepared_again", 10)]);
}
