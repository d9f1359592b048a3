//! Counts the allocations of a checkout, per thread. It is a separate test program, since a program has one allocator.

use std::{
    convert::Infallible,
    future::Future,
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use honeyflow_pool::{
    Connection, Connector, Limits, Loan, Pool, RequestOptions, Server, Settings, Verdict, settings::SpeculateAfter,
};
use tokio::time::Instant;

struct NullConnection;

impl Connection for NullConnection {
    fn broken(&self) -> bool {
        false
    }

    async fn closed(&self) {
        std::future::pending::<()>().await;
    }

    async fn probe(&self, _: Instant) -> bool {
        true
    }

    async fn close(&self, _: Instant) {}
}

struct NullConnector;

impl Connector for NullConnector {
    type Connection = NullConnection;
    type Error = Infallible;

    async fn connect(&self, _: &Server, _: Limits) -> Result<NullConnection, Infallible> {
        Ok(NullConnection)
    }

    async fn discover(&self, _: &NullConnection) -> Result<Vec<Server>, Infallible> {
        Ok(Vec::new())
    }

    fn verdict(&self, error: &Infallible) -> Verdict {
        match *error {}
    }
}

const SERVERS: u32 = 3;
const EACH: u32 = 2;
const WITHIN: Duration = Duration::from_secs(60);

async fn full() -> Pool<NullConnector> {
    full_with(Settings::default()).await
}

async fn full_with(settings: Settings) -> Pool<NullConnector> {
    let settings = Settings {
        servers: (1..=SERVERS).map(|number| format!("127.0.0.1:{number}")).collect(),
        discovery: false,
        start_jitter: Duration::ZERO,
        connections_per_server: Some(EACH),
        decay_per_billion: Some(0),
        ..settings
    };
    let pool = Pool::start(NullConnector, settings).unwrap();
    assert!(pool.control().ready(SERVERS * EACH, Instant::now() + WITHIN).await);
    pool
}

/// Takes a loan with a single poll; panics if it is not available at once.
fn at_once(pool: &Pool<NullConnector>) -> Loan<NullConnector> {
    let get = pin!(pool.get(RequestOptions::within(WITHIN)));
    match get.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(loan)) => loan,
        _ => panic!("not at once"),
    }
}

/// PL-21 PL-180
#[tokio::test]
async fn pl_21_with_an_idle_connection_nothing_is_awaited_and_nothing_allocated() {
    let pool = full().await;
    drop(at_once(&pool));
    let counted = allocation_counter::measure(|| {
        for _ in 0..1000 {
            drop(at_once(&pool));
        }
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert_eq!(pool.counters().checkouts, 1001);
}

/// PL-85: a request that may be hedged allocates no more than another, as long as it is not hedged.
#[tokio::test]
async fn pl_85_a_request_without_a_hedge_allocates_no_more_than_another() {
    let speculate_after = SpeculateAfter::Time(WITHIN);
    let (plain, speculating) = (full().await, full_with(Settings { speculate_after, ..Settings::default() }).await);
    let use_once = |pool: &Pool<NullConnector>| {
        let using = pin!(pool.with(RequestOptions::within(WITHIN).idempotent(), async |_| Ok(())));
        assert!(using.poll(&mut Context::from_waker(Waker::noop())).is_ready(), "not at once");
    };
    let count = |pool: &Pool<NullConnector>| {
        use_once(pool);
        allocation_counter::measure(|| (0..100).for_each(|_| use_once(pool))).count_total
    };
    assert_eq!(count(&speculating), count(&plain));
}

/// PL-180: each waiter allocates at most once, after the queue has reached its size.
#[tokio::test]
async fn pl_180_a_waiter_costs_one_allocation_at_most() {
    const WAITERS: usize = 100;
    let pool = full().await;
    let wait = || {
        let held: Vec<_> = (0..SERVERS * EACH).map(|_| at_once(&pool)).collect();
        let mut waiters: Vec<_> = (0..WAITERS).map(|_| Box::pin(pool.get(RequestOptions::within(WITHIN)))).collect();
        let before = waiters.len();
        let mut context = Context::from_waker(Waker::noop());
        let counted = allocation_counter::measure(|| {
            assert!(waiters.iter_mut().all(|waiter| waiter.as_mut().poll(&mut context).is_pending()));
            drop(held);
            let mut served = 0;
            for waiter in &mut waiters {
                served += usize::from(waiter.as_mut().poll(&mut context).is_ready());
            }
            assert_eq!(served, before, "each loan that ends serves the next waiter");
        });
        counted.count_total
    };
    wait();
    let counted = wait();
    assert!(counted <= WAITERS as u64, "{counted} for {WAITERS}");
}
