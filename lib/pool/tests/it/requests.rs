use std::{
    collections::HashSet,
    error::Error as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use honeyflow_pool::{Execution, Kind, RequestOptions, Server, ServerState, Settings, settings::SpeculateAfter};
use honeyflow_runtime::Class;
use tokio::{
    sync::{Barrier, Notify},
    time::Instant,
};

use crate::{
    eventually, full,
    lines::{self, Lines},
    node::Node,
    plain, within,
};

#[tokio::test]
async fn pl_22_both_modes_answer_alike() {
    for connector in [Lines::exclusive(), Lines::shared(100)] {
        let nodes = [Node::start().await, Node::start().await];
        let pool = full(plain(&[&nodes[0], &nodes[1]]), connector, 4).await;
        let asked: Vec<_> = (0..200)
            .map(|number| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    let text = format!("n{number}");
                    let answer = pool.with(RequestOptions::default(), |loan| lines::ask(loan, &text)).await.unwrap();
                    assert_eq!(answer, text, "the answer of another request");
                })
            })
            .collect();
        for one in asked {
            within("an answer", one).await.unwrap();
        }
        assert!(nodes.iter().all(|node| node.answered() > 20), "both served");
        assert_eq!(nodes.iter().map(Node::open).sum::<usize>(), 4, "no more connections than wanted");
    }
}

/// PL-108 PL-24 PL-90
#[tokio::test]
async fn closure_error_keeps_cause() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let error = pool.with(RequestOptions::default(), |loan| lines::ask(loan, "!no such table")).await.unwrap_err();
    assert_eq!(error.kind, Kind::Server(42));
    assert_eq!(error.source().unwrap().to_string(), "the server answered !no such table");
    assert_eq!(error.server.as_ref().map(|server| server.address), Some(node.address()));
    assert!(error.to_string().starts_with(&node.address().to_string()), "{error}");
    assert!(!error.to_string().contains('\n'));
    assert_eq!((error.class(), error.transient()), (Class::Reject, false));
    assert_eq!(pool.status().idle, 2, "the connection is as good as before");
}

#[tokio::test]
async fn pl_24_a_panic_in_the_closure_reaches_the_caller_and_the_pool_stays_whole() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let panicking = tokio::spawn({
        let pool = pool.clone();
        async move {
            let _ = pool
                .with(RequestOptions::default(), |loan| async move {
                    assert_eq!(loan.ask("x").await.unwrap(), "y", "planted");
                    Ok(())
                })
                .await;
        }
    });
    assert!(panicking.await.unwrap_err().is_panic());
    eventually("its connection was replaced", || node.accepted() == 3 && pool.status().idle == 2).await;
}

/// PL-109 PL-20
#[tokio::test]
async fn timeout_frees_capacity() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    for _ in 0..6 {
        let want = RequestOptions::within(Duration::from_millis(30));
        let error = within("the deadline", pool.with(want, |loan| lines::ask(loan, "hang"))).await.unwrap_err();
        assert!(matches!(error.kind, Kind::UseTimeout | Kind::WaitTimeout | Kind::WouldTimeOut), "{error}");
    }
    assert!(pool.control().ready(2, Instant::now() + crate::PATIENCE).await);
    assert_eq!(pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await.unwrap(), "x");
    eventually("the cut off ones are gone", || node.open() == 2).await;
}

/// This holds also without a transport that reports requests in flight.
#[tokio::test]
async fn pl_20_a_use_that_was_dropped_costs_its_exclusive_connection() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let dropped = tokio::spawn({
        let pool = pool.clone();
        async move { pool.with(RequestOptions::default(), |loan| async move { loan.ask("hang").await }).await.is_ok() }
    });
    eventually("it is in flight", || pool.status().lent == 1).await;
    dropped.abort();
    eventually("closed and replaced", || node.accepted() == 3 && node.open() == 2).await;
    pool.with(RequestOptions::default(), |loan| async move { loan.ask("x").await }).await.unwrap();
    assert_eq!(node.accepted(), 3, "a finished use costs nothing");
}

#[tokio::test]
async fn pl_90_pl_91_a_time_out_says_that_it_may_have_been_executed() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::shared(10), 2).await;
    let ask = |want: RequestOptions| pool.with(want, |loan| lines::ask(loan, "hang"));
    let error = ask(RequestOptions::within(Duration::from_millis(30))).await.unwrap_err();
    assert_eq!((error.kind, error.executed, error.class()), (Kind::UseTimeout, Execution::Unknown, Class::Reject));
    assert!(error.to_string().contains("it may have been executed"), "{error}");
    let error = ask(RequestOptions::within(Duration::from_millis(30)).idempotent()).await.unwrap_err();
    assert_eq!((error.class(), error.transient()), (Class::Retry, true));
    let error = pool.with(RequestOptions::default(), |loan| lines::ask(loan, "overloaded")).await.unwrap_err();
    assert_eq!((error.class(), error.retry_after), (Class::RetryAfter, Some(Duration::from_secs(1))));
}

