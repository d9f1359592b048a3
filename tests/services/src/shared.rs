//! The servers under `target/services`: one of each kind, shared by all programs that work in this tree.
//!
//! A process that starts or stops a server holds the lock of the folder. A process that only uses one reads the record,
//! and trusts it as long as the recorded process exists.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

use crate::error::Error;
use crate::instance::{self, Instance};
use crate::recipe::{self, Upstream};
use crate::record::Record;
use crate::server::Server;
use crate::{folder, install};

pub struct Services {
    folder: PathBuf,
    /// External servers, by their URLs.
    named: BTreeMap<Server, String>,
}

/// A server that can be used now.
#[derive(Debug, Clone)]
pub struct Service {
    pub server: Server,
    pub url: String,
    /// None for an external server.
    pub version: Option<String>,
    /// How long the start took; None if it was running already.
    pub started_in: Option<Duration>,
}

/// The result of starting one server.
pub type Outcome = (Server, Result<Service, Error>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// An external server, named by an environment variable.
    Named(String),
    Running(Record),
    /// It should run, but its process is gone or is another program.
    Dead(Record),
    Stopped,
    NotInstalled,
}

impl Services {
    /// The servers of this tree and of the environment.
    pub fn of_target() -> Self {
        let named = |server: Server| {
            let url = std::env::var(server.variable()).ok().filter(|url| !url.is_empty())?;
            Some((server, url))
        };
        Self { folder: folder::of_target(), named: Server::ALL.into_iter().filter_map(named).collect() }
    }

    /// The servers of another folder, with `named` external ones.
    pub fn at(folder: &Path, named: impl IntoIterator<Item = (Server, String)>) -> Self {
        Self { folder: folder.to_owned(), named: named.into_iter().collect() }
    }

    pub fn folder_of(&self, server: Server) -> PathBuf {
        // The path as the kernel names it, even if the folder of this server does not exist.
        self.folder.canonicalize().unwrap_or_else(|_| self.folder.clone()).join(server.name())
    }

    pub fn state(&self, server: Server) -> State {
        if let Some(url) = self.named.get(&server) {
            return State::Named(url.clone());
        }
        match Record::read(&self.folder_of(server)) {
            Some(record) if record.alive().is_some() => State::Running(record),
            Some(record) if record.pid.is_some() => State::Dead(record),
            _ if recipe::is_installed(server) => State::Stopped,
            _ => State::NotInstalled,
        }
    }

    /// The running server, or why there is none and what to do about it.
    pub fn running(&self, server: Server) -> Result<Service, String> {
        let hint = format!(
            "start one with `cargo xtask services up {server}`, or set {} to an external one",
            server.variable()
        );
        match self.state(server) {
            State::Named(url) => Ok(Service { server, url, version: None, started_in: None }),
            State::Running(record) => Ok(service_of_record(server, record)),
            State::Dead(record) => Err(format!("its process {} is gone; {hint}", record.pid.unwrap_or_default())),
            State::Stopped => Err(format!("not running; {hint}")),
            State::NotInstalled => Err(format!("not installed; {hint}")),
        }
    }

