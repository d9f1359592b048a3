//! PL-143, CQ-16: the suite that every connector of a pool passes, with shared connections and with exclusive ones. Once over
//! streams in memory, by a stopped clock, and once before a real server.

mod relay;

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

async fn ask(mut loan: Loan<Cluster>, text: &str) -> Result<(), Error> {
    Connection::of_loan(&mut loan).query(text, &Options::default()).await.map(drop)
}

/// Servers that can be stopped, and a way to them.
trait Ground: Send + Sync + 'static {
    fn start(servers: usize) -> Self;
    fn pool(&self, settings: PoolSettings) -> Result<Pool<Cluster>, SettingsError>;
    fn stop(&self, at: usize);
    fn restart(&self, at: usize);
    fn open(&self, at: usize) -> usize;
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

    fn open(&self, at: usize) -> usize {
        self.0.open(at)
    }
}

impl Ground for Network {
    fn start(servers: usize) -> Self {
        Self::of((0..servers).map(|_| Script::new(answer)))
    }

    fn pool(&self, settings: PoolSettings) -> Result<Pool<Cluster>, SettingsError> {
        Ok(self.pool(Settings { streams_max: STREAMS, ..Settings::default() }, settings))
    }

    fn stop(&self, at: usize) {
        self.stop(at);
    }

    fn restart(&self, at: usize) {
        self.restart(at);
    }

    fn open(&self, at: usize) -> usize {
        self.open(at)
    }
}

mod shared {
    honeyflow_pool::conformance!(super::On<super::Network, false>, start_paused = true);
}

mod exclusive {
    honeyflow_pool::conformance!(super::On<super::Network, true>, start_paused = true);
}
