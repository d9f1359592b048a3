//! The pool's connector for CQL: opens connections, discovers the servers, and knows which servers hold which data.

mod connect;
mod keys;
mod login_backoff;
mod protocol_versions;
mod replica_map;
mod server_returns;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use honeyflow_pool::settings::Table;
use honeyflow_pool::{self as pool, Dial, Server, ServerId, SettingsError, Verdict};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::connection::{self, Connection, Settings};
use crate::error::{Cause, Error};
use crate::session::Cache;
use crate::topology::{Topology, keyspaces};
use crate::verdict::verdict;
use crate::wire::{self, Version};
use connect::{Connect, Sockets, Streams};
use login_backoff::LoginRefusals;
use protocol_versions::ProtocolVersions;
use replica_map::ReplicaMap;
use server_returns::ServerReturns;

/// The time limit of each request in a round of discovery.
const ROUND_TIME: Duration = Duration::from_secs(5);
const NOTICES_MAX: usize = 64;
/// The largest number of statements that are remembered.
const STATEMENTS_MAX: usize = 1000;
/// How many of them are prepared at once at a server that has come back; the others are prepared when they are used.
const STATEMENTS_AT_RETURN: usize = 100;
const RETURN_TIME: Duration = Duration::from_secs(10);

/// A cluster of CQL servers.
#[derive(Debug)]
pub struct Cluster {
    /// The settings that the program gave.
    base: Settings,
    /// `base`, changed by the tables of the pool's settings.
    settings: ArcSwap<Settings>,
    connect: Box<dyn Connect>,
    map: ArcSwap<ReplicaMap>,
    statements: Arc<Cache>,
    refusals: LoginRefusals,
    returns: ServerReturns,
    versions: ProtocolVersions,
    /// The number of statements that were prepared again, because a server had come back or forgotten them.
    prepared_again: Arc<AtomicU64>,
    /// Remarks for the operator, one line per subject.
    remarks: Mutex<BTreeMap<&'static str, String>>,
}

impl Cluster {
    pub fn new(settings: Settings) -> Self {
        Self::with_connect(settings, Sockets)
    }

    /// Creates a cluster that dials with `dial`.
    pub fn dialling(settings: Settings, dial: impl Dial) -> Self {
        Self::with_connect(settings, Streams(dial))
    }

    fn with_connect(settings: Settings, connect: impl Connect + 'static) -> Self {
        Self {
            connect: Box::new(connect),
            settings: ArcSwap::from_pointee(settings.clone()),
            base: settings,
            map: ArcSwap::default(),
            statements: Arc::new(Cache::new(STATEMENTS_MAX)),
            refusals: LoginRefusals::default(),
            returns: ServerReturns::default(),
            versions: ProtocolVersions::default(),
            prepared_again: Arc::default(),
            remarks: Mutex::default(),
        }
    }

    pub(crate) fn map(&self) -> arc_swap::Guard<Arc<ReplicaMap>> {
        self.map.load()
    }

    pub(crate) fn statements(&self) -> &Cache {
        &self.statements
    }

    /// Returns the servers that speak this version; `None` if no server is known to speak another one.
    pub(crate) fn speakers(&self, version: Version) -> Option<Vec<ServerId>> {
        self.versions.speakers(version, self.map().servers())
    }

    fn remark(&self, about: &'static str, remark: Option<String>) {
        let mut remarks = self.remarks.lock().unwrap_or_else(PoisonError::into_inner);
        match remark {
            Some(remark) => remarks.insert(about, remark),
            None => remarks.remove(about),
        };
    }

    fn compare_compression(&self, connection: &Connection) {
        let (asked, got) = (self.settings.load().compression, connection.compression());
        let remark = format!(
            "compression {asked:?} was asked for, {} has {got:?} on {}",
            connection.server(),
            connection.version()
        );
        self.remark("compression", (asked != got).then_some(remark));
    }
}

