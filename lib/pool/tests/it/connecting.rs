use std::{sync::atomic::Ordering, time::Duration};

use honeyflow_pool::{Kind, Pool, RequestOptions, ServerState, Settings, State};
use tokio::time::Instant;

use crate::{
    PATIENCE, eventually, full,
    lines::{self, Lines},
    node::Node,
    plain,
};

/// PL-102
#[tokio::test]
async fn server_down_at_start_joins_later() {
    let (here, later) = (Node::start().await, Node::absent().await);
    let pool = full(plain(&[&here, &later]), Lines::exclusive(), 2).await;
    eventually("it was tried", || pool.counters().connects_failed > 0).await;
    later.restart().await;
    assert!(pool.control().ready(4, Instant::now() + PATIENCE).await);
    eventually("counted at the server", || later.open() == 2).await;
}

/// PL-104
#[tokio::test]
async fn fewer_servers_than_tries() {
    let node = Node::start().await;
    let pool = full(Settings { tries: 10, ..plain(&[&node]) }, Lines::exclusive(), 2).await;
    let error =
        pool.with(RequestOptions::default().idempotent(), |loan| lines::ask(loan, "overloaded")).await.unwrap_err();
    assert_eq!((error.kind, error.tries.len()), (Kind::Server(0x1001), 0));
    assert_eq!(pool.status().servers.len(), 1);
    pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await.unwrap();
}

/// PL-105 PL-12 PL-164
#[tokio::test]
async fn hung_connect_blocks_nobody() {
    let (mute, here) = (Node::start().await, Node::start().await);
    mute.mute(true);
    let settings = Settings { handshake_timeout: Duration::from_secs(30), ..plain(&[&mute, &here]) };
    let pool = full(settings, Lines::exclusive(), 2).await;
    eventually("the other hangs in its greeting", || mute.open() == 2).await;
    for _ in 0..50 {
        pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await.unwrap();
    }
    let status = pool.status();
    let hung = status.servers.iter().find(|server| server.server.address == mute.address()).unwrap();
    assert_eq!((hung.state, hung.opening), (ServerState::Down, 2), "no more than two at a time");
    mute.mute(false);
    assert!(pool.control().ready(4, Instant::now() + PATIENCE).await);
}

#[tokio::test]
async fn pl_12_pl_164_silence_while_connecting_is_bounded_and_reported() {
    let mute = Node::start().await;
    mute.mute(true);
    let settings = Settings {
        tcp_timeout: Duration::from_millis(50),
        handshake_timeout: Duration::from_millis(50),
        max_backoff: Duration::from_millis(100),
        ..plain(&[&mute])
    };
    let pool = Pool::start(Lines::exclusive(), settings).unwrap();
    eventually("given up", || pool.counters().connects_timed_out >= 2).await;
    let error = pool.status().servers[0].last_error.clone().unwrap();
    assert!(error.contains("was not ready within 100ms"), "{error}");
    mute.mute(false);
    assert!(pool.control().ready(2, Instant::now() + PATIENCE).await);
}

#[tokio::test]
async fn pl_13_an_ended_connection_is_replaced() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let error = pool.with(RequestOptions::default(), |loan| lines::ask(loan, "die")).await.unwrap_err();
    assert_eq!(error.kind, Kind::Protocol);
    eventually("a third was accepted", || node.accepted() >= 3 && node.open() == 2).await;
    pool.get(RequestOptions::default()).await.unwrap().discard();
    eventually("a fourth was accepted", || node.accepted() >= 4 && node.open() == 2).await;
    node.restart().await;
    assert!(pool.control().ready(2, Instant::now() + PATIENCE).await);
    eventually("both are back", || node.open() == 2).await;
}

