use std::time::Duration;

use honeyflow_pool::{Change, Drain, Kind, Pool, RequestOptions, Settings, State};
use tokio::time::Instant;

use crate::{
    eventually, full,
    lines::{self, Lines},
    node::Node,
    plain, within,
};

/// PL-101 PL-2
#[tokio::test]
async fn command_right_after_start() {
    let node = Node::start().await;
    let pool = Pool::start(Lines::exclusive(), plain(&[&node])).unwrap();
    let (moved, _) = pool.control().activate();
    assert_eq!((moved.before, moved.now), (State::Active, State::Active), "it is active already");
    let (moved, _) = pool.control().deactivate(Drain::within(Duration::ZERO)).await;
    assert_eq!((moved.before, moved.now), (State::Active, State::Inactive));
}

#[tokio::test]
async fn pl_2_pl_6_a_pool_starts_as_its_settings_say() {
    let node = Node::start().await;
    let disabled = Pool::start(Lines::exclusive(), Settings { enabled: false, ..plain(&[&node]) }).unwrap();
    assert_eq!(disabled.status().state, State::Disabled);
    assert_eq!(disabled.get(RequestOptions::default()).await.unwrap_err().kind, Kind::Disabled);
    let by = Instant::now() + Duration::from_secs(5);
    let refused = disabled.once(&node.server("n"), by, async |line| line.ask("x").await).await;
    assert_eq!(refused.unwrap_err().kind, Kind::Disabled);
    assert_eq!(node.accepted(), 0, "no sockets");

    let start = honeyflow_pool::settings::Start::Inactive;
    let inactive = Pool::start(Lines::exclusive(), Settings { start, ..plain(&[&node]) }).unwrap();
    assert_eq!(inactive.get(RequestOptions::default()).await.unwrap_err().kind, Kind::Inactive);
    let answer = inactive.once(&node.server("n"), by, async |line| line.ask("x").await).await;
    assert_eq!(answer.unwrap(), "x", "a one-off use works");
    eventually("the ring is known", || inactive.status().wanted == 2).await;
    assert_eq!(inactive.status().open, 0);
}

#[tokio::test]
async fn pl_3_activate_says_how_many_and_opens_in_the_background() {
    let node = Node::start().await;
    let pool = Pool::start(Lines::exclusive(), Settings { enabled: false, ..plain(&[&node]) }).unwrap();
    let control = pool.control();
    assert_eq!(control.activate().0.now, State::Disabled, "only an inactive one can be activated");
    assert_eq!(control.enable().now, State::Inactive);
    eventually("the ring is known", || pool.status().wanted == 2).await;
    let (moved, wanted) = control.activate();
    assert_eq!((moved.now, wanted), (State::Active, 2));
    assert!(control.ready(2, Instant::now() + crate::PATIENCE).await);
    eventually("two sockets at the server", || node.open() == 2).await;
    assert!(!control.ready(3, Instant::now() + Duration::from_millis(20)).await);
}

/// PL-103 PL-5
#[tokio::test]
async fn deactivate_drains() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let (kept, late) =
        (pool.get(RequestOptions::default()).await.unwrap(), pool.get(RequestOptions::default()).await.unwrap());
    let waiting = tokio::spawn({
        let pool = pool.clone();
        async move { pool.get(RequestOptions::default()).await.map(drop) }
    });
    eventually("a request waits", || pool.status().waiting.iter().sum::<usize>() == 1).await;
    let control = pool.control();
    let mut changes = control.changes();
    let draining = tokio::spawn(async move { control.deactivate(Drain::within(Duration::from_secs(2))).await });
    assert!(matches!(changes.next().await, Some(Change::State { now: State::Draining(_), .. })));
    assert_eq!(pool.get(RequestOptions::default()).await.unwrap_err().kind, Kind::Draining);
    drop(kept);
    within("the waiter is served", waiting).await.unwrap().unwrap();
    let (moved, drained) = within("drained", draining).await.unwrap();
    assert_eq!((moved.before, moved.now), (State::Active, State::Inactive));
    assert_eq!((drained.finished, drained.aborted, drained.waiters_failed, drained.closed), (2, 1, 0, 2));
    eventually("no socket is left", || node.open() == 0).await;
    drop(late);
    assert_eq!(pool.status().open, 0);
}

/// PL-118 PL-5 PL-161
#[tokio::test]
async fn drain_with_paused_server() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    node.pause(true);
    let hung = tokio::spawn({
        let pool = pool.clone();
        async move { pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await.map_err(|error| error.kind) }
    });
    eventually("the request is in flight", || pool.status().lent == 1).await;
    let begun = Instant::now();
    let (moved, drained) =
        within("the drain keeps its deadline", pool.control().close(Drain::within(Duration::from_millis(100)))).await;
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert_eq!((moved.now, drained.aborted), (State::Closed, 1));
    assert!(within("the request fails", hung).await.unwrap().is_err());
    eventually("no socket is left", || node.open() == 0).await;
}

