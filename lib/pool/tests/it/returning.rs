//! Many pools and one server that comes back, on a stopped clock.

use std::time::Duration;

use honeyflow_pool::{Settings, testing::memory::Memory};
use tokio::time::sleep;

const POOLS: u64 = 100;
const EACH: u32 = 3;

/// PL-188 PL-118: it is filled, and not run over.
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