/// Prepares the statements again that a returned server knew, most used first and one at a time, since the server is
/// busy after its start. A statement that a caller executes meanwhile is prepared at once, and not a second time here.
async fn prepare_again(connection: Connection, statements: Arc<Cache>) {
    let by = Instant::now() + RETURN_TIME;
    let known = statements.most_used(STATEMENTS_AT_RETURN).into_iter();
    let known: Vec<_> = known.filter_map(|one| Some((one.prepared_on(connection.server())?, one))).collect();
    for (stale, statement) in known {
        match connection.prepare_again(&statement, &stale, by).await {
            // The table of this statement may be gone; the others are still prepared.
            Ok(_) | Err(Error { cause: Cause::Refused(_), .. }) => {}
            Err(_) => return,
        }
    }
}

impl pool::Connector for Cluster {
    type Connection = Connection;
    type Error = Error;

    async fn connect(&self, to: &Server, limits: pool::Limits) -> Result<Connection, Error> {
        let begun = Instant::now();
        self.versions.forget(&self.returns.forget_absent(begun));
        if let Some(refused) = self.refusals.too_soon(to.address, begun) {
            return Err(refused);
        }
        let address = self.returns.name(to.address, begun);
        let (write_timeout, dead_after) = (limits.write, limits.silence);
        let mut settings = Settings { write_timeout, dead_after, ..(**self.settings.load()).clone() };
        let negotiated = self.returns.is_connected(to.address).then(|| self.versions.negotiated(to.address)).flatten();
        let negotiated = negotiated.filter(|version| settings.versions.contain(*version));
        settings.versions.highest = negotiated.unwrap_or(settings.versions.highest);
        let within = connection::Limits { tcp: limits.tcp, ready: limits.ready };
        let opened = self.connect.connect(to.address, &address, &settings, within).await;
        if negotiated.is_some() && matches!(opened, Err(Error { cause: Cause::Version { .. }, .. })) {
            self.versions.refuse(to.address);
        }
        self.refusals.record(to.address, &opened, begun, Instant::now());
        let connection = opened?;
        connection.count_forgotten(&self.prepared_again);
        self.compare_compression(&connection);
        self.versions.record(to, connection.version());
        if self.returns.connected(to.address, &connection) {
            tokio::spawn(prepare_again(connection.clone(), Arc::clone(&self.statements)));
        }
        Ok(connection)
    }

    async fn watch(&self, on: &Connection) -> Result<mpsc::Receiver<pool::Notice>, Error> {
        let mut received = on.listen(Instant::now() + ROUND_TIME).await?;
        let (sender, notices) = mpsc::channel(NOTICES_MAX);
        // Ends with the connection, or when the receiver is dropped.
        tokio::spawn(async move {
            while let Some(notice) = received.recv().await {
                let notice = match notice {
                    wire::Notice::Added(at) => pool::Notice::Added(at),
                    wire::Notice::Removed(at) => pool::Notice::Removed(at),
                    wire::Notice::Up(at) => pool::Notice::Up(at),
                    wire::Notice::Down(at) => pool::Notice::Down(at),
                    wire::Notice::Schema(_) | wire::Notice::Other(_) => pool::Notice::Schema,
                };
                if sender.send(notice).await.is_err() {
                    return;
                }
            }
        });
        Ok(notices)
    }

    async fn discover(&self, on: &Connection) -> Result<Vec<Server>, Error> {
        let dialled = on.server().parse();
        let dialled = dialled.map_err(|_| on.error(Cause::Unexpected { asked: "where it is", got: "no address" }))?;
        let by = Instant::now() + ROUND_TIME;
        let topology = Topology::ask(on, dialled, by).await?;
        let map = ReplicaMap::new(&topology, keyspaces(on, by).await?);
        let servers = map.servers().to_vec();
        self.map.store(Arc::new(map));
        let elsewhere = format!("requests go anywhere: the partitioner is {}, not Murmur3", topology.partitioner);
        self.remark("routing", (!topology.is_murmur3()).then_some(elsewhere));
        Ok(servers)
    }

