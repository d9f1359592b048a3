//! The connector against servers written here, over streams in memory, for what no real server can be made to say; and
//! against a real OpenSearch for what only that can.

mod cluster;
mod conformance;
mod connection;
mod ending;
mod hostile;
mod http2;
mod random;
mod real;
mod scripted;
mod wrong;

use std::{future::Future, time::Duration};

use honeyflow_pool::{Limits, Pool, Server, ServerState, Settings};
use honeyflow_sink_search::{Client, Config, Connection, Error, Search};
use scripted::Scripted;

/// Generous: only against hanging.
const PATIENCE: Duration = Duration::from_secs(60);

const LIMITS: Limits = Limits { tcp: PATIENCE, ready: PATIENCE, write: PATIENCE, silence: PATIENCE };

async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.unwrap_or_else(|_| panic!("never: {what}"))
}

/// Waits until it is so.
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

/// One connection, outside of any pool.
async fn connect(servers: &Scripted, config: Config) -> Result<Connection, Error> {
    connect_within(servers, config, LIMITS).await
}

async fn connect_within(servers: &Scripted, config: Config, limits: Limits) -> Result<Connection, Error> {
    let to = Server::at(config.servers[0].parse().unwrap());
    let search = Search::dialling(config, servers.clone());
    within("connected", honeyflow_pool::Connector::connect(&search, &to, limits)).await
}

/// Few connections, no chance.
fn plain() -> Settings {
    Settings {
        start_jitter: Duration::ZERO,
        slow_start: Duration::ZERO,
        connections_per_server: Some(2),
        decay_per_billion: Some(0),
        ..Settings::default()
    }
}

fn client(servers: &Scripted, config: Config, settings: Settings) -> Client<Scripted> {
    let settings = config.settings(settings);
    Client::over(Pool::start(Search::dialling(config, servers.clone()), settings).unwrap())
}

async fn ready(client: &Client<Scripted>, connections: u32) {
    let by = tokio::time::Instant::now() + PATIENCE;
    assert!(client.pool().control().ready(connections, by).await, "{:?}", client.pool().status());
}

fn states(client: &Client<Scripted>) -> Vec<(String, ServerState)> {
    let servers = client.pool().status().servers;
    let mut states: Vec<_> = servers.iter().map(|one| (one.server.id.to_string(), one.state)).collect();
    states.sort_by(|one, other| one.0.cmp(&other.0));
    states
}

/// What an error says, with its causes.
fn said(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
