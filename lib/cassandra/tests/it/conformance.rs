//! PL-143, CQ-16: the suite that every connector of a pool passes, with shared connections and with exclusive ones. Once over
//! streams in memory, by a stopped clock, and once before a real server.

mod relay;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::cluster::Cluster;
use honeyflow_cassandra::connection::Settings;
use honeyflow_cassandra::{Connection, Error, Options};
use honeyflow_pool::settings::Mode;
use honeyflow_pool::testing::Rig;
use honeyflow_pool::{Loan, Pool, Server, Settings as PoolSettings, SettingsError};

use crate::network::{Network, address};
use crate::scripted::{Heard, Say, Script, refuse, text_row};
use crate::speak::Body;
use crate::topology;

const STREAMS: u16 = 16;
const ASK: &str = "SELECT release_version FROM system.local";
/// Never answered: a scripted server keeps silent, a relay does not pass it on.
const HANG: &str = "SELECT hang";
const WRONG: &str = "SELEC";

fn answer(heard: &Heard) -> Say {
    match &heard.request {
        RequestBody::Query(query) if query.query == HANG => Say::Nothing,
        RequestBody::Query(query) if query.query == WRONG => refuse(0x2000, Body::new()),
        RequestBody::Query(query) => text_row(&query.query),
        _ => Say::Nothing,
    }
}

/// Who is there, as this server's system tables have it.
fn described(heard: &Heard, itself: usize, cluster: &[usize]) -> Option<Say> {
    let RequestBody::Query(query) = &heard.request else { return None };
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

/// Servers that can be stopped, and a way to them.
trait Ground: Send + Sync + 'static {
    fn start(servers: usize) -> Self;
    fn pool(&self, settings: PoolSettings) -> Result<Pool<Cluster>, SettingsError>;
    fn stop(&self, at: usize);
    fn restart(&self, at: usize);
    fn tell(&self, cluster: &[usize]);
    fn silence(&self, at: usize, silent: bool);
    fn open(&self, at: usize) -> usize;
    fn accepted(&self, at: usize) -> usize;
}

struct On<G, const EXCLUSIVE: bool>(G);

impl<G: Ground, const EXCLUSIVE: bool> Rig for On<G, EXCLUSIVE> {
    type Connector = Cluster;

    async fn start(servers: usize) -> Self {
        Self(G::start(servers))
    }

    fn pool(&self, settings: PoolSettings) -> Result<Pool<Cluster>, SettingsError> {
        let mode = if EXCLUSIVE { Mode::Exclusive } else { Mode::Shared };
        self.0.pool(PoolSettings { mode, ..settings })
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

/// Scripted servers of one mind about who is there.
struct Scripted {
    network: Network,
    told: Arc<Mutex<Vec<usize>>>,
    silent: Arc<Mutex<BTreeSet<usize>>>,
}

impl Ground for Scripted {
    fn start(servers: usize) -> Self {
        let (told, silent) = (Arc::<Mutex<Vec<usize>>>::default(), Arc::<Mutex<BTreeSet<usize>>>::default());
        let script = |at| {
            let (told, silent) = (Arc::clone(&told), Arc::clone(&silent));
            Script::new(answer).first(move |heard| match silent.lock().unwrap().contains(&at) {
                true => Some(Say::Nothing),
                false => described(heard, at, &told.lock().unwrap()),
            })
        };
        Self { network: Network::of((0..servers).map(script)), told, silent }
    }

    fn pool(&self, settings: PoolSettings) -> Result<Pool<Cluster>, SettingsError> {
        Ok(self.network.pool(Settings { streams_max: STREAMS, ..Settings::default() }, settings))
    }

    fn stop(&self, at: usize) {
        self.network.stop(at);
    }

    fn restart(&self, at: usize) {
        self.network.restart(at);
    }

    fn tell(&self, cluster: &[usize]) {
        *self.told.lock().unwrap() = cluster.to_vec();
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
    honeyflow_pool::conformance!(super::On<super::Scripted, false>, start_paused = true);
}

mod exclusive {
    honeyflow_pool::conformance!(super::On<super::Scripted, true>, start_paused = true);
}
