use std::{collections::BTreeMap, sync::Arc, time::Duration};

use honeyflow_pool::{
    Drain, Pool, RequestOptions, ServerState, Settings,
    settings::{Filter, Start, Translate},
};
use tokio::time::Instant;

use crate::{
    PATIENCE, eventually, full,
    lines::{self, Lines},
    node::Node,
    plain,
};

fn looking(nodes: &[&Node]) -> Settings {
    Settings { discovery: true, ..plain(nodes) }
}

fn names(pool: &Pool<Lines>) -> Vec<String> {
    let mut names: Vec<String> = pool.status().servers.iter().map(|server| server.server.id.to_string()).collect();
    names.sort();
    names
}

/// PL-114 PL-51
#[tokio::test]
async fn discovery_without_first_seed() {
    let (absent, seed, other) = (Node::absent().await, Node::start().await, Node::start().await);
    let cluster = [seed.server("a"), other.server("b")];
    seed.knows(&cluster);
    other.knows(&cluster);
    let pool = full(looking(&[&absent, &seed]), Lines::exclusive(), 4).await;
    eventually("both are known by name", || names(&pool) == ["a", "b"]).await;
    seed.stop().await;
    absent.stop().await;
    let third = Node::start().await;
    other.knows(&[seed.server("a"), other.server("b"), third.server("c")]);
    eventually("the other was asked", || names(&pool) == ["a", "b", "c"]).await;
}

/// PL-114 PL-6
#[tokio::test]
async fn discovery_obeys_state() {
    let node = Node::start().await;
    node.knows(&[node.server("a")]);
    let pool = Pool::start(Lines::exclusive(), Settings { start: Start::Inactive, ..looking(&[&node]) }).unwrap();
    eventually("an inactive pool looks", || names(&pool) == ["a"]).await;
    assert_eq!((pool.status().open, node.open()), (0, 1), "over a connection of its own");
    pool.control().disable(Drain::within(Duration::ZERO)).await;
    eventually("a disabled one has no socket", || node.open() == 0).await;
    let accepted = node.accepted();
    pool.control().refresh();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(node.accepted(), accepted, "and opens none");
}

/// PL-114 PL-54: the address that a server announces is dialled, each with its own port.
#[tokio::test]
async fn native_address_is_used() {
    let (seed, other) = (Node::start().await, Node::start().await);
    assert_ne!(seed.address().port(), other.address().port());
    seed.knows(&[seed.server("a"), other.server("b")]);
    other.knows(&[seed.server("a"), other.server("b")]);
    let pool = full(looking(&[&seed]), Lines::exclusive(), 4).await;
    eventually("its own port", || other.open() >= 2).await;
    drop(pool);
}

#[tokio::test]
async fn pl_54_addresses_are_translated_and_servers_filtered() {
    let (seed, hidden, unwanted) = (Node::start().await, Node::start().await, Node::start().await);
    let announced = "10.255.0.1:9042".parse().unwrap();
    let stranger = honeyflow_pool::Server { address: announced, ..hidden.server("hidden") };
    seed.knows(&[seed.server("a"), stranger, unwanted.server("unwanted")]);
    hidden.knows(&[]);
    let settings = Settings {
        translate: Translate { table: BTreeMap::from([(announced, hidden.address())]), hook: None },
        filter: Filter {
            hook: Some(Arc::new(|server: &honeyflow_pool::Server| server.id.as_str() != "unwanted")),
            ..Filter::default()
        },
        ..looking(&[&seed])
    };
    let pool = full(settings, Lines::exclusive(), 4).await;
    eventually("known", || names(&pool) == ["a", "hidden"]).await;
    eventually("reached by translation", || hidden.open() >= 2).await;
    assert_eq!(unwanted.accepted(), 0);
}

/// PL-10 PL-54: a server that names itself by the address it was dialled at has been translated already.
#[tokio::test]
async fn pl_54_an_address_is_translated_once() {
    let node = Node::start().await;
    let announced = "10.255.0.1:9042".parse().unwrap();
    let elsewhere = "10.255.0.2:9042".parse().unwrap();
    node.knows(&[node.server("a")]);
    let table = BTreeMap::from([(announced, node.address()), (node.address(), elsewhere)]);
    let settings = Settings {
        servers: vec![announced.to_string()],
        translate: Translate { table, hook: None },
        ..looking(&[&node])
    };
    let pool = full(settings, Lines::exclusive(), 2).await;
    eventually("known by name", || names(&pool) == ["a"]).await;
    assert_eq!(pool.status().servers[0].server.address, node.address());
    assert_eq!((pool.status().open, pool.status().servers[0].state), (2, ServerState::Up));
}

#[tokio::test]
async fn pl_50_pl_167_a_notice_starts_a_round_and_one_bad_round_removes_no_server() {
    let (one, two) = (Node::start().await, Node::start().await);
    let cluster = [one.server("a"), two.server("b")];
    one.knows(&cluster[..1]);
    two.knows(&cluster);
    let pool = full(looking(&[&one]), Lines::exclusive(), 2).await;
    eventually("known by name", || names(&pool) == ["a"]).await;
    one.knows(&cluster);
    one.tell(&format!("added@{}\n", two.address()));
    eventually("the new one joined", || names(&pool) == ["a", "b"]).await;
    assert!(pool.counters().notices >= 1);
    assert!(pool.control().ready(4, Instant::now() + PATIENCE).await);
    // One bad round, on either server; the next one is good.
    let rounds = pool.counters().rounds_ok;
    one.knows(&cluster[..1]);
    two.knows(&cluster[1..]);
    pool.control().refresh();
    eventually("the bad round", || pool.counters().rounds_ok > rounds).await;
    one.knows(&cluster);
    two.knows(&cluster);
    let rounds = pool.counters().rounds_ok;
    eventually("the second look", || pool.counters().rounds_ok > rounds).await;
    assert_eq!(names(&pool), ["a", "b"]);
    pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await.unwrap();
}

#[tokio::test]
async fn pl_10_names_resolve_to_all_addresses() {
    let node = Node::start().await;
    let settings = Settings { servers: vec!["localhost".to_owned()], port: node.address().port(), ..plain(&[&node]) };
    let pool = full(settings, Lines::exclusive(), 2).await;
    let here = pool.status().servers.iter().find(|server| server.server.address == node.address()).cloned();
    assert_eq!(here.unwrap().state, ServerState::Up);
}

#[tokio::test]
async fn pl_51_a_server_that_names_no_servers_is_passed_over() {
    let (silent, seed) = (Node::start().await, Node::start().await);
    silent.knows(&[]);
    seed.knows(&[silent.server("a"), seed.server("b")]);
    let pool = full(looking(&[&silent, &seed]), Lines::exclusive(), 4).await;
    eventually("the next was asked", || names(&pool) == ["a", "b"]).await;
}