#[tokio::test]
async fn pl_26_pl_74_a_dead_idle_connection_leaves_when_it_dies() {
    let (one, two) = (Node::start().await, Node::start().await);
    let pool = full(plain(&[&one, &two]), Lines::exclusive(), 4).await;
    one.stop().await;
    eventually("seen without a checkout", || pool.status().idle == 2).await;
    assert_eq!((pool.counters().dead_idle, pool.counters().checkouts), (2, 0));
    for _ in 0..20 {
        pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await.unwrap();
    }
    assert_eq!(two.open(), 2, "nothing else changed");
}

#[tokio::test]
async fn pl_24_a_panic_in_the_connector_is_a_failed_connect() {
    let node = Node::start().await;
    let connector = Lines::exclusive();
    connector.panics.store(2, Ordering::SeqCst);
    let pool = full(plain(&[&node]), connector, 2).await;
    assert_eq!(pool.counters().connects_failed, 2);
    assert_eq!(pool.status().state, State::Active);
}

#[tokio::test]
async fn pl_168_a_refused_login_is_shown_and_makes_no_storm() {
    let node = Node::start().await;
    let connector = Lines::exclusive();
    connector.refuses_login.store(true, Ordering::SeqCst);
    let pool = Pool::start(connector, plain(&[&node])).unwrap();
    eventually("refused", || pool.counters().connects_failed == 2).await;
    let status = pool.status();
    assert_eq!(status.servers[0].last_error.as_deref(), Some("the login was refused"));
    assert!(status.servers[0].next_try.is_some_and(|wait| wait > Duration::from_millis(500)));
    assert_eq!(node.accepted(), 2);
}

#[tokio::test]
async fn pl_160_a_killed_server_is_down_and_the_result_of_its_requests_is_unknown() {
    let (killed, other) = (Node::start().await, Node::start().await);
    let pool = full(plain(&[&killed, &other]), Lines::shared(10), 4).await;
    let on = RequestOptions::default().on(&honeyflow_pool::Server::at(killed.address()));
    let asked = tokio::spawn({
        let (pool, on) = (pool.clone(), on.clone());
        async move { pool.with(on, |loan| lines::ask(loan, "hang")).await.map_err(|error| (error.kind, error.executed)) }
    });
    eventually("it is in flight", || pool.status().lent == 1).await;
    killed.stop().await;
    let unknown = (Kind::Protocol, honeyflow_pool::Execution::Unknown);
    assert_eq!(crate::within("it fails", asked).await.unwrap(), Err(unknown));
    eventually("down in status", || {
        pool.status().servers.iter().any(|one| one.server.address == killed.address() && one.state == ServerState::Down)
    })
    .await;
    for _ in 0..20 {
        pool.with(RequestOptions::default().idempotent(), |loan| lines::ask(loan, "x")).await.unwrap();
    }
    killed.restart().await;
    assert!(pool.control().ready(4, Instant::now() + PATIENCE).await);
}

