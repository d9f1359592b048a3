//! CQL as the pool sees it: opens connections, asks who is there, and remembers who holds what.

mod keys;
mod login;
mod map;
mod open;
mod presence;

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
use login::Refusals;
use map::Map;
use open::{Open, Sockets, Streams};
use presence::Presence;

/// For each question of a round.
const ROUND_TIME: Duration = Duration::from_secs(5);
const NOTICES_MAX: usize = 64;
/// How many statements are remembered.
const STATEMENTS_MAX: usize = 1000;
/// How many of them a server that has come back is told at once; the others when they are used.
const STATEMENTS_AT_RETURN: usize = 100;
const RETURN_TIME: Duration = Duration::from_secs(10);

/// A cluster of CQL servers.
#[derive(Debug)]
pub struct Cluster {
    /// As the program gave them, and with what the tables of the pool's settings say.
    base: Settings,
    settings: ArcSwap<Settings>,
    open: Box<dyn Open>,
    map: ArcSwap<Map>,
    statements: Arc<Cache>,
    refusals: Refusals,
    presence: Presence,
    /// Statements that were prepared again, since a server had returned or forgotten them.
    prepared_again: Arc<AtomicU64>,
    /// What people should know, one line for each matter.
    remarks: Mutex<BTreeMap<&'static str, String>>,
}

impl Cluster {
    pub fn new(settings: Settings) -> Self {
        Self::opened_by(settings, Sockets)
    }

    /// Over streams of another kind.
    pub fn dialling(settings: Settings, dial: impl Dial) -> Self {
        Self::opened_by(settings, Streams(dial))
    }

    fn opened_by(settings: Settings, open: impl Open + 'static) -> Self {
        Self {
            open: Box::new(open),
            settings: ArcSwap::from_pointee(settings.clone()),
            base: settings,
            map: ArcSwap::default(),
            statements: Arc::new(Cache::new(STATEMENTS_MAX)),
            refusals: Refusals::default(),
            presence: Presence::default(),
            prepared_again: Arc::default(),
            remarks: Mutex::default(),
        }
    }

    pub(crate) fn map(&self) -> arc_swap::Guard<Arc<Map>> {
        self.map.load()
    }

    pub(crate) fn statements(&self) -> &Cache {
        &self.statements
    }