/// PL-109
#[tokio::test]
async fn late_answer_reaches_nobody() {
    for connector in [Lines::exclusive(), Lines::shared(2)] {
        let node = Node::start().await;
        let shared = connector.streams > 1;
        let pool = full(Settings { connections_per_server: Some(1), ..plain(&[&node]) }, connector, 1).await;
        node.pause(true);
        let want = RequestOptions::within(Duration::from_millis(50));
        let error = pool.with(want, |loan| lines::ask(loan, "late")).await.unwrap_err();
        assert_eq!(error.kind, Kind::UseTimeout);
        if shared {
            assert_eq!(pool.status().servers[0].orphans, 1);
        }
        node.pause(false);
        for number in 0..10 {
            let text = format!("n{number}");
            assert_eq!(pool.with(RequestOptions::default(), |loan| lines::ask(loan, &text)).await.unwrap(), text);
        }
        if shared {
            eventually("the stream is free again", || pool.status().servers[0].orphans == 0).await;
            assert_eq!((pool.counters().late_answers, node.accepted()), (1, 1), "one time-out closes nothing");
        }
    }
}

/// PL-165: data that is no answer ends the connection it came on, and no other connection.
#[tokio::test]
async fn pl_165_a_malformed_answer_ends_one_connection_and_a_second_answer_ends_none() {
    for connector in [Lines::exclusive(), Lines::shared(4)] {
        let node = Node::start().await;
        let pool = full(plain(&[&node]), connector, 2).await;
        let other = pool.get(RequestOptions::default()).await.unwrap();
        assert_eq!(pool.with(RequestOptions::default(), |loan| lines::ask(loan, "twice")).await.unwrap(), "once");
        for number in 0..4 {
            let text = format!("n{number}");
            assert_eq!(pool.with(RequestOptions::default(), |loan| lines::ask(loan, &text)).await.unwrap(), text);
        }
        assert_eq!(node.accepted(), 2, "no connection was replaced");
        let error = pool.with(RequestOptions::default(), |loan| lines::ask(loan, "nonsense")).await.unwrap_err();
        assert_eq!((error.kind, error.executed), (Kind::Protocol, Execution::Unknown), "{error}");
        assert_eq!(other.ask("still here").await.unwrap(), "still here");
        eventually("replaced", || node.accepted() == 3 && node.open() == 2 && pool.status().open == 2).await;
        drop(other);
    }
}

#[tokio::test]
async fn pl_23_pl_169_cancelling_at_any_point_loses_nothing() {
    for connector in [Lines::exclusive(), Lines::shared(3)] {
        let node = Node::start().await;
        let pool = full(plain(&[&node]), connector, 2).await;
        for round in 0..300_u64 {
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let pool = pool.clone();
                    tokio::spawn(async move {
                        pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await.is_ok()
                    })
                })
                .collect();
            for _ in 0..round % 17 {
                tokio::task::yield_now().await;
            }
            tasks.iter().step_by(2).for_each(tokio::task::JoinHandle::abort);
            for task in tasks {
                let _ = within("an end", task).await;
            }
        }
        eventually("all is back", || {
            let status = pool.status();
            status.lent == 0 && status.idle == 2 && status.servers[0].orphans == 0
        })
        .await;
        eventually("no socket too many", || node.open() == 2).await;
    }
}

/// PL-112
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_entry_lost_under_contention() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let held = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (pool, held) = (pool.clone(), held.clone());
            tokio::spawn(async move {
                for _ in 0..200 {
                    let loan = pool.get(RequestOptions::within(crate::PATIENCE)).await.unwrap();
                    assert!(held.fetch_add(1, Ordering::SeqCst) < 2, "more loans than connections");
                    tokio::task::yield_now().await;
                    held.fetch_sub(1, Ordering::SeqCst);
                    drop(loan);
                }
            })
        })
        .collect();
    for task in tasks {
        within("an end", task).await.unwrap();
    }
    let counters = pool.control().take_counters();
    assert_eq!((counters.checkouts, counters.checkins), (64 * 200, 64 * 200));
    assert_eq!((pool.status().idle, node.open()), (2, 2));
}

