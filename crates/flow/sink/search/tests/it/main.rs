//! Tests of the connector: against servers written here, over streams in memory, for answers that no real server gives;
//! and against a real OpenSearch.

mod closing;
mod cluster;
mod conformance;
mod connection;
mod hostile;
mod http2;
mod protocol_errors;
mod random;
mod real;
mod scripted;

use std::{future::Future, time::Duration};

use honeyflow_pool::{Limits, Pool, Server, ServerState, Settings};
use honeyflow_sink_search::{Client, Config, Connection, Error, Search};
use scripted::ScriptedServers;

/// A generous limit that only stops a test that hangs.
const PATIENCE: Duration = Duration::from_secs(60);

const LIMITS: Limits = Limits { tcp: PATIENCE, ready: PATIENCE, write: PATIENCE, silence: PATIENCE };

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Waits until the condition is true.
async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    within(what, waiting).await;
}

fn config(servers: &[&str]) -> Config {
    let urls: Vec<String> = servers.iter().map(|server| format!("http://{server}")).collect();
    Config::of_urls(&urls).unwrap()
}

/// Opens one connection, outside of any pool.
async fn connect(servers: &ScriptedServers, config: Config) -> Result<Connection, Error> {
    connect_within(servers, config, LIMITS).await
}

async fn connect_within(servers: &ScriptedServers, config: Config, limits: Limits) -> Result<Connection, Error> {
    let to = Server::at(config.servers[0].parse().unwrap());
    let search = Search::dialling(config, servers.clone());
    within("connected", honeyflow_pool::Connector::connect(&search, &to, limits)).await
}

/// Settings with few connections and without randomness.
fn plain() -> Settings {
    Settings {
        start_jitter: Duration::ZERO,
        slow_start: Duration::ZERO,
        connections_per_server: Some(2),
        decay_per_billion: Some(0),
        ..Settings::default()
    }
}

fn client(servers: &ScriptedServers, config: Config, settings: Settings) -> Client<ScriptedServers> {
    let settings = config.settings(settings);
    Client::over(Pool::start(Search::dialling(config, servers.clone()), settings).unwrap())
}

async fn ready(client: &Client<ScriptedServers>, connections: u32) {
    let by = tokio::time::Instant::now() + PATIENCE;
    assert!(client.pool().control().ready(connections, by).await, "{:?}", client.pool().status());
}

fn states(client: &Client<ScriptedServers>) -> Vec<(String, ServerState)> {
    let servers = client.pool().status().servers;
    let mut states: Vec<_> = servers.iter().map(|one| (one.server.id.to_string(), one.state)).collect();
    states.sort_by(|one, other| one.0.cmp(&other.0));
    states
}

/// Formats an error with its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