    /// Those that speak this version; `None` if all do.
    pub(crate) fn speakers(&self, version: Version) -> Option<Vec<ServerId>> {
        self.presence.speakers(version, self.map().servers())
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

/// Tells a server that has come back the statements it knew, those that are used most first and one after the other: it
/// has enough to do. What somebody executes meanwhile is prepared out of turn, and not twice.
async fn prepare_again(connection: Connection, statements: Arc<Cache>) {
    let by = Instant::now() + RETURN_TIME;
    let known = statements.most_used(STATEMENTS_AT_RETURN).into_iter();
    let known: Vec<_> = known.filter_map(|one| Some((one.known_at(connection.server())?, one))).collect();
    for (stale, statement) in known {
        match connection.prepare_again(&statement, &stale, by).await {
            // Its table may be gone; the others are not.
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
        self.presence.forget(begun);
        if let Some(refused) = self.refusals.too_soon(to.address, begun) {
            return Err(refused);
        }
        let address = self.presence.name(to.address, begun);
        let (write_timeout, dead_after) = (limits.write, limits.silence);
        let mut settings = Settings { write_timeout, dead_after, ..(**self.settings.load()).clone() };
        let agreed = self.presence.agreed(to.address).filter(|agreed| settings.versions.contain(*agreed));
        settings.versions.highest = agreed.unwrap_or(settings.versions.highest);
        let within = connection::Limits { tcp: limits.tcp, ready: limits.ready };
        let opened = self.open.open(to.address, &address, &settings, within).await;
        if agreed.is_some() && matches!(opened, Err(Error { cause: Cause::Version { .. }, .. })) {
            self.presence.disagree(to.address);
        }
        self.refusals.heard(to.address, &opened, begun, Instant::now());
        let connection = opened?;
        connection.count_forgotten(&self.prepared_again);
        self.compare_compression(&connection);
        if self.presence.came(to, &connection) {
            tokio::spawn(prepare_again(connection.clone(), Arc::clone(&self.statements)));
        }
        Ok(connection)
    }

    async fn watch(&self, on: &Connection) -> Result<mpsc::Receiver<pool::Notice>, Error> {
        let mut heard = on.listen(Instant::now() + ROUND_TIME).await?;
        let (tell, told) = mpsc::channel(NOTICES_MAX);
        // Ends with the connection, or when nobody listens any more.
        tokio::spawn(async move {
            while let Some(notice) = heard.recv().await {
                let notice = match notice {
                    wire::Notice::Added(at) => pool::Notice::Added(at),
                    wire::Notice::Removed(at) => pool::Notice::Removed(at),
                    wire::Notice::Up(at) => pool::Notice::Up(at),
                    wire::Notice::Down(at) => pool::Notice::Down(at),
                    wire::Notice::Schema(_) | wire::Notice::Other(_) => pool::Notice::Schema,
                };
                if tell.send(notice).await.is_err() {
                    return;
                }
            }
        });
        Ok(told)
    }

    async fn discover(&self, on: &Connection) -> Result<Vec<Server>, Error> {
        let dialled = on.server().parse();
        let dialled = dialled.map_err(|_| on.error(Cause::Unexpected { asked: "where it is", got: "no address" }))?;
        let by = Instant::now() + ROUND_TIME;
        let topology = Topology::ask(on, dialled, by).await?;
        let map = Map::new(&topology, keyspaces(on, by).await?);
        let servers = map.servers().to_vec();
        self.map.store(Arc::new(map));
        let elsewhere = format!("requests go anywhere: the partitioner is {}, not Murmur3", topology.partitioner);
        self.remark("routing", (!topology.is_murmur3()).then_some(elsewhere));
        Ok(servers)
    }

    async fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.open.look_up(name).await
    }

    fn verdict(&self, error: &Error) -> Verdict {
        verdict(&error.cause)
    }

    /// For new connections; those that are open stay as they are.
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

    /// Opens nothing, and keeps what it was to be opened with.
    #[derive(Debug, Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<Settings>>>);

    impl Open for Recorder {
        fn open<'a>(
            &'a self,
            _to: SocketAddr,
            name: &'a Arc<str>,
            settings: &'a Settings,
            _limits: connection::Limits,
        ) -> open::Opening<'a> {
            self.0.lock().unwrap().push(settings.clone());
            Box::pin(std::future::ready(Err(Cause::Closed.at(name))))
        }

        fn look_up<'a>(&'a self, _name: &'a str) -> open::LookingUp<'a> {
            Box::pin(std::future::ready(Ok(Vec::new())))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cq_16_the_kernel_waits_for_a_peer_as_long_as_a_heartbeat_may_take() {
        let (recorder, offered) = (Recorder::default(), Arc::new(Mutex::new((1500, "lz4"))));
        let cluster = Cluster::opened_by(Settings::default(), recorder.clone());
        let told = Arc::clone(&offered);
        let settings = Functions(move || {
            let (heartbeat, compression) = *told.lock().unwrap();
            let text = format!(
                "[cassandra]\nservers = [\"127.0.0.1\"]\ndiscovery = false\nheartbeat-timeout = \"{heartbeat}ms\"\n\
                 [cassandra.cql]\ncompression = \"{compression}\""
            );
            pool::Section::from_toml(&text, "cassandra")?.settings()
        });
        let _pool = Pool::start_with(cluster, settings, TokioClock::default(), 7).unwrap();
        // Zero is refused by the pool, other compressions are by the connector: what was in force stays.
        for (said, expected) in
            [((1500, "lz4"), 1500), ((700, "lz4"), 700), ((0, "lz4"), 700), ((900, "zstd"), 700), ((2000, "lz4"), 2000)]
        {
            *offered.lock().unwrap() = said;
            tokio::time::sleep(Duration::from_secs(3)).await;
            recorder.0.lock().unwrap().clear();
            tokio::time::sleep(Duration::from_secs(30)).await;
            let used: Vec<Duration> = recorder.0.lock().unwrap().iter().map(|settings| settings.dead_after).collect();
            assert!(!used.is_empty() && used.iter().all(|used| used.as_millis() == expected), "{said:?}: {used:?}");
        }
    }
}
