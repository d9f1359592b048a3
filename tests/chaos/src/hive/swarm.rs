//! The processes of one hive, and the messages that they print.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, Command, Stdio},
    str::FromStr,
    sync::{
        Arc,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use super::{
    NodeMessage, StoreLocation,
    check::Terms,
    clocks::{self, Clocks, DRIFT_MAX, WallClock},
    node_proxy::{NodeProxy, ProxyFactory},
};
use crate::proxy::LinkMode;

/// A loaded machine may be slow; an event that has not happened after this time is taken as missing.
pub const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    Default,
    Fast,
}

impl Profile {
    pub fn name(self) -> &'static str {
        match self {
            Profile::Default => "default",
            Profile::Fast => "fast",
        }
    }

    pub fn heartbeat(self) -> Duration {
        match self {
            Profile::Default => Duration::from_secs(2),
            Profile::Fast => Duration::from_millis(500),
        }
    }
}

impl FromStr for Profile {
    type Err = String;

    fn from_str(word: &str) -> Result<Profile, String> {
        let found = [Profile::Default, Profile::Fast].into_iter().find(|profile| profile.name() == word);
        found.ok_or_else(|| format!("unknown profile `{word}`"))
    }
}

#[derive(Clone)]
pub struct SwarmOptions {
    pub program: PathBuf,
    pub location: StoreLocation,
    pub hive: String,
    pub profile: Profile,
    pub fenced: bool,
    pub pace_ms: u64,
}

/// Faults that a campaign can cause beyond signals. By default there are none.
#[derive(Clone, Default)]
pub struct FaultOptions {
    pub proxies: Option<Arc<ProxyFactory>>,
    pub clocks: Option<Arc<Clocks>>,
    /// One node of three has a clock that runs fast, and another one that runs slow.
    pub drifts: bool,
    /// Shards to divide among the nodes; nodes that have some also count as engaged.
    pub shards: u32,
    /// No node competes for [`super::LEASE`].
    pub no_duty: bool,
    /// A node that has learned that its term is lost writes no more.
    pub polite: bool,
}

fn yes(is: bool) -> &'static str {
    if is { "yes" } else { "no" }
}

/// One node's process. Dropping it kills the process, even if it is stopped.
struct NodeProcess {
    name: String,
    child: Child,
    proxy: Option<NodeProxy>,
    wall_clock: Option<WallClock>,
}

impl Drop for NodeProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if self.wall_clock.is_some() {
            clocks::remove_leftovers(self.child.id());
        }
    }
}

pub struct Swarm {
    pub options: SwarmOptions,
    faults: FaultOptions,
    nodes: Vec<NodeProcess>,
    started: u32,
    /// The last writer under each lease, and its epoch.
    writers: BTreeMap<String, (String, u64)>,
    pub terms: Terms,
    sender: Sender<(String, NodeMessage)>,
    messages: Receiver<(String, NodeMessage)>,
}

impl Swarm {
    /// Starts `count` nodes and waits until each is a member.
    ///
    /// # Errors
    /// If one cannot be started, or does not join.
    pub fn start(options: SwarmOptions, count: usize) -> Result<Swarm, String> {
        Swarm::start_with_faults(FaultOptions::default(), options, count)
    }

    /// Like [`Swarm::start`], with further faults.
    ///
    /// # Errors
    /// If one cannot be started, or does not join.
    pub fn start_with_faults(faults: FaultOptions, options: SwarmOptions, count: usize) -> Result<Swarm, String> {
        // Creates the log first, so that the nodes do not compete to create it.
        options.location.ledger(&options.hive)?;
        let (sender, messages) = channel();
        let (nodes, writers, terms) = (Vec::new(), BTreeMap::new(), Terms::default());
        let mut swarm = Swarm { options, faults, nodes, started: 0, writers, terms, sender, messages };
        for _ in 0..count {
            swarm.add()?;
        }
        Ok(swarm)
    }

