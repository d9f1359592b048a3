//! The behaviour of a pool with any connector. Each function starts its own servers and pool, counts at the servers
//! where that is possible, and panics if the behaviour is wrong.

use std::{
    future::Future,
    pin::pin,
    sync::{Arc, Mutex},
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;

use super::{PATIENCE, Rig, eventually, within};
use crate::{
    control::Drain,
    core::{ServerState, State},
    error::{Error, Execution, Kind},
    loan::Loan,
    pool::Pool,
    request_options::RequestOptions,
    server::Server,
    settings::{Settings, WhenEmpty},
};

const SOON: Duration = Duration::from_millis(200);

/// Settings with `each` connections to each of the rig's servers, and without random replacement.
fn settings<R: Rig>(rig: &R, servers: usize, each: u32) -> Settings {
    Settings {
        servers: (0..servers).map(|at| rig.server(at).address.to_string()).collect(),
        discovery: false,
        start_jitter: Duration::ZERO,
        slow_start: Duration::ZERO,
        connections_per_server: Some(each),
        decay_per_billion: Some(0),
        ..Settings::default()
    }
}

async fn full<R: Rig>(rig: &R, settings: Settings, connections: u32) -> Pool<R::Connector> {
    let pool = rig.pool(settings).expect("good settings");
    let by = Instant::now() + PATIENCE;
    assert!(pool.control().ready(connections, by).await, "never full: {:?}", pool.status());
    pool
}

/// Takes all loans that are available at once.
fn all<R: Rig>(pool: &Pool<R::Connector>) -> Vec<Loan<R::Connector>> {
    std::iter::from_fn(|| {
        let get = pin!(pool.get(RequestOptions::within(PATIENCE)));
        match get.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(loan) => loan.ok(),
            Poll::Pending => None,
        }
    })
    .collect()
}

fn failed<R: Rig, T>(result: Result<T, Error<R::Connector>>, kind: Kind) -> Error<R::Connector> {
    match result {
        Ok(_) => panic!("it succeeded, but {kind:?} was expected"),
        Err(error) => {
            assert_eq!(error.kind, kind, "{error}");
            error
        }
    }
}

/// PL-13 PL-102
pub async fn pl_13_the_pool_fills_and_whatever_ends_is_replaced<R: Rig>() {
    let rig = R::start(2).await;
    rig.stop(1).await;
    let pool = full(&rig, settings(&rig, 2, 2), 2).await;
    eventually("two, counted at the server", || rig.open(0) == 2).await;
    rig.restart(1).await;
    eventually("a server that was down at the start joins", || rig.open(1) == 2).await;
    rig.stop(0).await;
    let down = || pool.status().servers.iter().any(|one| one.state == ServerState::Down);
    eventually("its loss is seen", down).await;
    pool.with(RequestOptions::within(PATIENCE).idempotent(), R::ask).await.expect("the other serves");
    rig.restart(0).await;
    eventually("full again without a call", || rig.open(0) == 2).await;
    pool.get(RequestOptions::default()).await.expect("one to discard").discard();
    eventually("replaced", || pool.status().open == 4 && rig.open(0) + rig.open(1) == 4).await;
}

/// PL-20 PL-26
pub async fn pl_20_a_loan_comes_back_on_every_way_out<R: Rig>() {
    let rig = R::start(1).await;
    let pool = full(&rig, settings(&rig, 1, 1), 1).await;
    for _ in 0..10 {
        pool.with(RequestOptions::within(PATIENCE), R::ask).await.expect("answered");
        drop(pool.get(RequestOptions::within(PATIENCE)).await.expect("given"));
    }
    let status = pool.status();
    assert_eq!((status.open, status.idle, status.lent, rig.open(0)), (1, 1, 0, 1), "the same one all the time");
}

