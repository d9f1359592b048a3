//! Several Cassandra nodes for the caller alone: 127.0.0.1, 127.0.0.2 and so on, all at one port, without a password.
//! They take half a minute and two gigabytes: for campaigns and benches, not for everyday tests.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;

use crate::client_program;
use crate::error::Error;
use crate::install;
use crate::port;
use crate::process::wait_until;
use crate::recipe::{Cassandra, Member, native};
use crate::server::Server;
use crate::throwaway::Throwaway;

pub struct Cassandras {
    nodes: Vec<Throwaway>,
    founders: u8,
    port: u16,
}

/// How long the nodes may take to know each other.
const GATHER_TIME: Duration = Duration::from_secs(120);

impl Cassandras {
    /// Starts `founders` nodes at once; returns when each knows all others and they agree on the schema.
    pub fn start(founders: u8) -> Result<Self, Error> {
        let all_free = |port: u16| (1..=founders).all(|number| port::is_free(Ipv4Addr::new(127, 0, 0, number), port));
        let port = std::iter::repeat_with(|| port::free(Ipv4Addr::LOCALHOST, None))
            .take(100)
            .flatten()
            .find(|port| all_free(*port));
        let port = port.ok_or_else(|| Error::failed("no port is free at all addresses"))?;
        let start = |number| start(Member { number, founders, port });
        let nodes = std::thread::scope(|scope| {
            let starting: Vec<_> = (1..=founders).map(|number| scope.spawn(move || start(number))).collect();
            let each = starting.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(Error::failed("panicked"))));
            each.collect::<Result<Vec<_>, _>>()
        })?;
        let cluster = Self { nodes, founders, port };
        cluster.gather()?;
        Ok(cluster)
    }

    /// Adds a node; returns when all others know it.
    pub fn join(&mut self) -> Result<SocketAddr, Error> {
        let number = u8::try_from(self.nodes.len() + 1).map_err(|error| Error::failed(error.to_string()))?;
        let member = Member { number, founders: self.founders, port: self.port };
        self.nodes.push(start(member)?);
        self.gather()?;
        Ok(SocketAddr::from((member.address(), self.port)))
    }

    /// Decommissions the last node and stops it.
    pub fn leave(&mut self) -> Result<(), Error> {
        let last = self.nodes.len();
        self.nodetool(last - 1, &["decommission", "--force"])?;
        self.nodes.pop();
        self.gather()
    }

    pub fn addresses(&self) -> Vec<SocketAddr> {
        let addresses = (1..).map(|number| Ipv4Addr::new(127, 0, 0, number)).zip(&self.nodes);
        addresses.map(|(address, _)| SocketAddr::from((address, self.port))).collect()
    }

    /// The node with this number, counted from 0.
    pub fn node(&self, at: usize) -> Option<&Throwaway> {
        self.nodes.get(at)
    }

    pub fn node_mut(&mut self, at: usize) -> Option<&mut Throwaway> {
        self.nodes.get_mut(at)
    }

    /// Runs `nodetool` against this node and returns its output.
    pub fn nodetool(&self, at: usize, words: &[&str]) -> Result<String, Error> {
        let node = self.nodes.get(at).ok_or_else(|| Error::failed("no such node"))?;
        let number = u8::try_from(at + 1).map_err(|error| Error::failed(error.to_string()))?;
        let member = Member { number, founders: self.founders, port: self.port };
        let java = install::program("java").ok_or_else(|| Error::Missing("java is not installed".to_owned()))?;
        let mut command = Command::new(java);
        command.args(["-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]);
        // The tool keeps a history in the user's home.
        command.arg(format!("-Duser.home={}", node.folder().display()));
        command.arg(format!("-Dlogback.configurationFile={}", node.folder().join("logback.xml").display()));
        command.args(Cassandra::tool_arguments()?).arg("org.apache.cassandra.tools.NodeTool");
        command.args(["-h", "127.0.0.1", "-p", &member.management_port().to_string()]).args(words);
        client_program::run_within(command, client_program::SETUP_TIME)
            .map_err(|why| Error::failed(format!("nodetool: {why}")))
    }

    /// Waits until the nodes know each other. An open port is not enough: a node may not know the others yet.
    pub fn gather(&self) -> Result<(), Error> {
        let mut why = String::new();
        let gathered = wait_until(GATHER_TIME, || match self.check_gathered() {
            Ok(()) => true,
            Err(reason) => {
                why = reason;
                std::thread::sleep(Duration::from_millis(100));
                false
            }
        });
        if gathered { Ok(()) } else { Err(Error::failed(format!("the nodes did not find each other: {why}"))) }
    }

    fn check_gathered(&self) -> Result<(), String> {
        let mut schemas = Vec::new();
        for address in self.addresses() {
            let std::net::IpAddr::V4(at) = address.ip() else { continue };
            let mut client = native::Client::connect(at, self.port)?;
            // The answer is one row of one number, or of one id: it ends with that value.
            let peers = client.run("SELECT count(tokens) FROM system.peers_v2")?;
            let peers = peers.last_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
            if usize::try_from(peers).ok() != self.nodes.len().checked_sub(1) {
                return Err(format!("{address} knows {peers} others"));
            }
            let schema = client.run("SELECT schema_version FROM system.local")?;
            schemas.push(schema.last_chunk::<16>().copied());
        }
        if schemas.windows(2).all(|pair| pair[0] == pair[1]) {
            Ok(())
        } else {
            Err("they disagree on the schema".to_owned())
        }
    }
}

fn start(member: Member) -> Result<Throwaway, Error> {
    let recipe = Box::new(Cassandra::among_others(member));
    let node = Throwaway::with_recipe(Server::Cassandra, recipe, &[], Some(member.port))?;
    if node.port() == member.port { Ok(node) } else { Err(Error::failed("another program took its port")) }
}