#[tokio::test]
async fn pl_5_after_close_nothing_is_left() {
    let node = Node::start().await;
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    pool.control().close(Drain::within(Duration::from_secs(1))).await;
    assert_eq!(pool.get(RequestOptions::default()).await.unwrap_err().kind, Kind::Closed);
    eventually("no socket is left", || node.open() == 0).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("no task is left", || tasks() <= before).await;
    let (moved, _) = pool.control().close(Drain::within(Duration::ZERO)).await;
    assert_eq!((moved.before, moved.now), (State::Closed, State::Closed));
}

#[tokio::test]
async fn pl_75_dropping_the_last_handle_ends_everything() {
    let node = Node::start().await;
    let before = tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let loan = pool.get(RequestOptions::default()).await.unwrap();
    drop(pool.clone());
    drop(pool);
    assert_eq!(loan.ask("still").await.unwrap(), "still", "what is on loan may finish");
    drop(loan);
    eventually("no socket is left", || node.open() == 0).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    eventually("no task is left", || tasks() <= before).await;
}

#[tokio::test]
async fn pl_70_pl_163_status_answers_with_every_server_gone_and_the_pool_fills_again_by_itself() {
    let nodes = [Node::start().await, Node::start().await];
    let pool = full(plain(&[&nodes[0], &nodes[1]]), Lines::exclusive(), 4).await;
    for node in &nodes {
        node.stop().await;
    }
    eventually("both are down", || {
        pool.status().servers.iter().all(|server| server.state == honeyflow_pool::ServerState::Down)
    })
    .await;
    let begun = std::time::Instant::now();
    let status = pool.status();
    assert!(begun.elapsed() < Duration::from_millis(500));
    assert_eq!((status.state, status.open, status.servers.len()), (State::Active, 0, 2));
    let error = pool.get(RequestOptions::within(Duration::from_millis(30))).await.unwrap_err();
    assert!(matches!(error.kind, Kind::WaitTimeout | Kind::WouldTimeOut), "{error}");
    eventually("the cause is shown", || pool.status().servers.iter().all(|server| server.last_error.is_some())).await;
    for node in &nodes {
        node.restart().await;
    }
    assert!(pool.control().ready(4, Instant::now() + crate::PATIENCE).await, "full again without a call");
}

#[tokio::test]
async fn pl_72_listeners_get_each_change() {
    let node = Node::start().await;
    let start = honeyflow_pool::settings::Start::Inactive;
    let pool = Pool::start(Lines::exclusive(), Settings { start, ..plain(&[&node]) }).unwrap();
    let control = pool.control();
    let mut changes = control.changes();
    control.activate();
    let mut seen = Vec::new();
    while !seen.iter().any(|change| matches!(change, Change::Server { now: honeyflow_pool::ServerState::Up, .. })) {
        seen.push(within("a change", changes.next()).await.unwrap());
    }
    assert!(seen.iter().any(|change| matches!(change, Change::State { now: State::Active, .. })));
    assert_eq!(changes.dropped(), 0);
}

/// PL-72: a slow listener misses the oldest changes, and learns how many.
#[tokio::test]
async fn pl_72_what_a_slow_listener_misses_is_counted() {
    let start = honeyflow_pool::settings::Start::Inactive;
    let settings = Settings { start, servers: vec!["127.0.0.1:1".to_owned()], ..plain(&[]) };
    let pool = Pool::start(Lines::exclusive(), settings).unwrap();
    let control = pool.control();
    eventually("the ring is known", || pool.status().servers.len() == 1).await;
    let mut changes = control.changes();
    let turns = 200;
    for _ in 0..turns {
        control.activate();
        control.deactivate(Drain::within(Duration::ZERO)).await;
    }
    control.activate();
    // Per turn: active, draining, inactive. At the end active once more.
    let (made, mut read, mut last) = (turns * 3 + 1, 0, None);
    while changes.dropped() + read < made {
        last = within("the next", changes.next()).await;
        read += 1;
    }
    assert_eq!((changes.dropped() + read, read), (made, 256), "as many as are kept");
    assert!(matches!(last, Some(Change::State { now: State::Active, .. })), "{last:?}");
}

/// PL-71: the connector's own counters are exact, however often they are taken.
#[tokio::test]
async fn pl_71_the_connectors_own_counts_are_shown_and_taken() {
    let node = Node::start().await;
    let connector = Lines::exclusive();
    let greeted = connector.greeted.clone();
    let pool = full(plain(&[&node]), connector, 2).await;
    assert_eq!(pool.counters().own, [("greeted", 2)]);
    let mut sum = pool.control().take_counters();
    assert_eq!(pool.counters().own, [("greeted", 0)]);
    greeted.fetch_add(5, std::sync::atomic::Ordering::SeqCst);
    sum += pool.control().take_counters();
    sum += pool.control().take_counters();
    assert_eq!((sum.own, sum.connects_ok), (vec![("greeted", 7)], 2));
}
