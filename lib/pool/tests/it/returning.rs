//! A server that comes back, on a paused clock.

use std::time::Duration;

use honeyflow_pool::{
    RequestOptions, Settings,
    testing::memory::{self, Memory},
};
use tokio::time::{Instant, sleep};

const POOLS: u64 = 100;
const EACH: u32 = 3;

/// PL-188 PL-118: the server gets its connections, without many extra connects.
#[tokio::test(start_paused = true)]
async fn pl_188_a_returning_server_sees_no_storm_of_a_hundred_pools() {
    let wanted = POOLS as usize * EACH as usize;
    let cluster = Memory::new(1, 1);
    let host = cluster.host(0);
    host.delay_connects(Duration::from_millis(5));
    let settings = Settings {
        servers: vec!["127.0.0.1:1".to_owned()],
        discovery: false,
        connections_per_server: Some(EACH),
        decay_per_billion: Some(0),
        ..Settings::default()
    };
    let connectors: Vec<Memory> = (0..POOLS).map(|_| cluster.again()).collect();
    let pools: Vec<_> = connectors
        .iter()
        .zip(0..)
        .map(|(own, seed)| own.pool(settings.clone(), seed).expect("good settings"))
        .collect();
    sleep(Duration::from_secs(5)).await;
    assert_eq!((host.open(), host.accepted()), (wanted, wanted), "full at first");
    host.stop();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(host.open(), 0);
    host.restart();
    sleep(Duration::from_secs(10)).await;
    assert_eq!(host.open(), wanted, "full again");
    let made = host.accepted() - wanted;
    assert!(made * 10 <= wanted * 12, "{made} connects for {wanted}");
    for own in &connectors {
        assert!(own.connecting_max() <= 2, "{} at a time", own.connecting_max());
    }
    drop(pools);
}

/// PL-186: counted at the server over twenty restarts. A bench measures the peer.
#[tokio::test(start_paused = true)]
async fn pl_186_a_restarted_server_is_soon_full_and_soon_at_its_share() {
    let cluster = Memory::new(3, 1);
    let (host, wanted) = (cluster.host(0).clone(), EACH as usize);
    let settings = Settings {
        servers: (1..=3).map(|port| format!("127.0.0.1:{port}")).collect(),
        discovery: false,
        connections_per_server: Some(EACH),
        decay_per_billion: Some(0),
        // A killed server refuses connects and is then tried once a second; a stopped host in memory is only
        // unreachable.
        max_backoff: Duration::from_secs(1),
        ..Settings::default()
    };
    let pool = cluster.pool(settings, 3).expect("good settings");
    let load = tokio::spawn({
        let pool = pool.clone();
        async move {
            loop {
                let _ = pool.with(RequestOptions::default().idempotent(), |loan| memory::ask(loan, "x")).await;
                sleep(Duration::from_millis(20)).await;
            }
        }
    });
    sleep(Duration::from_secs(5)).await;
    let mut times = Vec::new();
    for _ in 0..20 {
        host.stop();
        sleep(Duration::from_secs(20)).await;
        host.restart();
        let begun = Instant::now();
        while host.open() < wanted {
            sleep(Duration::from_millis(10)).await;
        }
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    assert!(times[10] <= Duration::from_secs(2) && times[19] <= Duration::from_secs(5), "{times:?}");
    sleep(Duration::from_secs(35)).await;
    let answered = || [0, 1, 2].map(|at| cluster.host(at).answered());
    let before = answered();
    sleep(Duration::from_secs(10)).await;
    let now = answered();
    let share = |at: usize| now[at] - before[at];
    let all: usize = (0..3).map(share).sum();
    assert!(share(0) * 3 * 10 >= all * 8, "{} of {all}", share(0));
    load.abort();
}