/// PL-24 PL-90 PL-108
pub async fn pl_24_an_error_of_the_request_keeps_cause_and_connection<R: Rig>() {
    let rig = R::start(2).await;
    let pool = full(&rig, settings(&rig, 2, 1), 2).await;
    let result = pool.with(RequestOptions::within(PATIENCE).idempotent(), R::refuse).await;
    let Err(error) = result else { panic!("refused requests fail") };
    assert!(matches!(error.kind, Kind::Server(_)), "{error}");
    assert!(std::error::Error::source(&error).is_some(), "with its cause");
    assert!(error.server.is_some() && !error.transient(), "{error}");
    assert_eq!((error.tries.len(), pool.counters().retries), (0, 0), "bad everywhere: not tried again");
    eventually("nothing was closed for it", || (pool.status().idle, rig.open(0) + rig.open(1)) == (2, 2)).await;
}

/// PL-5 PL-103
pub async fn pl_5_a_drain_serves_and_leaves_no_connection<R: Rig>() {
    let rig = R::start(1).await;
    let pool = full(&rig, settings(&rig, 1, 2), 2).await;
    let loan = pool.get(RequestOptions::within(PATIENCE)).await.expect("given");
    let control = pool.control();
    let drain = tokio::spawn(async move { control.deactivate(Drain::within(PATIENCE)).await });
    eventually("it drains", || matches!(pool.status().state, State::Draining(_))).await;
    failed::<R, _>(pool.get(RequestOptions::default()).await, Kind::Draining);
    R::ask(loan).await.expect("what is on loan may finish");
    let (moved, drained) = within("drained", drain).await.expect("no panic");
    assert_eq!((moved.now, drained.finished, drained.aborted), (State::Inactive, 1, 0));
    eventually("no connection is left", || rig.open(0) == 0).await;
    failed::<R, _>(pool.get(RequestOptions::default()).await, Kind::Inactive);
    pool.control().activate();
    eventually("and they come back", || rig.open(0) == 2).await;
    within("closed", pool.control().close(Drain::within(Duration::ZERO))).await;
    eventually("for good", || rig.open(0) == 0).await;
    failed::<R, _>(pool.get(RequestOptions::default()).await, Kind::Closed);
}

/// PL-25 PL-115
pub async fn pl_25_on_and_once_mean_that_server<R: Rig>() {
    let rig = R::start(2).await;
    let pool = full(&rig, settings(&rig, 2, 1), 2).await;
    for at in [0, 1, 1, 0] {
        let loan = pool.get(RequestOptions::within(PATIENCE).on(&rig.server(at))).await.expect("given");
        assert_eq!(loan.server().address, rig.server(at).address);
    }
    let unknown = Server::at(([127, 0, 0, 1], 9).into());
    failed::<R, _>(pool.get(RequestOptions::default().on(&unknown)).await, Kind::UnknownServer);
    let by = Instant::now() + PATIENCE;
    pool.once(&rig.server(0), by, async |on| R::ask_once(on).await).await.expect("answered");
    eventually("its connection was its own and is closed", || (rig.open(0), rig.open(1)) == (1, 1)).await;
    assert_eq!(pool.counters().one_offs, 1);
    rig.stop(1).await;
    let down = || pool.status().servers.iter().any(|one| one.state == ServerState::Down);
    eventually("its loss is seen", down).await;
    failed::<R, _>(pool.get(RequestOptions::default().on(&rig.server(1))).await, Kind::ServerDown);
    let by = Instant::now() + PATIENCE;
    let refused = pool.once(&rig.server(1), by, async |on| R::ask_once(on).await).await;
    let error = failed::<R, _>(refused, Kind::Connect);
    assert_eq!(error.executed, Execution::No);
}

