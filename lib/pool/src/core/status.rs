//! The status of the pool and its servers. It is made from memory alone, so it works when no server can be reached.

use std::{collections::HashMap, sync::Arc, time::Duration};

use honeyflow_runtime::Moment;

use super::{Class, Core, Key, PooledConnection, Record, ServerState, State, histogram::Histogram, ring::ServerRow};
use crate::{
    error::Kind,
    outage::{DownServer, Outage},
    server::Server,
    settings::SettingsError,
};

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    pub name: String,
    pub state: State,
    /// Why the pool is broken, if it is.
    pub broken_by: Option<Arc<str>>,
    /// Why the latest settings were refused, if they were.
    pub settings_error: Option<SettingsError>,
    /// Why the last discovery round failed, if it did.
    pub discovery_error: Option<Arc<str>>,
    /// The remarks of the connector, one line each.
    pub remarks: Vec<String>,
    /// How many connections the pool should have.
    pub wanted: u32,
    pub open: u32,
    pub idle: u32,
    /// Requests in flight, in the whole pool.
    pub lent: u32,
    pub closing: u32,
    /// The number of waiters by class, the highest class first.
    pub waiting: [usize; 3],
    pub oldest_waits: Option<Duration>,
    pub servers: Vec<ServerStatus>,
}

impl Status {
    /// The status of a pool that panicked while its status was read.
    pub(crate) fn unknown() -> Status {
        Status {
            name: String::new(),
            state: State::Broken,
            broken_by: None,
            settings_error: None,
            discovery_error: None,
            remarks: Vec::new(),
            wanted: 0,
            open: 0,
            idle: 0,
            lent: 0,
            closing: 0,
            waiting: [0; 3],
            oldest_waits: None,
            servers: Vec::new(),
        }
    }
}

#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServerStatus {
    pub server: Server,
    pub state: ServerState,
    pub target: u32,
    pub open: u32,
    pub opening: u32,
    pub idle: u32,
    /// The streams in use; orphans are not counted.
    pub lent: u32,
    pub orphans: u32,
    pub closing: u32,
    /// The time until the next connect, if the last one failed.
    pub next_try: Option<Duration>,
    /// The decaying average of request times.
    pub latency: Duration,
    /// This server's share of all requests of the pool, from 0 to 1.
    pub share: f64,
    pub last_error: Option<Arc<str>>,
    /// The kind of the last error: connect, login, protocol.
    pub last_error_kind: Option<Kind>,
    pub connects: Histogram,
    pub waits: Histogram,
    pub uses: Histogram,
    pub(crate) key: Key,
}

impl<K: PooledConnection> Core<K> {
    /// Returns the status without the histograms of the servers. [`Core::copy_times`] copies those one by one, so that
    /// no request waits until all are copied.
    pub fn status(&self, now: Moment) -> Status {
        let served: u64 = self.servers.iter().map(|(_, row)| row.served).sum();
        let mut idle: HashMap<Key, u32> = HashMap::new();
        for (_, connection) in self.connections.iter().filter(|(_, connection)| connection.in_flight == 0) {
            *idle.entry(connection.server).or_default() += 1;
        }
        let idle = |key| idle.get(&key).copied().unwrap_or(0);
        let servers: Vec<ServerStatus> =
            self.ring.iter().filter_map(|key| self.server_status(*key, idle(*key), served, now)).collect();
        let queues = || std::iter::once(&self.waiting).chain(self.servers.iter().map(|(_, row)| &row.waiting));
        let oldest =
            self.waiters.iter().filter(|(_, waiter)| waiter.is_queued()).map(|(_, waiter)| waiter.arrived).min();
        Status {
            name: String::new(),
            state: self.state,
            broken_by: self.broken_by.clone(),
            settings_error: None,
            discovery_error: None,
            remarks: Vec::new(),
            wanted: self.wanted(),
            open: servers.iter().map(|server| server.open).sum(),
            idle: servers.iter().map(|server| server.idle).sum(),
            lent: servers.iter().map(|server| server.lent).sum(),
            closing: servers.iter().map(|server| server.closing).sum(),
            waiting: Class::ALL.map(|class| queues().map(|queue| queue.len_of(class)).sum()),
            oldest_waits: oldest.map(|arrived| now.since(arrived)),
            servers,
        }
    }

