//! A real server that is paused, killed and started again while a session uses it. It takes seconds to start, so one
//! test covers all faults.

use std::sync::Arc;
use std::time::Duration;

use honeyflow_cassandra::connection::{Password, Secret, Settings};
use honeyflow_cassandra::{Options, Session, Statement};
use honeyflow_pool::{Execution, Kind, ServerState};
use tokio::time::Instant;

use crate::connection::{PATIENCE, patient};

const CONNECTIONS: u32 = 2;

struct Workload {
    session: Session,
    put: Statement,
    get: Statement,
}

impl Workload {
    async fn new(url: &str) -> Workload {
        let (login, place) = url.strip_prefix("cassandra://").and_then(|rest| rest.split_once('@')).unwrap();
        let (user, password) = login.split_once(':').unwrap();
        let login = Password { user: user.to_owned(), password: Secret::Plain(password.to_owned()) };
        let settings = Settings { login: Some(Arc::new(login)), ..Settings::default() };
        let servers = honeyflow_pool::Settings {
            servers: vec![place.trim_end_matches('/').to_owned()],
            early_refusal: false,
            // Generous limits: this machine may be busy.
            tcp_timeout: Duration::from_secs(10),
            handshake_timeout: Duration::from_secs(10),
            ..honeyflow_pool::Settings::default()
        };
        let session = Session::open(settings, servers).unwrap();
        for statement in [
            "CREATE KEYSPACE faults WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
            "CREATE TABLE faults.t (id int PRIMARY KEY, n int)",
        ] {
            session.query(statement, &patient()).await.unwrap();
        }
        let put = session.prepare("INSERT INTO faults.t (id, n) VALUES (?, ?)").await.unwrap();
        let get = session.prepare("SELECT * FROM faults.t WHERE id = ?").await.unwrap();
        Workload { session, put, get }
    }

    async fn works(&self, n: i32) {
        let how = patient().idempotent();
        // A request on a connection that is only now found dead may be lost.
        let by = Instant::now() + PATIENCE;
        while let Err(error) = self.session.execute(&self.put, (1_i32, n), &how).await {
            assert!(error.transient() && Instant::now() < by, "{error}: {:?}", error.cause);
        }
        let rows = self.session.execute(&self.get, (1_i32,), &how).await.unwrap().into_rows();
        assert_eq!(rows.first::<(i32, i32)>().unwrap(), Some((1, n)));
    }

    async fn eventually(&self, what: &str, is_so: impl Fn(&honeyflow_pool::Status) -> bool) {
        let by = Instant::now() + PATIENCE;
        while !is_so(&self.session.pool().status()) {
            assert!(Instant::now() < by, "never: {what}: {:?}", self.session.pool().status());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn is_full(&self) {
        self.eventually("it is full", |status| status.open == CONNECTIONS && status.closing == 0).await;
        // The server must see the same: the connections of the pool, and the one for notices.
        let by = Instant::now() + PATIENCE;
        loop {
            let how = patient().idempotent();
            let rows = self.session.query("SELECT driver_name FROM system_views.clients", &how).await;
            let names =
                rows.map(|rows| rows.into_rows().typed::<(Option<String>,)>().map(|row| row.unwrap().0).collect());
            let names: Vec<Option<String>> = names.unwrap_or_default();
            let own = names.iter().flatten().filter(|name| *name == "honeyflow-cassandra").count();
            if own == CONNECTIONS as usize + 1 {
                return;
            }
            assert!(Instant::now() < by, "{own} connections at the server: {names:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

/// PL-160, PL-161, PL-163
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pl_160_a_real_server_paused_killed_and_started_again_is_served_as_before() {
    let start = tokio::task::spawn_blocking(honeyflow_services::throwaway_cassandra);
    let Some(mut node) = start.await.unwrap() else { return };
    let field = Workload::new(node.url()).await;
    field.works(1).await;
    field.is_full().await;

    // Paused: a request ends at its deadline, and its outcome is unknown.
    node.pause();
    let brief = Options::within(Duration::from_millis(300));
    let error = field.session.execute(&field.put, (2_i32, 2_i32), &brief).await.unwrap_err();
    assert_eq!((error.kind, error.executed), (Kind::UseTimeout, Execution::Unknown), "{error}");
    assert!(!error.transient(), "it may have been executed");
    node.resume();
    field.works(3).await;
    field.is_full().await;

    // Killed: the pool notices it at once, and requests for that server fail at once.
    let node = tokio::task::spawn_blocking(move || {
        node.kill();
        node
    });
    let mut node = node.await.unwrap();
    field.eventually("it is down", |status| status.servers[0].state == ServerState::Down).await;
    let error = field.session.execute(&field.put, (1_i32, 4_i32), &brief).await.unwrap_err();
    assert_eq!((error.executed, error.transient()), (Execution::No, true), "{error}");
    let status = field.session.pool().status();
    assert!(status.servers[0].last_error.is_some(), "the status says why: {status:?}");

    // Started again: the pool reconnects without a request, and prepared statements work as before.
    let node = tokio::task::spawn_blocking(move || {
        node.start().unwrap();
        node
    });
    let node = node.await.unwrap();
    field.is_full().await;
    field.works(5).await;
    tokio::task::spawn_blocking(move || drop(node)).await.unwrap();
}
