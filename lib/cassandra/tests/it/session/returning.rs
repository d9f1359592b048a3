//! Servers that come back and have forgotten what they had prepared.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::connection::Settings;
use honeyflow_cassandra::{Session, Statement};

use super::{eventually, patient_pool};
use crate::connection::patient;
use crate::scripted::{Say, Script, refuse, text_row};
use crate::speak::{self, Body, opcode};

/// One server that knows only what it was told since its last start.
#[derive(Clone)]
struct Forgetful {
    script: Script,
    life: Arc<AtomicU32>,
    /// Of this life: how often each statement was prepared.
    prepared: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Forgetful {
    fn new() -> Self {
        let life = Arc::new(AtomicU32::new(0));
        let prepared: Arc<Mutex<BTreeMap<String, u32>>> = Arc::default();
        let (own_life, own_prepared) = (life.clone(), prepared.clone());
        let script = Script::new(move |heard| match &heard.request {
            RequestBody::Prepare(prepare) => {
                *own_prepared.lock().unwrap().entry(prepare.query.clone()).or_default() += 1;
                let id = format!("{}:{}", own_life.load(Ordering::SeqCst), prepare.query);
                Say::Answer(opcode::RESULT, speak::prepared(heard.version, id.as_bytes(), &[], &[], &[]))
            }
            RequestBody::Execute(execute) => {
                let id = execute.id.clone().into_bytes().unwrap();
                let text = String::from_utf8(id.clone()).unwrap();
                if text.starts_with(&format!("{}:", own_life.load(Ordering::SeqCst))) {
                    text_row(&text)
                } else {
                    refuse(0x2500, Body::new().short_bytes(&id))
                }
            }
            _ => Say::Nothing,
        });
        Self { script, life, prepared }
    }

    async fn session(&self) -> Session {
        let mut settings = patient_pool(self.script.listen().await);
        settings.discovery = false;
        Session::open(Settings::default(), settings).unwrap()
    }

    fn restart(&self) {
        self.life.fetch_add(1, Ordering::SeqCst);
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
async fn cq_9_a_server_that_returns_is_told_the_hundred_statements_used_most() {
    let server = Forgetful::new();
    let session = server.session().await;
    let statements = prepared(&session, 120).await;
    for statement in &statements[20..] {
        session.execute(statement, (), &patient()).await.unwrap();
    }
    server.restart();
    eventually("a hundred are prepared", || server.prepared().len() >= 100).await;
    let told: BTreeMap<String, u32> = (20..120).map(|n| (named(n), 1)).collect();
    assert_eq!(server.prepared(), told);
    // The rest when it is used, and nothing twice.
    for n in [5, 119, 5] {
        session.execute(&statements[n], (), &patient()).await.unwrap();
    }
    let expected: BTreeMap<String, u32> = told.into_iter().chain([(named(5), 1)]).collect();
    assert_eq!(server.prepared(), expected);
}

/// PL-166
#[tokio::test]
async fn cq_9_a_thousand_callers_prepare_each_statement_once_after_a_restart() {
    let server = Forgetful::new();
    let session = server.session().await;
    let statements = prepared(&session, 10).await;
    server.restart();
    // These wait for a connection, and then come together with what a returned server is told.
    let how = patient().idempotent();
    let all = (0..1000).map(|n| session.execute(&statements[n % 10], (), &how));
    for (n, answer) in futures_util::future::join_all(all).await.into_iter().enumerate() {
        // One that was sent to the end of the old connection is lost with it; nobody else may be.
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
