//! Sessions on clusters of scripted servers, each with its own port, and on a real one.

mod conditional_routing;
mod keyspace;
mod login;
mod mixed_versions;
mod orphans;
mod returned_servers;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::connection::Settings;
use honeyflow_cassandra::token::Token;
use honeyflow_cassandra::wire::{Compression, Version};
use honeyflow_cassandra::{Bind, Options, Session, Type, Value};
use honeyflow_pool::settings::{Mode, SpeculateAfter};
use honeyflow_pool::{Drain, Execution, Kind, ServerState};
use tokio::sync::Notify;
use tokio::time::Instant;
use uuid::Uuid;

use crate::connection::{PATIENCE, patient};
use crate::real::RealServer;
use crate::scripted::{ReceivedRequest, Reply, Script, refuse, text_row};
use crate::speak::{self, Body, opcode};

type ReplyInstead = fn() -> Reply;

/// The shared state of the servers of a cluster.
#[derive(Clone, Default)]
struct Cluster {
    members: Arc<Mutex<Vec<(SocketAddr, i64)>>>,
    /// The keys that were requested, with the number of the server.
    asked: Arc<Mutex<Vec<(usize, i32)>>>,
    prepares: Arc<AtomicUsize>,
    /// The reply of a server to an EXECUTE instead of the usual one.
    instead: Arc<Mutex<BTreeMap<usize, ReplyInstead>>>,
    registered: Arc<Mutex<Vec<usize>>>,
    /// The only server that knows of a schema change; it sees the others disagree.
    disagreeing: Arc<Mutex<Option<usize>>>,
    /// How often each server was asked about its own schema while it disagreed.
    compared: Arc<Mutex<BTreeMap<usize, usize>>>,
    /// If set, discovery is answered only after this notification.
    tells: Arc<Mutex<Option<Arc<Notify>>>>,
    partitioner: Arc<Mutex<&'static str>>,
    /// The number of replicas beside the first.
    more_replicas: Arc<AtomicUsize>,
}

const MURMUR3: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

impl Cluster {
    /// Starts servers; each owns the ring up to its token.
    async fn of(tokens: &[i64]) -> Self {
        let cluster = Self::default();
        for (number, token) in tokens.iter().enumerate() {
            let address = cluster.script(number).listen().await;
            cluster.members.lock().unwrap().push((address, *token));
        }
        cluster
    }

    fn script(&self, number: usize) -> Script {
        let (own, watching) = (self.clone(), self.clone());
        let script = Script::new(move |received| own.reply(number, received));
        script.first(move |received| {
            if matches!(received.request, RequestBody::Register(_)) {
                watching.registered.lock().unwrap().push(number);
            }
            None
        })
    }

    fn reply(&self, own: usize, received: &ReceivedRequest) -> Reply {
        match &received.request {
            RequestBody::Query(query) if query.query.contains("system.local") => {
                if *self.disagreeing.lock().unwrap() == Some(own) {
                    *self.compared.lock().unwrap().entry(own).or_default() += 1;
                }
                self.table(own, |number| number == own)
            }
            RequestBody::Query(query) if query.query.contains("peers_v2") => self.table(own, |number| number != own),
            RequestBody::Query(query) if query.query.contains("system_schema.keyspaces") => {
                let kind = Type::Map(Box::new((Type::Text, Type::Text)));
                let pair = |key: &str, value: &str| (Value::Text(key.to_owned()), Value::Text(value.to_owned()));
                let factor = (1 + self.more_replicas.load(Ordering::Relaxed)).to_string();
                let map = Value::Map(vec![pair("class", "SimpleStrategy"), pair("replication_factor", &factor)]);
                let cells = vec![cell(&Type::Text, &Value::Text("k".to_owned())), cell(&kind, &map)];
                let columns = [("keyspace_name", Type::Text), ("replication", kind)];
                let answer = Reply::Answer(opcode::RESULT, speak::rows(&columns, &[cells], None));
                match self.tells.lock().unwrap().clone() {
                    None => answer,
                    Some(tells) => Reply::After(tells, Box::new(answer)),
                }
            }
            RequestBody::Query(query) if query.query.starts_with("CREATE") => {
                *self.disagreeing.lock().unwrap() = Some(own);
                let body = Body::new().i32(5).string("CREATED").string("TABLE").string("k").string("t");
                Reply::Answer(opcode::RESULT, body.0)
            }
            RequestBody::Query(query) => text_row(&query.query),
            RequestBody::Prepare(_) => {
                self.prepares.fetch_add(1, Ordering::Relaxed);
                let body = speak::prepared(received.version, b"id", &[("id", Type::Int)], &[0], &[("n", Type::Int)]);
                Reply::Answer(opcode::RESULT, body)
            }
            RequestBody::Execute(execute) => {
                let values = execute.query_parameters.values.as_ref();
                let Some(peer_query::QueryValues::SimpleValues(values)) = values else { panic!("no values") };
                let peer_query::Value::Some(key) = &values[0] else { panic!("no key") };
                self.asked.lock().unwrap().push((own, i32::from_be_bytes(key.clone().try_into().unwrap())));
                if let Some(instead) = self.instead.lock().unwrap().get(&own) {
                    return instead();
                }
                let row = vec![Some(i32::try_from(own).unwrap().to_be_bytes().to_vec())];
                Reply::Answer(opcode::RESULT, speak::rows(&[("n", Type::Int)], &[row], None))
            }
            _ => Reply::Nothing,
        }
    }

