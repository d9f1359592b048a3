//! Three real servers, each with a proxy before it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use honeyflow_cassandra::{Connection, Options, Session, connection, topology::Topology};
use honeyflow_pool::settings::Translate;
use honeyflow_services::Cassandras;
use tokio::time::Instant;

use super::{
    ground::stand_in,
    proxy::{Ears, Proxy},
    tap::Tap,
};

pub struct Nodes {
    cluster: Cassandras,
    proxies: Vec<Proxy>,
    /// Passed on by each of them.
    requests: Vec<Arc<AtomicU64>>,
    runtime: tokio::runtime::Runtime,
}

const COUNT: u8 = 3;
const ASKED_WITHIN: Duration = Duration::from_secs(10);
/// Servers that are well must not wait for a replica that stands still, or whoever is asked has no answer in time.
const TABLE: [&str; 2] = [
    "CREATE KEYSPACE IF NOT EXISTS chaos WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
    "CREATE TABLE IF NOT EXISTS chaos.t (id int PRIMARY KEY, n bigint) WITH speculative_retry = '50ms'",
];

impl Nodes {
    /// # Errors
    /// If there is no Cassandra here, or it does not start.
    pub fn start() -> Result<Nodes, String> {
        eprintln!("starting {COUNT} nodes of Cassandra");
        let cluster = Cassandras::start(COUNT).map_err(|error| error.to_string())?;
        // Of their own: what the client leaves behind is counted on its runtime.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let requests: Vec<Arc<AtomicU64>> = (0..COUNT).map(|_| Arc::default()).collect();
        let before = |(server, count): (SocketAddr, &Arc<AtomicU64>)| {
            runtime.block_on(Proxy::start_with(stand_in(server), server, counting(count)))
        };
        let proxies: Result<Vec<Proxy>, _> = cluster.addresses().into_iter().zip(&requests).map(before).collect();
        Ok(Nodes { cluster, proxies: proxies.map_err(|error| error.to_string())?, requests, runtime })
    }

    /// How many have gone to each, since the beginning.
    pub fn requests(&self) -> Vec<u64> {
        self.requests.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }

    pub fn proxies(&self) -> &[Proxy] {
        &self.proxies
    }

    pub fn cluster(&self) -> &Cassandras {
        &self.cluster
    }

    pub fn seeds(&self) -> Vec<String> {
        self.proxies.iter().map(|proxy| proxy.address.to_string()).collect()
    }

    /// Whatever address a server gives, its proxy is dialled.
    pub fn translate(&self) -> Translate {
        let table = self.cluster.addresses().into_iter().map(|server| (server, stand_in(server))).collect();
        Translate { table, hook: None }
    }

    pub fn open(&self) -> u32 {
        self.proxies.iter().map(Proxy::open).sum()
    }

    /// # Errors
    /// If the table cannot be made.
    pub async fn furnish(&self, session: &Session) -> Result<(), String> {
        for statement in TABLE {
            let how = Options::within(Duration::from_secs(30)).idempotent();
            session.query(statement, &how).await.map_err(|error| format!("{statement}: {error}: {:?}", error.cause))?;
        }
        Ok(())
    }

    /// # Errors
    /// If there is no such node.
    pub fn pause(&self, number: usize) -> Result<(), String> {
        self.cluster.node(number).ok_or("no such node")?.pause();
        Ok(())
    }

    /// # Errors
    /// If there is no such node.
    pub fn resume(&self, number: usize) -> Result<(), String> {
        self.cluster.node(number).ok_or("no such node")?.resume();
        Ok(())
    }

    /// A fourth one, with a proxy before it; returns when the others know it.
    ///
    /// # Errors
    /// If it does not come.
    pub async fn join(&mut self) -> Result<(), String> {
        // Whoever hears of it first finds its proxy listening.
        let known = self.cluster.addresses();
        let next = u8::try_from(known.len() + 1).map_err(|error| error.to_string())?;
        let server = SocketAddr::from(([127, 0, 0, next], known[0].port()));
        let requests = Arc::default();
        let proxy = self.runtime.spawn(Proxy::start_with(stand_in(server), server, counting(&requests))).await;
        self.requests.push(requests);
        self.proxies.push(proxy.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?);
        tokio::task::block_in_place(|| self.cluster.join()).map(drop).map_err(|error| error.to_string())
    }

    /// The last one leaves in good order.
    ///
    /// # Errors
    /// If it does not.
    pub async fn leave(&mut self) -> Result<(), String> {
        tokio::task::block_in_place(|| self.cluster.leave()).map_err(|error| error.to_string())
    }

    /// # Errors
    /// If there is no such node.
    pub fn kill(&mut self, number: usize) -> Result<(), String> {
        self.cluster.node_mut(number).ok_or("no such node")?.kill();
        Ok(())
    }

    /// # Errors
    /// If there is no such node.
    pub fn kill_all(&mut self) -> Result<(), String> {
        (0..COUNT.into()).try_for_each(|number| self.kill(number))
    }

    /// One after the other; returns when all know each other again.
    ///
    /// # Errors
    /// If one does not come back.
    pub async fn start_all(&mut self, order: &[usize]) -> Result<(), String> {
        tokio::task::block_in_place(|| {
            for number in order {
                let node = self.cluster.node_mut(*number).ok_or("no such node")?;
                node.start().map_err(|error| error.to_string())?;
            }
            self.cluster.gather().map_err(|error| error.to_string())
        })
    }

    /// Where each is, by what it calls itself.
    ///
    /// # Errors
    /// If one does not say.
    pub async fn ids(&self) -> Result<BTreeMap<String, IpAddr>, String> {
        let mut ids = BTreeMap::new();
        for address in self.cluster.addresses() {
            let (settings, by) = (connection::Settings::default(), Instant::now() + ASKED_WITHIN);
            let limits = connection::Limits { tcp: ASKED_WITHIN, ready: ASKED_WITHIN };
            let opened = Connection::connect(address, &settings, limits).await.map_err(|error| error.to_string())?;
            let topology = Topology::ask(&opened, address, by).await.map_err(|error| error.to_string())?;
            let own = topology.members.iter().find(|member| member.address == address).ok_or("no row of its own")?;
            ids.insert(own.id.to_string(), address.ip());
        }
        Ok(ids)
    }

    /// Killed or stopped in good order, and started again; returns when it answers.
    ///
    /// # Errors
    /// If it does not come back.
    pub async fn restart(&mut self, number: usize, kill: bool) -> Result<(), String> {
        let node = self.cluster.node_mut(number).ok_or("no such node")?;
        tokio::task::block_in_place(|| {
            if kill {
                node.kill();
            } else {
                node.stop();
            }
            node.start().map_err(|error| error.to_string())
        })
    }
}

fn counting(requests: &Arc<AtomicU64>) -> Ears {
    let requests = Arc::clone(requests);
    Arc::new(move || {
        let (mut tap, requests) = (Tap::default(), Arc::clone(&requests));
        Box::new(move |bytes| {
            requests.fetch_add(tap.hear(bytes), Ordering::Relaxed);
        })
    })
}
