//! The pool on real sockets: servers written here, on loopback, that can be stopped, paused, slowed and made silent. What
//! must be true is counted at the servers.

#[cfg(feature = "testing")]
mod checkin;
#[cfg(feature = "testing")]
mod conformance;
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
mod opening;
mod outage;
#[cfg(feature = "testing")]
mod returning;
mod settings;
mod using;

use std::{future::Future, time::Duration};

use honeyflow_pool::{Pool, Settings};
use lines::Lines;
use node::Node;

/// Generous: only against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it is so.
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

/// Few connections, no chance, no discovery.
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
