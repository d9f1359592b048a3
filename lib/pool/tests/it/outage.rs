//! The error of a request when no server can be used: it names each server and what is wrong with it. The pool recovers
//! by itself afterwards.

use std::time::Duration;

use honeyflow_pool::{Execution, Kind, Pool, RequestOptions, Server, ServerState, Settings, settings::WhenEmpty};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    PATIENCE, eventually, full,
    lines::{self, Lines},
    node::Node,
    plain, within,
};

const SHORT: Duration = Duration::from_millis(150);

fn impatient(nodes: &[&Node]) -> Settings {
    Settings {
        max_backoff: Duration::from_millis(100),
        // Requests wait until their deadline.
        early_refusal: false,
        ..plain(nodes)
    }
}

/// The time limit of connects that are meant to exceed it. The other cases have a longer limit, so that a test machine
/// that stalls is not mistaken for a silent server.
const TOO_LONG: Duration = Duration::from_millis(50);

/// How a server misbehaves, the kind of the error, and a part of its text.
type Case = (fn(&Node), Kind, &'static str);

const CASES: [Case; 5] = [
    (|node| node.greets(b"denied\n"), Kind::Login, "the login was refused"),
    (|node| node.greets(b"hello 9\n"), Kind::Connect, "the server speaks version 9"),
    (|node| node.greets(b"\x16\x03\x01\xff\xfe\n"), Kind::Protocol, "invalid utf-8 sequence"),
    (|node| node.greets(b""), Kind::Protocol, "the connection is gone"),
    (|node| node.mute(true), Kind::Connect, "was not ready within 100ms"),
];

async fn error_names_fault_and_pool_recovers((misbehave, kind, said): Case, discovery: bool) {
    let node = Node::start().await;
    node.knows(&[node.server("a")]);
    misbehave(&node);
    let mut settings = Settings { discovery, ..impatient(&[&node]) };
    if said.contains("within 100ms") {
        (settings.tcp_timeout, settings.handshake_timeout) = (TOO_LONG, TOO_LONG);
    }
    let pool = Pool::start(Lines::shared(4), settings).unwrap();
    eventually("it was tried", || pool.status().servers.iter().any(|server| server.last_error.is_some())).await;
    let error = within("the deadline", pool.get(RequestOptions::within(SHORT))).await.unwrap_err();
    assert_eq!((error.kind, error.executed, error.transient()), (Kind::WaitTimeout, Execution::No, true));
    let outage = error.outage.as_ref().unwrap_or_else(|| panic!("{said}: {error}"));
    let trouble = outage.down[0].trouble.as_ref().unwrap();
    assert_eq!((outage.down.len(), outage.down[0].server.address, trouble.kind), (1, node.address(), kind), "{error}");
    assert!(trouble.why.contains(said), "{error}");
    let text = error.to_string();
    assert!(text.contains(&node.address().to_string()) && text.contains(said), "{text}");
    assert_eq!(error.login_refused(), kind == Kind::Login);
    assert_eq!(pool.status().servers[0].last_error_kind, Some(kind));
    node.behaves();
    // A login that was refused three times is not tried again for 30 s.
    assert!(pool.control().ready(2, Instant::now() + 3 * PATIENCE).await, "{said}: {:?}", pool.status());
    assert_eq!(pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await.unwrap(), "x");
    assert_eq!(pool.status().servers[0].last_error, None);
}

/// PL-90 PL-164 PL-165 PL-168
#[tokio::test]
async fn pl_90_an_error_names_the_server_and_its_fault_and_the_pool_recovers() {
    let mut cases = JoinSet::new();
    for case in CASES {
        cases.spawn(error_names_fault_and_pool_recovers(case, false));
        cases.spawn(error_names_fault_and_pool_recovers(case, true));
    }
    cases.join_all().await;
}

/// PL-90 PL-163
#[tokio::test]
async fn pl_90_with_every_server_gone_each_is_named_with_its_cause() {
    let nodes = [Node::start().await, Node::start().await];
    let pool = full(impatient(&[&nodes[0], &nodes[1]]), Lines::exclusive(), 4).await;
    for node in &nodes {
        node.stop().await;
    }
    eventually("both were tried again", || {
        let refused = |why: &str| why.contains("Connection refused");
        pool.status().servers.iter().all(|server| server.last_error.as_deref().is_some_and(refused))
    })
    .await;
    let error = within("the deadline", pool.get(RequestOptions::within(SHORT))).await.unwrap_err();
    assert_eq!((error.kind, error.transient(), error.server.as_ref()), (Kind::WaitTimeout, true, None));
    let outage = error.outage.as_ref().expect("none was usable");
    assert_eq!((outage.down.len(), outage.more), (2, 0));
    for node in &nodes {
        let down = outage.down.iter().find(|down| down.server.address == node.address()).expect("named");
        let trouble = down.trouble.as_ref().expect("tried");
        assert_eq!(trouble.kind, Kind::Protocol, "as this connector judges a stream that failed");
        let text = error.to_string();
        assert!(text.contains(&format!("{}: the stream failed: Connection refused", node.address())), "{text}");
    }
    for node in &nodes {
        node.restart().await;
    }
    assert!(pool.control().ready(4, Instant::now() + PATIENCE).await, "full again without a call");
    let held = [0; 4].map(|_| pool.get(RequestOptions::default()));
    let mut loans = Vec::new();
    for get in held {
        loans.push(get.await.unwrap());
    }
    let busy = within("the deadline", pool.get(RequestOptions::within(SHORT))).await.unwrap_err();
    assert_eq!((busy.kind, busy.outage.as_ref()), (Kind::WaitTimeout, None), "all in use is no outage: {busy}");
}

/// PL-90 PL-10
#[tokio::test]
async fn pl_90_an_error_names_a_name_that_cannot_be_looked_up() {
    for discovery in [false, true] {
        let servers = vec!["no-such-host.invalid:9042".to_owned()];
        let settings = Settings { servers, discovery, ..impatient(&[]) };
        let pool = Pool::start(Lines::exclusive(), settings).unwrap();
        eventually("it was looked up", || pool.status().discovery_error.is_some()).await;
        let error = within("the deadline", pool.get(RequestOptions::within(SHORT))).await.unwrap_err();
        let outage = error.outage.as_ref().expect("none was usable");
        assert!(outage.down.is_empty() && outage.names.is_some(), "{error}");
        assert!(error.to_string().contains("no-such-host.invalid:9042 cannot be looked up"), "{error}");
    }
}

/// PL-90 PL-25
#[tokio::test]
async fn pl_90_an_error_of_a_request_for_one_server_is_about_that_server() {
    let (node, absent) = (Node::start().await, Node::absent().await);
    let pool = full(impatient(&[&node, &absent]), Lines::exclusive(), 2).await;
    eventually("it was tried", || {
        let down =
            |server: &honeyflow_pool::ServerStatus| server.state == ServerState::Down && server.last_error.is_some();
        pool.status().servers.iter().any(down)
    })
    .await;
    let gone = Server::at(absent.address());
    let error = pool.get(RequestOptions::default().on(&gone)).await.unwrap_err();
    assert_eq!((error.kind, error.server.as_ref()), (Kind::ServerDown, Some(&gone)));
    let told = format!("{gone}: has no open connection: the stream failed: Connection refused");
    assert!(error.to_string().starts_with(&told), "{error}");
    let stranger = Server::at("127.9.9.9:1".parse().unwrap());
    let error = pool.get(RequestOptions::default().on(&stranger)).await.unwrap_err();
    assert!(error.to_string().starts_with("127.9.9.9:1: is not a server of this pool ("), "{error}");
    let by = Instant::now() + SHORT;
    node.mute(true);
    let error = pool.once(&node.server("n"), by, async |line| line.ask("x").await).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with(&format!("{}: could not be connected to: was not ready within ", node.address())),
        "{text}"
    );
}

/// PL-90 PL-86: the error names the server that was tried and the server that could not be tried.
#[tokio::test]
async fn pl_90_the_error_of_a_retry_without_a_server_names_both_servers() {
    let (node, absent) = (Node::start().await, Node::absent().await);
    let settings = Settings { when_empty: WhenEmpty::Fail, ..impatient(&[&node, &absent]) };
    let pool = full(settings, Lines::shared(4), 2).await;
    eventually("it was tried", || pool.counters().connects_failed > 0).await;
    let want = RequestOptions::within(PATIENCE).idempotent();
    let error = within("the error", pool.with(want, |loan| lines::ask(loan, "die"))).await.unwrap_err();
    assert_eq!((error.kind, error.tries.len()), (Kind::NoConnection, 1), "{error}");
    assert_eq!(error.tries[0].0.address, node.address());
    let text = error.to_string();
    assert!(text.contains(&format!("; before, {}: the connection is gone", node.address())), "{text}");
    assert!(text.contains(&format!("{}: the stream failed: Connection refused", absent.address())), "{text}");
}