#[cfg(feature = "planted")]
mod restarts {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize},
    };

    use honeyflow_runtime::planted;

    use super::*;

    /// PL-101 PL-73 PL-170: each task is restarted after a panic; loans, waiters and connections are not affected.
    #[tokio::test]
    async fn reconciler_restarted_while_active() {
        let node = Node::start().await;
        let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
        let (one, two) =
            (pool.get(RequestOptions::default()).await.unwrap(), pool.get(RequestOptions::default()).await.unwrap());
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move {
                pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await.map_err(|error| error.kind)
            }
        });
        eventually("a request waits", || pool.status().waiting.iter().sum::<usize>() == 1).await;
        for name in [
            "pool-openers-panic",
            "pool-watchers-panic",
            "pool-expiry-panics",
            "pool-discovery-panics",
            "pool-settings-panics",
        ] {
            planted::plant(Some(name));
            eventually("it has panicked", || {
                // Gives each task something to do.
                pool.control().refresh();
                drop(futures_now(&pool));
                planted::current().is_none()
            })
            .await;
        }
        assert_eq!(one.ask("alive").await.unwrap(), "alive");
        drop(one);
        assert_eq!(waiting.await.unwrap().unwrap(), "x");
        two.discard();
        eventually("the pool is whole again", || node.open() == 2 && pool.status().idle == 2).await;
        assert_eq!(pool.status().state, State::Active);
    }

    /// PL-74: repeated panics of discovery affect neither the ring nor the requests.
    #[tokio::test]
    async fn pl_74_requests_go_on_while_discovery_panics() {
        let nodes = [Node::start().await, Node::start().await];
        nodes.iter().for_each(|node| node.knows(&[nodes[0].server("a"), nodes[1].server("b")]));
        let settings = Settings { discovery: true, ..plain(&[&nodes[0], &nodes[1]]) };
        let pool = full(settings, Lines::shared(10), 4).await;
        let (answered, enough) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let asking = |_| {
            let (pool, answered, enough) = (pool.clone(), answered.clone(), enough.clone());
            tokio::spawn(async move {
                while !enough.load(Ordering::SeqCst) {
                    pool.with(RequestOptions::within(PATIENCE), |loan| lines::ask(loan, "x")).await.unwrap();
                    answered.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
            })
        };
        let callers: Vec<_> = (0..8).map(asking).collect();
        eventually("both have names", || pool.counters().rounds_ok > 0).await;
        // A round that fails starts discovery again. There are fewer panics than would break the pool.
        nodes.iter().for_each(|node| node.knows(&[]));
        for _ in 0..8 {
            planted::plant(Some("pool-discovery-panics"));
            eventually("it has panicked", || {
                pool.control().refresh();
                planted::current().is_none()
            })
            .await;
            let before = answered.load(Ordering::SeqCst);
            eventually("each is answered again", || answered.load(Ordering::SeqCst) >= before + 16).await;
            assert_eq!((pool.status().state, pool.status().servers.len()), (State::Active, 2));
        }
        enough.store(true, Ordering::SeqCst);
        for caller in callers {
            crate::within("all answers", caller).await.unwrap();
        }
        let rounds = pool.counters().rounds_ok;
        nodes.iter().for_each(|node| node.knows(&[nodes[0].server("a"), nodes[1].server("b")]));
        pool.control().refresh();
        eventually("it looks again", || pool.counters().rounds_ok > rounds).await;
    }

    /// Starts a request and drops it at once, which makes the tasks look.
    fn futures_now(pool: &Pool<Lines>) -> impl Sized {
        let mut get = Box::pin(pool.get(RequestOptions::within(Duration::from_millis(1))));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        let _ = std::future::Future::poll(get.as_mut(), &mut context);
    }

    /// PL-105 PL-75: a task that always panics is restarted with back-off; after more than ten panics in ten seconds
    /// the pool is broken.
    #[tokio::test]
    async fn crash_loop_backs_off() {
        let node = Node::start().await;
        let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
        let _loans =
            [pool.get(RequestOptions::default()).await.unwrap(), pool.get(RequestOptions::default()).await.unwrap()];
        let waiting = tokio::spawn({
            let pool = pool.clone();
            async move { pool.get(RequestOptions::within(PATIENCE)).await.map(drop).map_err(|error| error.kind) }
        });
        eventually("a request waits", || pool.status().waiting.iter().sum::<usize>() == 1).await;
        let begun = Instant::now();
        let mut panics = 0;
        while pool.status().state != State::Broken {
            if planted::current().is_none() {
                planted::plant(Some("pool-openers-panic"));
                panics += 1;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(begun.elapsed() < PATIENCE, "never broken");
        }
        planted::plant(None);
        assert!((11..=13).contains(&panics), "{panics} panics");
        assert_eq!(waiting.await.unwrap(), Err(Kind::Broken));
        let status = pool.status();
        assert!(status.broken_by.is_some_and(|why| why.contains("openers panicked")));
        assert_eq!(pool.get(RequestOptions::default()).await.unwrap_err().kind, Kind::Broken);
    }
}