/// PL-115 PL-25
#[tokio::test]
async fn once_honours_deadline() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let server = node.server("n");
    let by = Instant::now() + Duration::from_secs(3);
    let asked = pool.once(&server, by, async |line| line.ask("hang").await);
    let error = within("the deadline", asked).await.unwrap_err();
    assert_eq!((error.kind, error.executed), (Kind::UseTimeout, Execution::Unknown));
    node.mute(true);
    let by = Instant::now() + Duration::from_millis(50);
    let asked = pool.once(&server, by, async |line| line.ask("x").await);
    assert_eq!(within("the deadline covers connecting", asked).await.unwrap_err().kind, Kind::Connect);
    assert_eq!(pool.counters().one_offs, 2);
    eventually("always closed", || node.open() == 2).await;
}

/// PL-115
#[tokio::test]
async fn once_connect_error_is_typed() {
    let (node, absent) = (Node::start().await, Node::absent().await);
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let by = Instant::now() + Duration::from_secs(5);
    let error = pool.once(&absent.server("gone"), by, async |line| line.ask("x").await).await.unwrap_err();
    assert_eq!((error.kind, error.executed), (Kind::Connect, Execution::No));
    assert_eq!(error.source().unwrap().source().unwrap().to_string(), "Connection refused (os error 111)");
    assert!(error.transient());
}

#[tokio::test]
async fn pl_25_on_means_that_server_or_an_error_at_once() {
    let nodes = [Node::start().await, Node::start().await];
    let pool = full(plain(&[&nodes[0], &nodes[1]]), Lines::shared(10), 4).await;
    let second = Server::at(nodes[1].address());
    for _ in 0..10 {
        assert_eq!(pool.get(RequestOptions::default().on(&second)).await.unwrap().server(), &second);
    }
    nodes[1].stop().await;
    eventually("it is down", || pool.status().servers.iter().any(|server| server.state == ServerState::Down)).await;
    assert_eq!(pool.get(RequestOptions::default().on(&second)).await.unwrap_err().kind, Kind::ServerDown);
    let stranger = Server::at("127.9.9.9:1".parse().unwrap());
    assert_eq!(pool.get(RequestOptions::default().on(&stranger)).await.unwrap_err().kind, Kind::UnknownServer);
}

#[tokio::test]
async fn pl_27_a_detached_connection_is_replaced() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let detached = pool.get(RequestOptions::default()).await.unwrap().detach().unwrap();
    eventually("replaced", || node.open() == 3 && pool.status().idle == 2).await;
    assert_eq!(detached.ask("mine").await.unwrap(), "mine");
    drop(detached);
    eventually("closed by its owner", || node.open() == 2).await;
    let shared = full(plain(&[&node]), Lines::shared(5), 2).await;
    assert!(shared.get(RequestOptions::default()).await.unwrap().detach().is_err(), "others use it");
}

#[tokio::test]
async fn pl_30_the_deadline_fires_although_nothing_comes_back() {
    let node = Node::start().await;
    let pool = full(plain(&[&node]), Lines::exclusive(), 2).await;
    let _held =
        [pool.get(RequestOptions::default()).await.unwrap(), pool.get(RequestOptions::default()).await.unwrap()];
    let error = within("the deadline", pool.get(RequestOptions::within(Duration::from_millis(40)))).await.unwrap_err();
    assert_eq!((error.kind, error.executed), (Kind::WaitTimeout, Execution::No));
    assert!(error.waited >= Duration::from_millis(40) && error.lent == 2, "{error}");
}

/// PL-117
#[tokio::test]
async fn two_pools_do_not_mix() {
    let nodes = [Node::start().await, Node::start().await];
    let pools = [
        full(plain(&[&nodes[0]]), Lines::exclusive(), 2).await,
        full(plain(&[&nodes[1]]), Lines::exclusive(), 2).await,
    ];
    let loans = [
        pools[0].get(RequestOptions::default()).await.unwrap(),
        pools[1].get(RequestOptions::default()).await.unwrap(),
    ];
    drop(loans);
    for (pool, node) in pools.iter().zip(&nodes) {
        let addresses: HashSet<_> = [
            pool.get(RequestOptions::default()).await.unwrap().server().address,
            pool.get(RequestOptions::default()).await.unwrap().server().address,
        ]
        .into();
        assert_eq!(addresses, HashSet::from([node.address()]));
        assert_eq!((pool.status().idle, pool.counters().checkouts), (2, 3));
    }
}