/// PL-30 PL-109 PL-110
pub async fn pl_30_one_deadline_covers_waiting_and_use<R: Rig>() {
    let rig = R::start(1).await;
    let pool = full(&rig, settings(&rig, 1, 1), 1).await;
    let held = all::<R>(&pool);
    failed::<R, _>(within("its deadline", pool.get(RequestOptions::within(SOON))).await, Kind::WaitTimeout);
    drop(held);
    let result = within("its deadline", pool.with(RequestOptions::within(SOON), R::hang)).await;
    let error = failed::<R, _>(result, Kind::UseTimeout);
    assert_eq!(error.executed, Execution::Unknown, "{error}");
    pool.with(RequestOptions::within(PATIENCE), R::ask).await.expect("the capacity is there again");
    eventually("of its size", || pool.status().open == 1 && rig.open(0) == 1).await;
}

/// PL-32 PL-118
pub async fn pl_32_waiters_are_served_in_order<R: Rig>() {
    let rig = R::start(1).await;
    let pool = full(&rig, settings(&rig, 1, 1), 1).await;
    let mut held = all::<R>(&pool);
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    let waiting = || pool.status().waiting.iter().sum::<usize>();
    for number in 0..8 {
        let (pool, order) = (pool.clone(), order.clone());
        waiters.push(tokio::spawn(async move {
            let loan = pool.get(RequestOptions::within(PATIENCE)).await;
            order.lock().expect("no panic").push(number);
            drop(loan);
        }));
        eventually("it waits", || waiting() == number + 1).await;
    }
    held.pop();
    for waiter in waiters {
        within("each has its turn", waiter).await.expect("no panic");
    }
    drop(held);
    assert_eq!(*order.lock().expect("no panic"), (0..8).collect::<Vec<_>>());
}

/// PL-33 PL-108
pub async fn pl_33_a_full_queue_and_an_empty_pool_refuse_at_once<R: Rig>() {
    let rig = R::start(1).await;
    let pool = full(&rig, Settings { queue_limit: 0, ..settings(&rig, 1, 1) }, 1).await;
    let held = all::<R>(&pool);
    failed::<R, _>(pool.get(RequestOptions::within(PATIENCE)).await, Kind::QueueFull);
    drop((held, pool));
    let pool = full(&rig, Settings { when_empty: WhenEmpty::Fail, ..settings(&rig, 1, 1) }, 1).await;
    let held = all::<R>(&pool);
    failed::<R, _>(pool.get(RequestOptions::within(PATIENCE)).await, Kind::NoConnection);
    drop(held);
    pool.with(RequestOptions::within(PATIENCE), R::ask).await.expect("one is free again");
}

/// PL-23 PL-112
pub async fn pl_23_cancelling_loses_nothing<R: Rig>() {
    let rig = R::start(1).await;
    let pool = full(&rig, settings(&rig, 1, 2), 2).await;
    for round in 0..20 {
        let using = pool.with(RequestOptions::within(PATIENCE), R::hang);
        // Dropped at once, after its first poll, and after a few milliseconds.
        let _ = tokio::time::timeout(Duration::from_millis(round % 4), using).await;
        let held = all::<R>(&pool);
        let waiting = pool.get(RequestOptions::within(PATIENCE));
        let _ = tokio::time::timeout(Duration::from_millis(round % 3), waiting).await;
        drop(held);
        pool.with(RequestOptions::within(PATIENCE), R::ask).await.expect("served");
    }
    eventually("of its size", || pool.status().open == 2 && rig.open(0) == 2).await;
    assert_eq!(pool.status().waiting, [0; 3]);
}

/// PL-86
pub async fn pl_86_an_idempotent_request_survives_a_server<R: Rig>() {
    let rig = R::start(2).await;
    let settings = Settings { retry_budget: 100, ..settings(&rig, 2, 2) };
    let pool = full(&rig, settings, 4).await;
    for round in 0..6 {
        let at = round % 2;
        rig.stop(at).await;
        for _ in 0..4 {
            let result = pool.with(RequestOptions::within(PATIENCE).idempotent(), R::ask).await;
            result.unwrap_or_else(|error| panic!("the other server lives: {error}"));
        }
        rig.restart(at).await;
        eventually("back", || rig.open(at) == 2).await;
    }
}

