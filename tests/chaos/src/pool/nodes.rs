//! Three real Cassandra servers, each with a proxy in front of it.

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
    fault_target::proxy_address,
    proxy::{ListenerFactory, Proxy},
    request_counter::RequestCounter,
};

pub struct Nodes {
    cluster: Cassandras,
    proxies: Vec<Proxy>,
    /// The number of requests that each proxy has passed on.
    requests: Vec<Arc<AtomicU64>>,
    runtime: tokio::runtime::Runtime,
}

const COUNT: u8 = 3;
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// Healthy servers must not wait for a replica that stands still, or the coordinator does not answer in time.
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
        // The proxies have their own runtime, because tasks that the client leaves behind are counted on the client's.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let requests: Vec<Arc<AtomicU64>> = (0..COUNT).map(|_| Arc::default()).collect();
        let before = |(server, count): (SocketAddr, &Arc<AtomicU64>)| {
            runtime.block_on(Proxy::start_with(proxy_address(server), server, count_into(count)))
        };
        let proxies: Result<Vec<Proxy>, _> = cluster.addresses().into_iter().zip(&requests).map(before).collect();
        Ok(Nodes { cluster, proxies: proxies.map_err(|error| error.to_string())?, requests, runtime })
    }

    /// The number of requests that each server has received.
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

    /// The client dials a server's proxy, for every address that a server reports.
    pub fn translate(&self) -> Translate {
        let table = self.cluster.addresses().into_iter().map(|server| (server, proxy_address(server))).collect();
        Translate { table, hook: None }
    }

    pub fn open(&self) -> u32 {
        self.proxies.iter().map(Proxy::open).sum()
    }

    /// # Errors
    /// If the table cannot be made.
    pub async fn create_table(&self, session: &Session) -> Result<(), String> {
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

    /// Adds a fourth server with a proxy; returns when the other servers know it.
    ///
    /// # Errors
    /// If it does not start or join.
    pub async fn join(&mut self) -> Result<(), String> {
        // The proxy listens before any client learns of the server.
        let known = self.cluster.addresses();
        let next = u8::try_from(known.len() + 1).map_err(|error| error.to_string())?;
        let server = SocketAddr::from(([127, 0, 0, next], known[0].port()));
        let requests = Arc::default();
        let proxy = self.runtime.spawn(Proxy::start_with(proxy_address(server), server, count_into(&requests))).await;
        self.requests.push(requests);
        self.proxies.push(proxy.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?);
        tokio::task::block_in_place(|| self.cluster.join()).map(drop).map_err(|error| error.to_string())
    }

    /// Decommissions the last server.
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

    /// Starts the servers one after the other; returns when all know each other again.
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

    /// The address of each server by its host id.
    ///
    /// # Errors
    /// If a server does not answer.
    pub async fn ids(&self) -> Result<BTreeMap<String, IpAddr>, String> {
        let mut ids = BTreeMap::new();
        for address in self.cluster.addresses() {
            let (settings, by) = (connection::Settings::default(), Instant::now() + ANSWER_WITHIN);
            let limits = connection::Limits { tcp: ANSWER_WITHIN, ready: ANSWER_WITHIN };
            let opened = Connection::connect(address, &settings, limits).await.map_err(|error| error.to_string())?;
            let topology = Topology::ask(&opened, address, by).await.map_err(|error| error.to_string())?;
            let own = topology.members.iter().find(|member| member.address == address).ok_or("no row of its own")?;
            ids.insert(own.id.to_string(), address.ip());
        }
        Ok(ids)
    }

    /// Kills or stops a server and starts it again; returns when it answers.
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

fn count_into(requests: &Arc<AtomicU64>) -> ListenerFactory {
    let requests = Arc::clone(requests);
    Arc::new(move || {
        let (mut counter, requests) = (RequestCounter::default(), Arc::clone(&requests));
        Box::new(move |bytes| {
            requests.fetch_add(counter.add_bytes(bytes), Ordering::Relaxed);
        })
    })
}