    fn table(&self, own: usize, shows: impl Fn(usize) -> bool) -> Reply {
        let tokens = Type::Set(Box::new(Type::Text));
        let columns = [
            ("host_id", Type::Uuid),
            ("data_center", Type::Text),
            ("rack", Type::Text),
            ("tokens", tokens.clone()),
            ("partitioner", Type::Text),
            ("native_address", Type::Inet),
            ("native_port", Type::Int),
            ("schema_version", Type::Uuid),
        ];
        let text = |text: &str| Value::Text(text.to_owned());
        let disagreeing = *self.disagreeing.lock().unwrap() == Some(own);
        let partitioner = *self.partitioner.lock().unwrap();
        let partitioner = if partitioner.is_empty() { MURMUR3 } else { partitioner };
        let members = self.members.lock().unwrap();
        let rows = members.iter().enumerate().filter(|(number, _)| shows(*number)).map(|(number, (address, token))| {
            let schema = if disagreeing { number as u128 + 100 } else { 100 };
            vec![
                cell(&Type::Uuid, &Value::Uuid(Uuid::from_u128(number as u128 + 1))),
                cell(&Type::Text, &text("north")),
                cell(&Type::Text, &text("r1")),
                cell(&tokens, &Value::Set(vec![text(&token.to_string())])),
                cell(&Type::Text, &text(partitioner)),
                cell(&Type::Inet, &Value::Inet(address.ip())),
                cell(&Type::Int, &Value::Int(address.port().into())),
                cell(&Type::Uuid, &Value::Uuid(Uuid::from_u128(schema))),
            ]
        });
        Reply::Answer(opcode::RESULT, speak::rows(&columns, &rows.collect::<Vec<_>>(), None))
    }

    /// Opens a session that is configured with the first server only and discovers the others.
    async fn session(&self, change: impl FnOnce(&mut honeyflow_pool::Settings)) -> Session {
        let (first, count) = {
            let members = self.members.lock().unwrap();
            (members[0].0, members.len())
        };
        let mut settings = patient_pool(first);
        change(&mut settings);
        let session = Session::open(Settings::default(), settings).unwrap();
        let open = || {
            let status = session.pool().status();
            status.servers.len() == count && status.servers.iter().all(|server| server.open > 0)
        };
        let deadline = Instant::now() + PATIENCE;
        while !open() {
            assert!(Instant::now() < deadline, "the cluster was not found: {:?}", session.pool().status());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        session
    }
}

/// Settings with generous limits, for a busy machine.
fn patient_pool(server: SocketAddr) -> honeyflow_pool::Settings {
    honeyflow_pool::Settings {
        servers: vec![server.to_string()],
        tcp_timeout: Duration::from_secs(10),
        handshake_timeout: Duration::from_secs(10),
        slow_start: Duration::ZERO,
        early_refusal: false,
        ..honeyflow_pool::Settings::default()
    }
}

/// Waits until the condition is true; the deadline only stops a test that hangs.
async fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

mod peer_query {
    pub use cassandra_protocol::query::QueryValues;
    pub use cassandra_protocol::types::value::Value;
}

fn cell(kind: &Type, value: &Value) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    value.bind(kind, &mut out).unwrap();
    Some(out)
}

const SELECT: &str = "SELECT n FROM k.t WHERE id = ?";

#[tokio::test]
async fn cq_11_requests_go_to_servers_that_hold_the_data() {
    let cluster = Cluster::of(&[-3_000_000_000_000_000_000, 3_000_000_000_000_000_000, i64::MAX]).await;
    let session = cluster.session(|_| {}).await;
    let get = session.prepare(SELECT).await.unwrap();
    for id in 0..60_i32 {
        session.execute(&get, (id,), &patient()).await.unwrap();
    }
    let owner = |id: i32| match Token::of_key(&id.to_be_bytes()).0 {
        ..=-3_000_000_000_000_000_000 => 0,
        -2_999_999_999_999_999_999..=3_000_000_000_000_000_000 => 1,
        _ => 2,
    };
    let asked = cluster.asked.lock().unwrap().clone();
    assert_eq!(asked.len(), 60);
    for (server, id) in asked {
        assert_eq!(server, owner(id), "{id}");
    }
    // Without token awareness, requests go to any server.
    cluster.asked.lock().unwrap().clear();
    let blind = session.clone().token_aware(false);
    let only_one = (0..).find(|id| owner(*id) == 1).unwrap();
    for _ in 0..60 {
        blind.execute(&get, (only_one,), &patient()).await.unwrap();
    }
    let elsewhere = cluster.asked.lock().unwrap().iter().filter(|(server, _)| *server != 1).count();
    assert!(elsewhere > 0);
}