    async fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.connect.look_up(name).await
    }

    fn verdict(&self, error: &Error) -> Verdict {
        verdict(&error.cause)
    }

    /// Sets the settings of new connections; open connections stay as they are.
    fn configure(&self, own: &Table) -> Result<(), SettingsError> {
        self.settings.store(Arc::new(keys::read(&self.base, own)?));
        Ok(())
    }

    fn counts(&self) -> Vec<(&'static str, u64)> {
        vec![("prepared_again", self.prepared_again.load(Ordering::Relaxed))]
    }

    fn remarks(&self) -> Vec<String> {
        self.remarks.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}

impl pool::Connection for Connection {
    fn streams(&self) -> u32 {
        self.streams_max().into()
    }

    fn broken(&self) -> bool {
        Connection::broken(self)
    }

    fn answered_wrongly(&self) -> bool {
        Connection::answered_wrongly(self)
    }

    async fn closed(&self) {
        Connection::closed(self).await;
    }

    async fn probe(&self, by: Instant) -> bool {
        Connection::probe(self, by).await
    }

    fn last_read(&self) -> Option<Instant> {
        Some(Connection::last_read(self))
    }

    async fn close(&self, by: Instant) {
        Connection::close(self, by).await;
    }
}

#[cfg(test)]
mod tests {
    use honeyflow_pool::clock::TokioClock;
    use honeyflow_pool::{Functions, Pool, Provider};

    use super::*;

    /// Opens nothing, and records the settings it was called with.
    #[derive(Debug, Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<Settings>>>);

    impl Connect for Recorder {
        fn connect<'a>(
            &'a self,
            _to: SocketAddr,
            name: &'a Arc<str>,
            settings: &'a Settings,
            _limits: connection::Limits,
        ) -> connect::ConnectFuture<'a> {
            self.0.lock().unwrap().push(settings.clone());
            Box::pin(std::future::ready(Err(Cause::Closed.at(name))))
        }

        fn look_up<'a>(&'a self, _name: &'a str) -> connect::LookUpFuture<'a> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cq_16_the_kernel_waits_for_a_peer_as_long_as_a_heartbeat_may_take() {
        let (recorder, offered) = (Recorder::default(), Arc::new(Mutex::new((1500, "lz4"))));
        let cluster = Cluster::with_connect(Settings::default(), recorder.clone());
        let configured = Arc::clone(&offered);
        let settings = Functions(move || {
            let (heartbeat, compression) = *configured.lock().unwrap();
            let text = format!(
                "[cassandra]\nservers = [\"127.0.0.1\"]\ndiscovery = false\nheartbeat-timeout = \"{heartbeat}ms\"\n\
                 [cassandra.cql]\ncompression = \"{compression}\""
            );
            pool::Section::from_toml(&text, "cassandra")?.settings()
        });
        let _pool = Pool::start_with(cluster, settings, TokioClock::default(), 7).unwrap();
        // The pool refuses zero, and the connector refuses an unknown compression: the previous settings stay in force.
        for (settings, expected) in
            [((1500, "lz4"), 1500), ((700, "lz4"), 700), ((0, "lz4"), 700), ((900, "zstd"), 700), ((2000, "lz4"), 2000)]
        {
            *offered.lock().unwrap() = settings;
            tokio::time::sleep(Duration::from_secs(3)).await;
            recorder.0.lock().unwrap().clear();
            tokio::time::sleep(Duration::from_secs(30)).await;
            let used: Vec<Duration> = recorder.0.lock().unwrap().iter().map(|settings| settings.dead_after).collect();
            assert!(!used.is_empty() && used.iter().all(|used| used.as_millis() == expected), "{settings:?}: {used:?}");
        }
    }
}