/// PL-40 PL-42
pub async fn pl_40_what_is_worn_is_replaced_first_and_closed_then<R: Rig>() {
    let rig = R::start(1).await;
    let settings = Settings { decay_per_billion: Some(1_000_000_000), ..settings(&rig, 1, 2) };
    let pool = full(&rig, settings, 2).await;
    for replaced in 1..=4 {
        pool.with(RequestOptions::within(PATIENCE), R::ask).await.expect("worn ones serve on");
        eventually("it is replaced", || pool.counters().decayed >= replaced).await;
        assert!(pool.status().open >= 2, "never fewer");
    }
    eventually("of its size", || rig.open(0) == 2 && pool.status().open == 2).await;
}

/// Settings with two connections to each server, and discovery that starts from `seeds` configured servers.
fn looking<R: Rig>(rig: &R, seeds: usize) -> Settings {
    Settings { discovery: true, ..settings(rig, seeds, 2) }
}

/// The rig's numbers of the servers in the ring.
fn known<R: Rig>(rig: &R, pool: &Pool<R::Connector>, servers: usize) -> Vec<usize> {
    let ring = pool.status().servers;
    (0..servers).filter(|at| ring.iter().any(|one| one.server.address == rig.server(*at).address)).collect()
}

/// PL-50 PL-52: one connection more is discovery's.
pub async fn pl_52_a_server_that_is_added_is_found_and_filled<R: Rig>() {
    let rig = R::start(3).await;
    rig.tell(&[0, 1]);
    let pool = full(&rig, looking(&rig, 1), 4).await;
    assert_eq!(known(&rig, &pool, 3), [0, 1], "the seed and the servers it knows");
    rig.tell(&[0, 1, 2]);
    pool.control().refresh();
    eventually("filled, counted at the server", || rig.open(2) >= 2).await;
    assert_eq!(known(&rig, &pool, 3), [0, 1, 2]);
    eventually("and no more than that", || {
        pool.status().open == 6 && (0..3).map(|at| rig.open(at)).sum::<usize>() == 7
    })
    .await;
    let added = pool.status().servers.into_iter().find(|one| one.server.address == rig.server(2).address);
    let added = added.expect("it is in the ring").server;
    pool.with(RequestOptions::within(PATIENCE).on(&added), R::ask).await.expect("it serves");
}

/// PL-52 PL-114
pub async fn pl_52_a_server_that_goes_away_is_let_go_of<R: Rig>() {
    let rig = R::start(3).await;
    rig.tell(&[0, 1, 2]);
    let pool = full(&rig, looking(&rig, 3), 6).await;
    eventually("a round", || pool.counters().rounds_ok > 0).await;
    rig.tell(&[0, 1]);
    pool.control().refresh();
    eventually("it has left the ring", || known(&rig, &pool, 3) == [0, 1]).await;
    assert!(pool.counters().rounds_ok >= 3, "not after one round without it");
    // Discovery may still have a connection to it.
    eventually("its connections are closed, counted at the server", || rig.open(2) <= 1).await;
    assert_eq!(pool.status().open, 4);
    pool.with(RequestOptions::within(PATIENCE), R::ask).await.expect("the others serve");
}

/// PL-51 PL-74: neither a useless answer nor the end of the asked server changes the ring.
pub async fn pl_51_discovery_that_fails_changes_nothing_and_goes_on<R: Rig>() {
    let rig = R::start(3).await;
    rig.tell(&[0, 1]);
    let pool = full(&rig, looking(&rig, 2), 4).await;
    eventually("a round", || pool.counters().rounds_ok > 0).await;
    rig.tell(&[]);
    let failed = pool.counters().rounds_failed;
    pool.control().refresh();
    eventually("a round has failed", || pool.counters().rounds_failed > failed).await;
    eventually("and the status says why", || pool.status().discovery_error.is_some()).await;
    assert_eq!((known(&rig, &pool, 3), pool.status().open), (vec![0, 1], 4), "no server has left");
    for _ in 0..4 {
        pool.with(RequestOptions::within(PATIENCE), R::ask).await.expect("served all the while");
    }
    rig.stop(0).await;
    rig.tell(&[0, 1, 2]);
    eventually("the next one is asked", || known(&rig, &pool, 3) == [0, 1, 2]).await;
    eventually("and the server it knows is filled", || rig.open(2) >= 2).await;
    eventually("nothing is wrong any more", || pool.status().discovery_error.is_none()).await;
}