#[tokio::test]
async fn cq_13_notices_are_requested_from_one_server_alone() {
    let cluster = Cluster::of(&[0, 1, 2]).await;
    let _session = cluster.session(|_| {}).await;
    assert_eq!(*cluster.registered.lock().unwrap(), [0]);
}

#[tokio::test]
async fn cq_9_a_statement_is_prepared_once_at_each_server_that_executes_it() {
    let cluster = Cluster::of(&[0, i64::MAX]).await;
    let session = cluster.session(|_| {}).await;
    for id in 0..40_i32 {
        let get = session.prepare(SELECT).await.unwrap();
        session.execute(&get, (id,), &patient()).await.unwrap();
    }
    assert_eq!(cluster.prepares.load(Ordering::Relaxed), 2);
}

/// Returns an id whose data is at this server of two; the first one owns all tokens up to 0.
fn id_at(server: usize) -> i32 {
    (0..).find(|id: &i32| usize::from(Token::of_key(&id.to_be_bytes()).0 > 0) == server).unwrap()
}

#[tokio::test]
async fn cq_15_a_request_to_an_overloaded_server_is_retried_elsewhere_if_that_is_harmless() {
    let cluster = Cluster::of(&[0, i64::MAX]).await;
    let session = cluster.session(|_| {}).await;
    let get = session.prepare(SELECT).await.unwrap();
    let at = id_at(0);
    session.execute(&get, (at,), &patient()).await.unwrap();
    cluster.instead.lock().unwrap().insert(0, || refuse(0x1001, Body::new()));
    let rows = session.execute(&get, (at,), &patient().idempotent()).await.unwrap().into_rows();
    assert_eq!(rows.first::<(i32,)>().unwrap(), Some((1,)));
    let error = session.execute(&get, (at,), &patient()).await.unwrap_err();
    assert_eq!((error.kind, error.executed), (Kind::Server(0x1001), Execution::Unknown));
    // A wrong request is wrong at every server.
    cluster.instead.lock().unwrap().insert(0, || refuse(0x2200, Body::new()));
    cluster.asked.lock().unwrap().clear();
    let error = session.execute(&get, (at,), &patient().idempotent()).await.unwrap_err();
    assert_eq!((error.kind, error.executed), (Kind::Server(0x2200), Execution::No));
    assert!(!error.transient());
    assert_eq!(cluster.asked.lock().unwrap().len(), 1);
}

/// The same requests on connections that carry one request at a time.
#[tokio::test]
async fn cq_16_exclusive_connections_do_what_shared_ones_do() {
    for mode in [Mode::Shared, Mode::Exclusive] {
        let cluster = Cluster::of(&[0, i64::MAX]).await;
        let session = cluster.session(|settings| settings.mode = mode).await;
        let get = session.prepare(SELECT).await.unwrap();
        let how = patient().idempotent();
        let all = (0..200_i32).map(|id| session.execute(&get, (id,), &how)).collect::<Vec<_>>();
        for answer in futures_util::future::join_all(all).await {
            answer.unwrap();
        }
        // A request that times out costs at most its connection.
        cluster.instead.lock().unwrap().insert(0, || Reply::Nothing);
        let brief = Options::within(Duration::from_millis(50));
        let error = session.execute(&get, (id_at(0),), &brief).await.unwrap_err();
        assert_eq!((error.kind, error.executed), (Kind::UseTimeout, Execution::Unknown), "{mode:?}: {error}");
        cluster.instead.lock().unwrap().clear();
        for id in 0..50_i32 {
            let rows = session.execute(&get, (id,), &how).await.unwrap().into_rows();
            assert!(rows.first::<(i32,)>().unwrap().is_some());
        }
        // Closing the pool closes its connections.
        session.pool().control().close(Drain::within(PATIENCE)).await;
        assert_eq!(session.execute(&get, (1_i32,), &how).await.unwrap_err().kind, Kind::Closed);
    }
}