#[tokio::test]
async fn pl_86_a_further_try_goes_elsewhere_only_if_that_is_safe() {
    let nodes = [Node::start().await, Node::start().await];
    let pool = full(plain(&[&nodes[0], &nodes[1]]), Lines::shared(10), 4).await;
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let run = |want: RequestOptions, command: &'static str| {
        let seen = seen.clone();
        pool.with(want, move |loan| {
            seen.lock().unwrap().push(loan.server().address);
            async move { lines::ask(loan, command).await }
        })
    };
    let error = run(RequestOptions::default(), "overloaded").await.unwrap_err();
    let tried = std::mem::take(&mut *seen.lock().unwrap());
    assert_eq!(tried.len(), 2, "not executed: tried on both servers");
    assert_ne!(tried[0], tried[1]);
    assert_eq!((error.tries.len(), error.tries[0].0.address), (1, tried[0]));
    run(RequestOptions::default(), "die").await.unwrap_err();
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()).len(), 1, "it may have been executed");
    assert!(pool.control().ready(4, Instant::now() + crate::PATIENCE).await);
    run(RequestOptions::default().idempotent(), "die").await.unwrap_err();
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()).len(), 2, "idempotent: tried elsewhere");
    run(RequestOptions::default(), "!bad").await.unwrap_err();
    assert_eq!(seen.lock().unwrap().len(), 1, "a bad request is bad everywhere");
    assert_eq!(pool.counters().retries, 2);
}

/// PL-90: the last server executed nothing, but the one before it may have executed the request.
#[tokio::test]
async fn pl_90_an_error_remembers_that_an_earlier_try_may_have_been_executed() {
    let nodes = [Node::start().await, Node::start().await];
    let pool = full(plain(&[&nodes[0], &nodes[1]]), Lines::shared(10), 4).await;
    let calls = AtomicUsize::new(0);
    let run = pool.with(RequestOptions::default().idempotent(), |loan| {
        let command = if calls.fetch_add(1, Ordering::SeqCst) == 0 { "die" } else { "overloaded" };
        lines::ask(loan, command)
    });
    let error = run.await.unwrap_err();
    assert_eq!((calls.load(Ordering::SeqCst), error.tries.len()), (2, 1));
    assert_eq!((error.kind, error.executed), (Kind::Server(0x1001), Execution::Unknown), "{error}");
}

/// PL-90 PL-85: if two tries run at once, the one that failed first counts as well.
#[tokio::test]
async fn pl_90_an_error_remembers_the_try_that_ran_beside_the_last() {
    for fails_first in [0, 1] {
        let nodes = [Node::start().await, Node::start().await];
        let settings = Settings {
            speculate_after: SpeculateAfter::Time(Duration::from_millis(1)),
            speculate_budget: 100,
            ..plain(&[&nodes[0], &nodes[1]])
        };
        let pool = full(settings, Lines::shared(10), 4).await;
        let (calls, both, failed) = (AtomicUsize::new(0), Barrier::new(2), Notify::new());
        let run = pool.with(RequestOptions::within(crate::PATIENCE).idempotent(), |loan| {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            let (both, failed) = (&both, &failed);
            async move {
                both.wait().await;
                if call == fails_first {
                    let lost = lines::ask(loan, "die").await;
                    failed.notify_one();
                    return lost;
                }
                failed.notified().await;
                // The other try has been polled by then: both are polled together.
                tokio::task::yield_now().await;
                lines::ask(loan, "overloaded").await
            }
        });
        let error = within("an error", run).await.unwrap_err();
        assert_eq!((error.kind, error.executed), (Kind::Server(0x1001), Execution::Unknown), "{error}");
        assert_eq!((calls.load(Ordering::SeqCst), error.tries.len()), (2, 1), "{error}");
    }
}

/// PL-85: one of two tries is lost and the other is stuck. In both orders a third server is tried, unless `tries`
/// forbids it or the server refused the request itself.
#[tokio::test]
async fn pl_85_the_remaining_try_of_a_race_is_hedged_as_well() {
    let cases = [("die", 0, 3), ("die", 1, 3), ("die", 0, 2), ("die", 1, 2), ("!bad", 0, 3), ("!bad", 1, 3)];
    for (ends, lost, tries) in cases {
        let nodes = [Node::start().await, Node::start().await, Node::start().await];
        let settings = Settings {
            speculate_after: SpeculateAfter::Time(Duration::from_millis(1)),
            speculate_budget: 100,
            tries,
            ..plain(&[&nodes[0], &nodes[1], &nodes[2]])
        };
        let pool = full(settings, Lines::shared(10), 6).await;
        let (calls, both) = (AtomicUsize::new(0), Barrier::new(2));
        let goes_on = ends == "die" && tries == 3;
        let time = if goes_on { crate::PATIENCE } else { Duration::from_secs(2) };
        let run = pool.with(RequestOptions::within(time).idempotent(), |loan| {
            let (call, both) = (calls.fetch_add(1, Ordering::SeqCst), &both);
            async move {
                if call == 2 {
                    return lines::ask(loan, "x").await;
                }
                both.wait().await;
                if call == lost { lines::ask(loan, ends).await } else { std::future::pending().await }
            }
        });
        let answer = within("an end", run).await;
        assert_eq!(calls.load(Ordering::SeqCst), if goes_on { 3 } else { 2 }, "{ends}, {lost}, {answer:?}");
        assert_eq!(answer.is_ok(), goes_on, "{ends}, {lost}, {answer:?}");
    }
}

