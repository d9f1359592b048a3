//! PL-143, CQ-16: the conformance suite of pool connectors, with shared connections and with exclusive ones. It runs
//! over streams in memory with a paused clock, and against a real server.

mod relay;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::cluster::Cluster;
use honeyflow_cassandra::connection::Settings;
use honeyflow_cassandra::{Connection, Error, Options};
use honeyflow_pool::settings::Mode;
use honeyflow_pool::testing::Rig;
use honeyflow_pool::{Loan, Pool, Server, SettingsError};

use crate::network::{Network, address};
use crate::scripted::{ReceivedRequest, Reply, Script, refuse, text_row};
use crate::speak::Body;
use crate::topology;

const STREAMS: u16 = 16;
const ASK: &str = "SELECT release_version FROM system.local";
/// A request that is never answered: a scripted server does not reply, a relay does not forward it.
const HANG: &str = "SELECT hang";
const WRONG: &str = "SELEC";

fn answer(received: &ReceivedRequest) -> Reply {
    match &received.request {
        RequestBody::Query(query) if query.query == HANG => Reply::Nothing,
        RequestBody::Query(query) if query.query == WRONG => refuse(0x2000, Body::new()),
        RequestBody::Query(query) => text_row(&query.query),
        _ => Reply::Nothing,
    }
}

/// The servers of the cluster, as the system tables of the server `itself` list them.
fn described(received: &ReceivedRequest, itself: usize, cluster: &[usize]) -> Option<Reply> {
    let RequestBody::Query(query) = &received.request else { return None };
    let id = |at: usize| u128::try_from(at + 1).unwrap();
    let rows = match query.query.as_str() {
        text if text.contains("system.local WHERE") => {
            let own = || topology::local(id(itself));
            cluster.contains(&itself).then(own).into_iter().collect()
        }
        text if text.contains("system.peers_v2") => {
            let peer = |at: &usize| topology::peer(id(*at), &["1"], &address(*at).ip().to_string(), 9042);
            cluster.iter().filter(|at| **at != itself).map(peer).collect()
        }
        text if text.contains("system_schema.keyspaces") => Vec::new(),
        _ => return None,
    };
    Some(topology::table(&rows))
}

async fn ask(mut loan: Loan<Cluster>, text: &str) -> Result<(), Error> {
    Connection::of_loan(&mut loan).query(text, &Options::default()).await.map(drop)
}

/// Servers that a test can stop, and a pool on them.
trait TestServers: Send + Sync + 'static {
    fn start(servers: usize) -> Self;
    fn pool(&self, settings: honeyflow_pool::Settings) -> Result<Pool<Cluster>, SettingsError>;
    fn stop(&self, at: usize);
    fn restart(&self, at: usize);
    fn tell(&self, cluster: &[usize]);
    fn silence(&self, at: usize, silent: bool);
    fn open(&self, at: usize) -> usize;
    fn accepted(&self, at: usize) -> usize;
}

struct ServersRig<G, const EXCLUSIVE: bool>(G);

impl<G: TestServers, const EXCLUSIVE: bool> Rig for ServersRig<G, EXCLUSIVE> {
    type Connector = Cluster;

    async fn start(servers: usize) -> Self {
        Self(G::start(servers))
    }

    fn pool(&self, settings: honeyflow_pool::Settings) -> Result<Pool<Cluster>, SettingsError> {
        let mode = if EXCLUSIVE { Mode::Exclusive } else { Mode::Shared };
        self.0.pool(honeyflow_pool::Settings { mode, ..settings })
    }

    fn server(&self, at: usize) -> Server {
        Server::at(address(at))
    }

    async fn ask(loan: Loan<Cluster>) -> Result<(), Error> {
        ask(loan, ASK).await
    }

    async fn hang(loan: Loan<Cluster>) -> Result<(), Error> {
        ask(loan, HANG).await
    }

    async fn refuse(loan: Loan<Cluster>) -> Result<(), Error> {
        ask(loan, WRONG).await
    }

    async fn ask_once(on: &Connection) -> Result<(), Error> {
        on.query(ASK, &Options::default()).await.map(drop)
    }

    async fn stop(&self, at: usize) {
        self.0.stop(at);
    }

    async fn restart(&self, at: usize) {
        self.0.restart(at);
    }

    fn tell(&self, cluster: &[usize]) {
        self.0.tell(cluster);
    }

    fn silence(&self, at: usize, silent: bool) {
        self.0.silence(at, silent);
    }

    fn open(&self, at: usize) -> usize {
        self.0.open(at)
    }

    fn accepted(&self, at: usize) -> usize {
        self.0.accepted(at)
    }
}

/// Scripted servers that all list the same cluster.
struct ScriptedServers {
    network: Network,
    listed: Arc<Mutex<Vec<usize>>>,
    silent: Arc<Mutex<BTreeSet<usize>>>,
}

impl TestServers for ScriptedServers {
    fn start(servers: usize) -> Self {
        let (listed, silent) = (Arc::<Mutex<Vec<usize>>>::default(), Arc::<Mutex<BTreeSet<usize>>>::default());
        let script = |at| {
            let (listed, silent) = (Arc::clone(&listed), Arc::clone(&silent));
            Script::new(answer).first(move |received| match silent.lock().unwrap().contains(&at) {
                true => Some(Reply::Nothing),
                false => described(received, at, &listed.lock().unwrap()),
            })
        };
        Self { network: Network::of((0..servers).map(script)), listed, silent }
    }

    fn pool(&self, settings: honeyflow_pool::Settings) -> Result<Pool<Cluster>, SettingsError> {
        Ok(self.network.pool(Settings { streams_max: STREAMS, ..Settings::default() }, settings))
    }

    fn stop(&self, at: usize) {
        self.network.stop(at);
    }

    fn restart(&self, at: usize) {
        self.network.restart(at);
    }

    fn tell(&self, cluster: &[usize]) {
        *self.listed.lock().unwrap() = cluster.to_vec();
    }

    fn silence(&self, at: usize, silent: bool) {
        let mut all = self.silent.lock().unwrap();
        if silent {
            all.insert(at)
        } else {
            all.remove(&at)
        };
    }

    fn open(&self, at: usize) -> usize {
        self.network.open(at)
    }

    fn accepted(&self, at: usize) -> usize {
        self.network.accepted(at)
    }
}

mod shared {
    honeyflow_pool::conformance!(super::ServersRig<super::ScriptedServers, false>, start_paused = true);
}

mod exclusive {
    honeyflow_pool::conformance!(super::ServersRig<super::ScriptedServers, true>, start_paused = true);
}
