//! Deadlines on a paused clock, which shows a delay of one millisecond.

use std::time::Duration;

use honeyflow_pool::{
    Kind, Pool, RequestOptions, Settings,
    testing::memory::{self, Memory},
};
use tokio::time::{Instant, sleep};

const MILLI: Duration = Duration::from_millis(1);
const TIMES: [u64; 6] = [1, 7, 40, 333, 1000, 4999];

async fn full(cluster: &Memory) -> Pool<Memory> {
    let settings = Settings {
        servers: vec!["127.0.0.1:1".to_owned()],
        discovery: false,
        connections_per_server: Some(2),
        decay_per_billion: Some(0),
        ..Settings::default()
    };
    let pool = cluster.pool(settings, 7).expect("good settings");
    assert!(pool.control().ready(2, Instant::now() + Duration::from_secs(5)).await);
    pool
}

fn kept(what: &str, begun: Instant, within: Duration) {
    let took = begun.elapsed();
    assert!((within..=within + MILLI).contains(&took), "{what} within {within:?} took {took:?}");
}

/// PL-30: each deadline fires at its time, to the precision of the clock, even if no loan ever comes back.
#[tokio::test(start_paused = true)]
async fn pl_30_waits_uses_and_loans_end_at_their_deadline() {
    for streams in [1, 4] {
        let cluster = Memory::new(1, streams);
        let host = cluster.host(0);
        let pool = full(&cluster).await;
        for within in TIMES.map(Duration::from_millis) {
            let begun = Instant::now();
            let error = pool.with(RequestOptions::within(within), |loan| memory::ask(loan, "hang")).await.unwrap_err();
            assert_eq!((error.kind, error.used), (Kind::UseTimeout, begun.elapsed()));
            kept("a use", begun, within);
        }
        let pool = full(&cluster.again()).await;
        let mut held = Vec::new();
        for _ in 0..2 * streams {
            held.push(pool.get(RequestOptions::within(Duration::from_secs(3600))).await.unwrap());
        }
        for within in TIMES.map(Duration::from_millis) {
            let begun = Instant::now();
            let error = pool.get(RequestOptions::within(within)).await.unwrap_err();
            assert_eq!((error.kind, error.waited), (Kind::WaitTimeout, begun.elapsed()));
            kept("a wait", begun, within);
        }
        // The wait and the use share one deadline.
        let freed = held.pop();
        let begun = Instant::now();
        let within = Duration::from_millis(500);
        let using = pool.with(RequestOptions::within(within), |loan| memory::ask(loan, "hang"));
        let (error, ()) = tokio::join!(using, async {
            sleep(within / 5).await;
            drop(freed);
        });
        assert_eq!(error.unwrap_err().kind, Kind::UseTimeout);
        kept("both together", begun, within);
        drop(held);
        host.restart();
    }
}

/// PL-30 PL-20: an exclusive connection is closed when its loan's time is over.
#[tokio::test(start_paused = true)]
async fn pl_30_an_exclusive_loan_ends_with_its_deadline() {
    let cluster = Memory::new(1, 1);
    let pool = full(&cluster).await;
    for within in TIMES.map(Duration::from_millis) {
        let accepted = cluster.host(0).accepted();
        let loan = pool.get(RequestOptions::within(within)).await.unwrap();
        sleep(within - MILLI).await;
        assert_eq!(loan.ask("x").await.as_deref(), Ok("x"), "still good");
        sleep(2 * MILLI).await;
        assert!(loan.ask("x").await.is_err(), "closed");
        drop(loan);
        sleep(MILLI).await;
        assert_eq!((cluster.host(0).accepted() - accepted, cluster.host(0).open()), (1, 2), "and replaced");
    }
    assert_eq!(pool.counters().use_timeouts, TIMES.len() as u64);
}
