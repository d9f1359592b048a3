//! What a request is told when no server can be used: which there are and what is wrong with each. And that the pool finds
//! back by itself once that is over.

use std::time::Duration;

use honeyflow_pool::{Executed, Kind, Pool, Server, ServerState, Settings, Want, settings::WhenEmpty};
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
        // Whoever waits is to wait until its deadline.
        early_refusal: false,
        ..plain(nodes)
    }
}

/// A connect may take so long where it is to take too long: elsewhere a machine that stalls would be taken for the server.
const TOO_LONG: Duration = Duration::from_millis(50);

/// What a server does wrong, of what kind that is, and what is said of it.
type Case = (fn(&Node), Kind, &'static str);

const CASES: [Case; 5] = [
    (|node| node.greets(b"denied\n"), Kind::Login, "the login was refused"),
    (|node| node.greets(b"hello 9\n"), Kind::Connect, "the server speaks version 9"),
    (|node| node.greets(b"\x16\x03\x01\xff\xfe\n"), Kind::Protocol, "invalid utf-8 sequence"),
    (|node| node.greets(b""), Kind::Protocol, "the connection is gone"),
    (|node| node.mute(true), Kind::Connect, "was not ready within 100ms"),
];

async fn is_told_and_passes((misbehave, kind, said): Case, discovery: bool) {
    let node = Node::start().await;
    node.knows(&[node.server("a")]);
    misbehave(&node);
    let mut settings = Settings { discovery, ..impatient(&[&node]) };
    if said.contains("within 100ms") {
        (settings.tcp_timeout, settings.handshake_timeout) = (TOO_LONG, TOO_LONG);
    }
    let pool = Pool::start(Lines::shared(4), settings).unwrap();
    eventually("it was tried", || pool.status().servers.iter().any(|server| server.last_error.is_some())).await;
    let error = within("the deadline", pool.get(Want::within(SHORT))).await.unwrap_err();
    assert_eq!((error.kind, error.executed, error.transient()), (Kind::WaitTimeout, Executed::No, true));
    let outage = error.outage.as_ref().unwrap_or_else(|| panic!("{said}: {error}"));
    let trouble = outage.down[0].trouble.as_ref().unwrap();
    assert_eq!((outage.down.len(), outage.down[0].server.address, trouble.kind), (1, node.address(), kind), "{error}");
    assert!(trouble.why.contains(said), "{error}");
    let text = error.to_string();
    assert!(text.contains(&node.address().to_string()) && text.contains(said), "{text}");
    assert_eq!(error.login_refused(), kind == Kind::Login);
    assert_eq!(pool.status().servers[0].last_error_kind, Some(kind));
    node.behaves();
    // A login that was refused for the third time meanwhile is not tried for half a minute.
    assert!(pool.control().ready(2, Instant::now() + 3 * PATIENCE).await, "{said}: {:?}", pool.status());
    assert_eq!(pool.with(Want::default(), |loan| lines::ask(loan, "x")).await.unwrap(), "x");
    assert_eq!(pool.status().servers[0].last_error, None);
}

/// PL-90 PL-164 PL-165 PL-168
#[tokio::test]
async fn pl_90_whatever_is_wrong_with_a_server_is_told_with_its_name_and_passes() {
    let mut cases = JoinSet::new();
    for case in CASES {
        cases.spawn(is_told_and_passes(case, false));
        cases.spawn(is_told_and_passes(case, true));
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
    let error = within("the deadline", pool.get(Want::within(SHORT))).await.unwrap_err();
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
    let held = [0; 4].map(|_| pool.get(Want::default()));
    let mut loans = Vec::new();
    for get in held {
        loans.push(get.await.unwrap());
    }
    let busy = within("the deadline", pool.get(Want::within(SHORT))).await.unwrap_err();
    assert_eq!((busy.kind, busy.outage.as_ref()), (Kind::WaitTimeout, None), "all in use is no outage: {busy}");
}

/// PL-90 PL-10
#[tokio::test]
async fn pl_90_a_name_that_leads_nowhere_is_told() {
    for discovery in [false, true] {
        let servers = vec!["no-such-host.invalid:9042".to_owned()];
        let settings = Settings { servers, discovery, ..impatient(&[]) };
        let pool = Pool::start(Lines::exclusive(), settings).unwrap();
        eventually("it was looked up", || pool.status().discovery_error.is_some()).await;
        let error = within("the deadline", pool.get(Want::within(SHORT))).await.unwrap_err();
        let outage = error.outage.as_ref().expect("none was usable");
        assert!(outage.down.is_empty() && outage.names.is_some(), "{error}");
        assert!(error.to_string().contains("no-such-host.invalid:9042 cannot be looked up"), "{error}");
    }
}

/// PL-90 PL-25
#[tokio::test]
async fn pl_90_who_wants_one_server_hears_of_that_one() {
    let (node, absent) = (Node::start().await, Node::absent().await);
    let pool = full(impatient(&[&node, &absent]), Lines::exclusive(), 2).await;
    eventually("it was tried", || {
        let down =
            |server: &honeyflow_pool::ServerStatus| server.state == ServerState::Down && server.last_error.is_some();
        pool.status().servers.iter().any(down)
    })
    .await;
    let gone = Server::at(absent.address());
    let error = pool.get(Want::default().on(&gone)).await.unwrap_err();
    assert_eq!((error.kind, error.server.as_ref()), (Kind::ServerDown, Some(&gone)));
    let told = format!("{gone}: has no open connection: the stream failed: Connection refused");
    assert!(error.to_string().starts_with(&told), "{error}");
    let stranger = Server::at("127.9.9.9:1".parse().unwrap());
    let error = pool.get(Want::default().on(&stranger)).await.unwrap_err();
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

/// PL-90 PL-86: what was tried before and what could not be tried are both told.
#[tokio::test]
async fn pl_90_a_further_try_that_finds_nobody_tells_of_both_servers() {
    let (node, absent) = (Node::start().await, Node::absent().await);
    let settings = Settings { when_empty: WhenEmpty::Fail, ..impatient(&[&node, &absent]) };
    let pool = full(settings, Lines::shared(4), 2).await;
    eventually("it was tried", || pool.counters().connects_failed > 0).await;
    let want = Want::within(PATIENCE).idempotent();
    let error = within("the error", pool.with(want, |loan| lines::ask(loan, "die"))).await.unwrap_err();
    assert_eq!((error.kind, error.tries.len()), (Kind::NoConnection, 1), "{error}");
    assert_eq!(error.tries[0].0.address, node.address());
    let text = error.to_string();
    assert!(text.contains(&format!("; before, {}: the connection is gone", node.address())), "{text}");
    assert!(text.contains(&format!("{}: the stream failed: Connection refused", absent.address())), "{text}");
}