    /// The wanted servers and the servers that they need, in the order of starting.
    pub fn with_upstreams(&self, wanted: &[Server]) -> Vec<Server> {
        let is_ours = |server: &Server| !self.named.contains_key(server);
        let upstreams = wanted.iter().filter(|server| is_ours(server)).filter_map(|server| server.upstream());
        let mut servers: Vec<Server> = wanted.iter().copied().chain(upstreams).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Installs missing servers, starts those that do not run, and returns the result of each. All start at the same
    /// time, except those that need another server first.
    pub fn up(&self, wanted: &[Server]) -> Result<Vec<Outcome>, Error> {
        let _lock = self.lock()?;
        let servers = self.with_upstreams(wanted);
        let missing = servers.iter().filter(|server| self.state(**server) == State::NotInstalled);
        let packages: Vec<&str> = missing.flat_map(|server| server.packages()).copied().collect();
        let installed = if packages.is_empty() { Ok(()) } else { install::packages(&packages) };
        let start = |server: Server| match (self.state(server), &installed) {
            (State::NotInstalled, Err(reason)) => Err(Error::Missing(reason.clone())),
            _ => self.ensure(server),
        };
        let (first, then): (Vec<Server>, Vec<Server>) = servers.iter().partition(|server| server.upstream().is_none());
        let mut outcomes = start_at_once(&first, start);
        outcomes.extend(start_at_once(&then, start));
        outcomes.sort_by_key(|(server, _)| *server);
        Ok(outcomes)
    }

    fn ensure(&self, server: Server) -> Result<Service, Error> {
        if let Some(url) = self.named.get(&server) {
            return Ok(Service { server, url: url.clone(), version: None, started_in: None });
        }
        let upstream = server.upstream().map(|upstream| self.upstream(server, upstream)).transpose()?;
        let instance = Instance::at(&self.folder_of(server), server, upstream, &[])?;
        if let Some(record) = instance.healthy() {
            return Ok(service_of_record(server, record));
        }
        let begun = Instant::now();
        let port = Record::read(instance.folder()).map(|record| record.port);
        let started = instance.start(port)?;
        Ok(Service { started_in: Some(begun.elapsed()), ..service_of_record(server, started.record) })
    }

    fn upstream(&self, server: Server, upstream: Server) -> Result<Upstream, Error> {
        if self.named.contains_key(&upstream) {
            return Err(Error::Missing(format!(
                "{upstream} is external, by {}, so no server is started in front of it; set {}, too",
                upstream.variable(),
                server.variable()
            )));
        }
        let folder = self.folder_of(upstream);
        let secret = fs::read_to_string(folder.join("password")).ok();
        match (Record::read(&folder), secret) {
            (Some(record), Some(secret)) if record.alive().is_some() => Ok(Upstream { port: record.port, secret }),
            _ => Err(Error::failed(format!("it needs {upstream}, which does not run"))),
        }
    }

    /// Stops the servers that are ours; true for those that ran. Data and port are kept.
    pub fn down(&self, wanted: &[Server]) -> Result<Vec<(Server, bool)>, Error> {
        let _lock = self.lock()?;
        let mut servers = wanted.to_vec();
        servers.sort_unstable();
        servers.dedup();
        // A pooler stops before the server behind it.
        servers.reverse();
        let mut stopped = Vec::new();
        for server in servers {
            if self.named.contains_key(&server) {
                stopped.push((server, false));
                continue;
            }
            let folder = self.folder_of(server);
            let ran = instance::stop(server, &folder);
            if let Some(record) = Record::read(&folder) {
                Record { pid: None, ..record }.write(&folder)?;
            }
            stopped.push((server, ran));
        }
        Ok(stopped)
    }

    /// The lock of a process that starts or stops servers. The file is never removed, so all processes lock the same
    /// one.
    fn lock(&self) -> Result<fs::File, Error> {
        let path = folder::make(&self.folder)?.join("lock");
        let file = fs::File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(Error::io("open", &path))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            eprintln!("waiting for another process that starts or stops servers in this folder");
            flock(&file, FlockOperation::LockExclusive).map_err(|error| Error::io("lock", &path)(error.into()))?;
        }
        Ok(file)
    }
}

/// Starts each server on its own thread: a start is mostly waiting.
fn start_at_once(servers: &[Server], start: impl Fn(Server) -> Result<Service, Error> + Sync) -> Vec<Outcome> {
    let start = &start;
    std::thread::scope(|scope| {
        let starting: Vec<_> = servers.iter().map(|server| (*server, scope.spawn(move || start(*server)))).collect();
        let result = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        starting.into_iter().map(|(server, thread)| (server, result(thread))).collect()
    })
}

fn service_of_record(server: Server, record: Record) -> Service {
    Service { server, url: record.url, version: Some(record.version), started_in: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn servers_start_at_once() {
        // Each start waits for the other one: started one after the other, they would never end.
        let barrier = Barrier::new(2);
        let outcomes = start_at_once(&[Server::Cassandra, Server::Opensearch], |server| {
            barrier.wait();
            Err(Error::failed(server.name()))
        });
        let errors: Vec<String> = outcomes.iter().map(|(_, result)| result.as_ref().unwrap_err().to_string()).collect();
        assert_eq!(errors, ["cassandra", "opensearch"]);
    }
}