/// PL-85: the last try may be hedged, too.
#[tokio::test]
async fn pl_85_a_retry_is_hedged_like_the_first_try() {
    let nodes = [Node::start().await, Node::start().await, Node::start().await];
    let settings = Settings {
        speculate_after: SpeculateAfter::Time(Duration::from_millis(1)),
        speculate_budget: 100,
        tries: 2,
        ..plain(&[&nodes[0], &nodes[1], &nodes[2]])
    };
    let pool = full(settings, Lines::shared(10), 6).await;
    let calls = AtomicUsize::new(0);
    let run = pool.with(RequestOptions::within(crate::PATIENCE).idempotent(), |loan| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            match call {
                0 => lines::ask(loan, "overloaded").await,
                1 => std::future::pending().await,
                _ => lines::ask(loan, "x").await,
            }
        }
    });
    assert_eq!(within("an answer", run).await.unwrap(), "x");
    assert_eq!(calls.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn pl_85_a_slow_request_is_hedged_if_that_is_allowed() {
    let nodes = [Node::start().await, Node::start().await];
    let settings = Settings {
        speculate_after: SpeculateAfter::Time(Duration::from_millis(20)),
        speculate_budget: 100,
        ..plain(&[&nodes[0], &nodes[1]])
    };
    let pool = full(settings, Lines::shared(10), 4).await;
    nodes[0].delay(Duration::from_secs(60));
    for _ in 0..8 {
        let want = RequestOptions::within(Duration::from_secs(15)).idempotent();
        let answer = within("the quick one", pool.with(want, |loan| lines::ask(loan, "x"))).await;
        assert_eq!(answer.unwrap(), "x");
    }
    let counters = pool.counters();
    assert!(counters.speculations > 0 && counters.speculations_won > 0, "{counters:?}");
}

#[tokio::test]
async fn pl_87_a_silent_server_is_found_without_traffic() {
    for connector in [Lines::exclusive(), Lines::shared(10)] {
        let node = Node::start().await;
        let settings = Settings {
            heartbeat_idle: Duration::from_millis(100),
            heartbeat_timeout: Duration::from_secs(1),
            ..plain(&[&node])
        };
        let pool = full(settings, connector, 2).await;
        eventually("heartbeats are answered", || node.answered() >= 4).await;
        assert_eq!(node.accepted(), 2, "a living connection stays");
        node.mute(true);
        node.pause(true);
        eventually("down", || pool.status().servers[0].state == ServerState::Down).await;
        assert_eq!(pool.counters().checkouts - pool.counters().checkins, 0);
        node.pause(false);
        node.mute(false);
        assert!(pool.control().ready(2, Instant::now() + crate::PATIENCE).await);
    }
}

#[tokio::test]
async fn pl_162_traffic_leaves_a_slow_server() {
    let nodes = [Node::start().await, Node::start().await, Node::start().await];
    let pool = full(plain(&[&nodes[0], &nodes[1], &nodes[2]]), Lines::shared(100), 6).await;
    let load = |requests: usize| {
        let pool = pool.clone();
        async move {
            let tasks: Vec<_> = (0..16)
                .map(|_| {
                    let pool = pool.clone();
                    tokio::spawn(async move {
                        for _ in 0..requests {
                            let _ = pool.with(RequestOptions::default(), |loan| lines::ask(loan, "x")).await;
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        }
    };
    load(50).await;
    nodes[2].delay(Duration::from_millis(200));
    let slow = Server::at(nodes[2].address());
    let state = || pool.status().servers.iter().find(|one| one.server == slow).map(|one| one.state);
    while state() != Some(ServerState::Suspect) {
        within("it is suspected", load(20)).await;
    }
    let before = [nodes[0].answered(), nodes[1].answered(), nodes[2].answered()];
    load(200).await;
    let share = |at: usize| nodes[at].answered() - before[at];
    assert!(share(2) * 20 < share(0) + share(1), "{} of {}", share(2), share(0) + share(1));
}