    /// Starts one more node, and returns its name once it has joined.
    ///
    /// # Errors
    /// If it cannot be started, or does not join.
    pub fn add(&mut self) -> Result<String, String> {
        let name = format!("bee-{}", self.started);
        let drift = if self.faults.drifts { [0, DRIFT_MAX, -DRIFT_MAX][self.started as usize % 3] } else { 0 };
        self.started += 1;
        let proxy = self.faults.proxies.as_ref().map(|proxies| proxies.start()).transpose()?;
        let SwarmOptions { program, location, hive, profile, fenced, pace_ms } = &self.options;
        let location = proxy.as_ref().map_or(location, |proxy| &proxy.location);
        let mut command = Command::new(program);
        command
            .args([
                "bee",
                "--backend",
                location.backend.name(),
                "--url",
                &location.url,
                "--hive",
                hive,
                "--name",
                &name,
            ])
            .args(["--profile", profile.name(), "--fenced", yes(*fenced)])
            .args(["--pace", &pace_ms.to_string(), "--drift", &drift.to_string()])
            .args(["--shards", &self.faults.shards.to_string()])
            .args(["--duty", yes(!self.faults.no_duty), "--polite", yes(self.faults.polite)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let wall_clock = match &self.faults.clocks {
            Some(clocks) => Some(clocks.attach(&format!("{hive}-{name}"), &mut command)?),
            None => None,
        };
        let mut child = command.spawn().map_err(|error| format!("cannot start {}: {error}", program.display()))?;
        let (sender, node) = (self.sender.clone(), name.clone());
        if let Some(output) = child.stdout.take() {
            std::thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    if let Some(message) = NodeMessage::read(&line) {
                        let _ = sender.send((node.clone(), message));
                    }
                }
                let _ = sender.send((node, NodeMessage::Ended));
            });
        }
        self.nodes.push(NodeProcess { name: name.clone(), child, proxy, wall_clock });
        self.wait("a node joins", |who, message| (who == name && *message == NodeMessage::Joined).then_some(()))?;
        Ok(name)
    }

    /// Reads messages until `is_it` accepts one.
    ///
    /// # Errors
    /// If no such message comes within `PATIENCE`.
    pub fn wait<T>(&mut self, what: &str, is_it: impl FnMut(&str, &NodeMessage) -> Option<T>) -> Result<T, String> {
        self.wait_for(PATIENCE, is_it)?.ok_or_else(|| format!("did not happen within {PATIENCE:?}: {what}"))
    }

    /// Reads messages until `is_it` accepts one; returns None if none came within `patience`.
    ///
    /// # Errors
    /// If a node has ended by itself.
    pub fn wait_for<T>(
        &mut self,
        patience: Duration,
        mut is_it: impl FnMut(&str, &NodeMessage) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let until = Instant::now() + patience;
        loop {
            match self.messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((who, message)) => {
                    self.terms.record(&message);
                    if let NodeMessage::Wrote { lease, epoch, .. } = &message
                        && self.writers.get(lease).is_none_or(|(_, before)| before < epoch)
                    {
                        self.writers.insert(lease.clone(), (who.clone(), *epoch));
                    }
                    if let Some(found) = is_it(&who, &message) {
                        return Ok(Some(found));
                    }
                    if message == NodeMessage::Ended && self.nodes.iter().any(|node| node.name == who) {
                        return Err(format!("{who} has ended by itself"));
                    }
                }
                Err(RecvTimeoutError::Timeout) => return Ok(None),
                Err(RecvTimeoutError::Disconnected) => return Err("no node is left".to_owned()),
            }
        }
    }

    /// The node that last reported a write under this lease, and its epoch.
    pub fn writer(&self, lease: &str) -> Option<(String, u64)> {
        self.writers.get(lease).cloned()
    }

    /// The leases under which this node was the last to write.
    pub fn written_by(&self, name: &str) -> Vec<String> {
        self.writers.iter().filter(|(_, (writer, _))| writer == name).map(|(lease, _)| lease.clone()).collect()
    }

    pub fn names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }

    fn node(&mut self, name: &str) -> Result<&mut NodeProcess, String> {
        self.nodes.iter_mut().find(|node| node.name == name).ok_or_else(|| format!("{name} is gone"))
    }

    fn signal(&mut self, name: &str, signal: Signal) -> Result<(), String> {
        let node = self.node(name)?;
        kill_process(Pid::from_child(&node.child), signal).map_err(|error| format!("cannot signal {name}: {error}"))
    }

    /// # Errors
    /// If it is gone.
    pub fn pause(&mut self, name: &str) -> Result<(), String> {
        self.signal(name, Signal::STOP)
    }

    /// # Errors
    /// If it is gone.
    pub fn resume(&mut self, name: &str) -> Result<(), String> {
        self.signal(name, Signal::CONT)
    }

    /// Sets what the proxy between the node and the server does.
    ///
    /// # Errors
    /// If the node is gone, or has no proxy of its own.
    pub fn set_link(&mut self, name: &str, mode: LinkMode) -> Result<(), String> {
        self.node(name)?.proxy.as_ref().ok_or("the node has no proxy")?.set(mode);
        Ok(())
    }

    /// Sets the node's wall clock off by `seconds`.
    ///
    /// # Errors
    /// If the node is gone, or uses the machine's clock.
    pub fn set_clock(&mut self, name: &str, seconds: i64) -> Result<(), String> {
        self.node(name)?.wall_clock.as_ref().ok_or("the node uses the machine's clock")?.set(seconds)
    }

    /// Kills the node with -9.
    ///
    /// # Errors
    /// If it is gone already.
    pub fn kill(&mut self, name: &str) -> Result<(), String> {
        self.node(name)?;
        self.nodes.retain(|node| node.name != name);
        Ok(())
    }

    /// # Errors
    /// If it is gone.
    pub fn command(&mut self, name: &str, word: &str) -> Result<(), String> {
        let input = self.node(name)?.child.stdin.as_mut().ok_or("its input is closed")?;
        writeln!(input, "{word}").map_err(|error| format!("{name} does not read its input: {error}"))
    }

    /// Stops watching a node that has left or was asked to: its end is no error.
    pub fn forget(&mut self, name: &str) {
        self.nodes.retain(|node| node.name != name);
    }
}
