//! Three real servers, each with a proxy before it.

use std::net::SocketAddr;

use honeyflow_cassandra::{Options, Session};
use honeyflow_pool::settings::Translate;
use honeyflow_services::Cassandras;

use super::{ground::stand_in, proxy::Proxy};

pub struct Nodes {
    cluster: Cassandras,
    proxies: Vec<Proxy>,
    _runtime: tokio::runtime::Runtime,
}

const COUNT: u8 = 3;
const TABLE: [&str; 2] = [
    "CREATE KEYSPACE IF NOT EXISTS chaos WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 3}",
    "CREATE TABLE IF NOT EXISTS chaos.t (id int PRIMARY KEY, n bigint)",
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
        let before = |server: SocketAddr| runtime.block_on(Proxy::start(stand_in(server), server));
        let proxies: Result<Vec<Proxy>, _> = cluster.addresses().into_iter().map(before).collect();
        Ok(Nodes { cluster, proxies: proxies.map_err(|error| error.to_string())?, _runtime: runtime })
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
            let how = Options::within(std::time::Duration::from_secs(30)).idempotent();
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