    fn server_status(&self, key: Key, idle: u32, served: u64, now: Moment) -> Option<ServerStatus> {
        let row = self.servers.get(key)?;
        let target = self.rules.target(self.is_shared());
        Some(ServerStatus {
            server: row.server.clone(),
            state: row.state,
            target: row.target(target, self.rules.wants(row.tier)),
            open: row.serving + row.retiring + row.closing,
            opening: row.opening + row.replacing,
            idle,
            lent: row.in_flight - row.orphans,
            orphans: row.orphans,
            closing: row.closing,
            next_try: Some(row.connecting.next_try.since(now)).filter(|wait| !wait.is_zero()),
            latency: row.health.latency(),
            share: if served == 0 { 0.0 } else { row.served as f64 / served as f64 },
            last_error: row.last_error.as_ref().map(|trouble| trouble.why.clone()),
            last_error_kind: row.last_error.as_ref().map(|trouble| trouble.kind),
            connects: Histogram::default(),
            waits: Histogram::default(),
            uses: Histogram::default(),
            key,
        })
    }

    /// Copies the histograms of one server into allocated ones: connects, waits, uses.
    pub fn copy_times(&self, server: Key, into: &mut [Histogram; 3]) {
        if let Some(row) = self.servers.get(server) {
            let times = [&row.connects, &row.waits, &row.uses];
            into.iter_mut().zip(times).for_each(|(into, times)| into.copy(times));
        }
    }

    /// The keys of all servers, including leaving ones.
    pub fn server_keys(&self) -> Vec<Key> {
        self.servers.iter().map(|(key, _)| key).collect()
    }

    /// Why there is no server for a request that has tried these; `None` if there is one.
    pub fn outage(&self, tried: &[Key]) -> Option<Outage> {
        if self.has_untried_server(tried) {
            return None;
        }
        let ring = || self.ring.iter().filter_map(|key| self.servers.get(*key));
        let gone = || ring().filter(|row| row.state == ServerState::Down && self.rules.wants(row.tier));
        // Servers with an error come first: they tell more than servers that were not tried yet.
        let (failed, untried) =
            (gone().filter(|row| row.last_error.is_some()), gone().filter(|row| row.last_error.is_none()));
        let down: Vec<DownServer> = failed.chain(untried).take(Outage::NAMED).map(ServerRow::down).collect();
        Some(Outage {
            more: gone().count() - down.len(),
            down,
            known: self.ring.len(),
            remote: ring().filter(|row| !self.rules.wants(row.tier)).count(),
            ..Outage::default()
        })
    }

    /// Why this server cannot be used; `None` if it can.
    pub fn outage_of(&self, server: Key) -> Option<Outage> {
        let row = self.servers.get(server).filter(|row| row.state == ServerState::Down)?;
        Some(Outage { down: vec![row.down()], ..Outage::default() })
    }

    /// The numbers of idle connections, loans and waiters, for error reports.
    pub fn usage(&self) -> (usize, usize, usize) {
        let idle = self.connections.iter().filter(|(_, row)| row.in_flight == 0).count();
        (idle, self.loans, self.waiting_in_all)
    }

    /// One record per open connection.
    pub fn records(&self) -> Vec<(Server, Record)> {
        let rows = self.connections.iter().map(|(_, row)| row);
        rows.filter_map(|row| Some((self.servers.get(row.server)?.server.clone(), row.record))).collect()
    }

    /// Returns one record per open connection and resets them.
    pub fn take_records(&mut self) -> Vec<(Server, Record)> {
        let servers = &self.servers;
        let rows = self.connections.iter_mut().map(|(_, row)| (row.server, std::mem::take(&mut row.record)));
        rows.filter_map(|(server, record)| Some((servers.get(server)?.server.clone(), record))).collect()
    }

    /// Returns the histograms of one server since the last call: connects, waits, uses. `room` takes their place.
    pub fn take_times(&mut self, server: Key, room: [Histogram; 3]) -> Option<(Server, [Histogram; 3])> {
        let row = self.servers.get_mut(server)?;
        let [connects, waits, uses] = room;
        let replaced = |times: &mut Histogram, room| std::mem::replace(times, room);
        let taken =
            [replaced(&mut row.connects, connects), replaced(&mut row.waits, waits), replaced(&mut row.uses, uses)];
        Some((row.server.clone(), taken))
    }
}