/// PL-87: without any traffic.
pub async fn pl_87_a_silent_connection_is_closed_and_a_living_one_stays<R: Rig>() {
    let rig = R::start(2).await;
    let pool = full(&rig, Settings { heartbeat_idle: SOON, ..settings(&rig, 2, 1) }, 2).await;
    let down = || pool.status().servers.iter().filter(|one| one.state == ServerState::Down).count();
    rig.silence(0, true);
    eventually("it is found", || down() == 1).await;
    eventually("closed, counted at the server", || rig.open(0) == 0).await;
    rig.silence(0, false);
    eventually("replaced", || rig.open(0) == 1 && pool.status().open == 2 && down() == 0).await;
    assert_eq!((rig.open(1), rig.accepted(1)), (1, 1), "a server that answers keeps its connections");
}

/// PL-81
pub async fn pl_81_a_server_that_answers_nothing_is_passed_by<R: Rig>() {
    let rig = R::start(3).await;
    let pool = full(&rig, settings(&rig, 3, 2), 6).await;
    let silent = rig.server(0);
    for _ in 0..5 {
        let want = RequestOptions::within(Duration::from_millis(30)).on(&silent);
        failed::<R, _>(pool.with(want, R::hang).await, Kind::UseTimeout);
        assert!(pool.control().ready(6, Instant::now() + PATIENCE).await);
    }
    let state = || pool.status().servers.iter().find(|one| one.server.address == silent.address).map(|one| one.state);
    eventually("it is suspected", || state() == Some(ServerState::Suspect)).await;
    for _ in 0..10 {
        let server = pool.get(RequestOptions::within(PATIENCE)).await.expect("there are others").server().address;
        assert_ne!(server, silent.address);
    }
}

/// PL-1 PL-101
pub async fn pl_101_commands_work_right_after_the_start<R: Rig>() {
    let rig = R::start(1).await;
    let pool = rig.pool(settings(&rig, 1, 2)).expect("good settings");
    let (moved, _) = within("disabled", pool.control().disable(Drain::within(Duration::ZERO))).await;
    assert_eq!(moved.now, State::Disabled);
    assert_eq!(pool.control().activate().0.now, State::Disabled, "first enable");
    assert_eq!(pool.control().enable().now, State::Inactive);
    let (moved, wanted) = pool.control().activate();
    assert_eq!(moved.now, State::Active);
    assert!(wanted <= 2, "{wanted}");
    assert!(pool.control().ready(2, Instant::now() + PATIENCE).await);
    eventually("counted at the server", || rig.open(0) == 2).await;
}

/// PL-71 PL-116
pub async fn pl_116_counts_add_up<R: Rig>() {
    let rig = R::start(1).await;
    let pool = full(&rig, settings(&rig, 1, 2), 2).await;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let pool = pool.clone();
            tokio::spawn(async move {
                for _ in 0..10 {
                    let _ = pool.with(RequestOptions::within(PATIENCE), R::ask).await;
                }
            })
        })
        .collect();
    let mut sum = crate::core::Counters::default();
    for task in tasks {
        sum += pool.control().take_counters();
        task.await.expect("no panic");
    }
    eventually("all is back", || pool.status().lent == 0).await;
    sum += pool.control().take_counters();
    assert_eq!((sum.checkouts, sum.checkins), (160, 160), "exact over all takes");
    assert_eq!(pool.counters().checkouts, 0);
}