/// PL-85
#[tokio::test]
async fn cq_11_a_second_server_is_asked_beside_a_silent_one_for_idempotent_statements_only() {
    let cluster = Cluster::of(&[0, i64::MAX]).await;
    let session = cluster.session(|settings| {
        settings.speculate_after = SpeculateAfter::Time(Duration::from_millis(20));
        settings.speculate_budget = 100;
    });
    let session = session.await;
    let get = session.prepare(SELECT).await.unwrap();
    let at = id_at(0);
    session.execute(&get, (at,), &patient()).await.unwrap();
    cluster.instead.lock().unwrap().insert(0, || Reply::Nothing);
    let rows = session.execute(&get, (at,), &patient().idempotent()).await.unwrap().into_rows();
    assert_eq!(rows.first::<(i32,)>().unwrap(), Some((1,)));
    let brief = Options::within(Duration::from_millis(200));
    for (statement, how) in [
        (get.clone(), brief.clone()),
        // A conditional statement must not run at two servers at once, although it is marked as idempotent.
        (get.clone().conditional(true), brief.idempotent()),
    ] {
        cluster.asked.lock().unwrap().clear();
        let error = session.execute(&statement, (at,), &how).await.unwrap_err();
        assert_eq!(error.executed, Execution::Unknown);
        assert_eq!(*cluster.asked.lock().unwrap(), [(0, at)]);
    }
}

/// The schema change also uses a connection that was opened before discovery gave its server an id.
#[tokio::test]
async fn cq_13_a_schema_change_of_this_session_waits_until_the_servers_agree() {
    let cluster = Cluster::of(&[0, i64::MAX]).await;
    let tells = Arc::new(Notify::new());
    *cluster.tells.lock().unwrap() = Some(Arc::clone(&tells));
    let first = cluster.members.lock().unwrap()[0].0;
    let session = Session::open(Settings::default(), patient_pool(first)).unwrap();
    eventually("it is full", || session.pool().status().open == session.pool().status().wanted.max(1)).await;
    assert_eq!(session.pool().status().servers.len(), 1, "discovery has not ended yet");
    *cluster.tells.lock().unwrap() = None;
    tells.notify_one();
    eventually("both are known", || session.pool().status().servers.len() == 2).await;
    let changing = session.clone();
    let change = tokio::spawn(async move { changing.query("CREATE TABLE k.t", &patient()).await.unwrap() });
    eventually("it is changed", || cluster.disagreeing.lock().unwrap().is_some()).await;
    let changed = cluster.disagreeing.lock().unwrap().expect("just now");
    let compared = || cluster.compared.lock().unwrap().get(&changed).copied().unwrap_or_default();
    eventually("it is asked, and again", || compared() >= 2).await;
    // Other requests continue meanwhile. The other server does not know of the change, and is not asked about it.
    for _ in 0..20 {
        session.query("SELECT 1", &patient()).await.unwrap();
    }
    assert!(!change.is_finished());
    *cluster.disagreeing.lock().unwrap() = None;
    change.await.unwrap();
}

#[tokio::test]
async fn an_error_names_the_server_and_the_cause() {
    let cluster = Cluster::of(&[0]).await;
    let session = cluster.session(|_| {}).await;
    let get = session.prepare(SELECT).await.unwrap();
    let error = session.execute(&get, ("one",), &patient()).await.unwrap_err();
    let address = cluster.members.lock().unwrap()[0].0;
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("column id: text does not fit int"), "{cause}");
}

#[tokio::test]
async fn cq_14_a_real_cluster_is_written_and_read_page_by_page() {
    let Some(real) = RealServer::server() else { return };
    for (keyspace, version) in [("session_v4", Version::V4), ("session_v5", Version::V5)] {
        let session = Session::open(real.settings(version, Compression::Lz4), patient_pool(real.address)).unwrap();
        for statement in [
            format!("DROP KEYSPACE IF EXISTS {keyspace}"),
            format!(
                "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}"
            ),
            format!("CREATE TABLE {keyspace}.t (id int, n int, PRIMARY KEY (id, n))"),
        ] {
            session.query(&statement, &patient()).await.unwrap();
        }
        let put = session.prepare(&format!("INSERT INTO {keyspace}.t (id, n) VALUES (?, ?)")).await.unwrap();
        let how = patient().idempotent();
        let all = (0..500_i32).map(|n| session.execute(&put, (1_i32, n), &how)).collect::<Vec<_>>();
        for written in futures_util::future::join_all(all).await {
            written.unwrap();
        }
        let get = session.prepare(&format!("SELECT n FROM {keyspace}.t WHERE id = ?")).await.unwrap();
        let mut pages = session.pages(&get, (1_i32,), &patient().page_size(90));
        let mut read = Vec::new();
        let mut count = 0;
        while let Some(rows) = pages.next().await {
            count += 1;
            read.extend(rows.unwrap().typed::<(i32,)>().map(|row| row.unwrap().0));
        }
        assert_eq!(count, 6);
        assert_eq!(read, (0..500).collect::<Vec<_>>());
    }
}
