//! Tests of the pool on real sockets, with test servers on loopback that can be stopped, paused, slowed and made
//! silent. The tests count at the servers.

#[cfg(feature = "testing")]
mod checkin;
#[cfg(feature = "testing")]
mod conformance;
mod connecting;
mod control;
#[cfg(feature = "testing")]
mod deadlines;
mod discovery;
#[cfg(feature = "testing")]
mod fairness;
#[cfg(feature = "testing")]
mod faults;
#[cfg(feature = "testing")]
mod keys;
mod lines;
#[cfg(feature = "testing")]
mod names;
mod node;
mod outage;
mod requests;
#[cfg(feature = "testing")]
mod returning;
mod settings;

use std::{future::Future, time::Duration};

use honeyflow_pool::{Pool, Settings};
use lines::Lines;
use node::Node;

/// A generous time limit, which only stops tests that hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until the condition holds.
async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, waiting).await;
}

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Settings with two connections per server, without random replacement and without discovery.
fn plain(nodes: &[&Node]) -> Settings {
    Settings {
        servers: nodes.iter().map(|node| node.address().to_string()).collect(),
        discovery: false,
        start_jitter: Duration::ZERO,
        slow_start: Duration::ZERO,
        connections_per_server: Some(2),
        decay_per_billion: Some(0),
        ..Settings::default()
    }
}

async fn full(settings: Settings, connector: Lines, connections: u32) -> Pool<Lines> {
    let pool = Pool::start(connector, settings).unwrap();
    let by = tokio::time::Instant::now() + PATIENCE;
    assert!(pool.control().ready(connections, by).await, "{:?}", pool.status());
    pool
}
