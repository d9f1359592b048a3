//! The servers under `target/services`: one of each kind, shared by everybody who works in this tree.
//!
//! Who changes something holds the lock of the folder. Who only looks reads the record, and believes it as far as the
//! process is there.

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
    /// Servers that somebody else runs, by their URLs.
    named: BTreeMap<Server, String>,
}

/// A server that can be used now.
#[derive(Debug, Clone)]
pub struct Service {
    pub server: Server,
    pub url: String,
    /// Unknown for one that was named by a variable.
    pub version: Option<String>,
    /// How long the start took; none if it ran already.
    pub started_in: Option<Duration>,
}

/// What came of starting one.
pub type Outcome = (Server, Result<Service, Error>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// By a variable of the environment.
    Named(String),
    Running(Record),
    /// It should run, and its process is gone or is another.
    Dead(Record),
    Stopped,
    NotInstalled,
}

impl Services {
    /// Those of this tree and of the environment.
    pub fn of_target() -> Self {
        let named = |server: Server| {
            let url = std::env::var(server.variable()).ok().filter(|url| !url.is_empty())?;
            Some((server, url))
        };
        Self { folder: folder::of_target(), named: Server::ALL.into_iter().filter_map(named).collect() }
    }

    /// Those of another folder, with `named` ones elsewhere.
    pub fn at(folder: &Path, named: impl IntoIterator<Item = (Server, String)>) -> Self {
        Self { folder: folder.to_owned(), named: named.into_iter().collect() }
    }

    pub fn folder_of(&self, server: Server) -> PathBuf {
        // As the kernel names it, even when the folder of this server is not there (any more).
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

    /// The server as a test wants it, or why there is none and what to do about it.
    pub fn running(&self, server: Server) -> Result<Service, String> {
        let hint = format!("`cargo xtask services up {server}` starts one, {} names another", server.variable());
        match self.state(server) {
            State::Named(url) => Ok(Service { server, url, version: None, started_in: None }),
            State::Running(record) => Ok(of_record(server, record)),
            State::Dead(record) => Err(format!("its process {} is gone; {hint}", record.pid.unwrap_or_default())),
            State::Stopped => Err(format!("not running; {hint}")),
            State::NotInstalled => Err(format!("not installed; {hint}")),
        }
    }

    /// What is asked for and what that needs, in the order of starting.
    pub fn with_upstreams(&self, asked: &[Server]) -> Vec<Server> {
        let is_ours = |server: &Server| !self.named.contains_key(server);
        let upstreams = asked.iter().filter(|server| is_ours(server)).filter_map(|server| server.upstream());
        let mut servers: Vec<Server> = asked.iter().copied().chain(upstreams).collect();
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// Installs what is missing, starts what does not run, and says for each what came of it. They start at once, but for
    /// those that need another to run first.
    pub fn up(&self, asked: &[Server]) -> Result<Vec<Outcome>, Error> {
        let _lock = self.lock()?;
        let servers = self.with_upstreams(asked);
        let missing = servers.iter().filter(|server| self.state(**server) == State::NotInstalled);
        let packages: Vec<&str> = missing.flat_map(|server| server.packages()).copied().collect();
        let installed = if packages.is_empty() { Ok(()) } else { install::packages(&packages) };
        let start = |server: Server| match (self.state(server), &installed) {
            (State::NotInstalled, Err(reason)) => Err(Error::Missing(reason.clone())),
            _ => self.ensure(server),
        };
        let (first, then): (Vec<Server>, Vec<Server>) = servers.iter().partition(|server| server.upstream().is_none());
        let mut outcomes = at_once(&first, start);
        outcomes.extend(at_once(&then, start));
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
            return Ok(of_record(server, record));
        }
        let begun = Instant::now();
        let port = Record::read(instance.folder()).map(|record| record.port);
        let started = instance.start(port)?;
        Ok(Service { started_in: Some(begun.elapsed()), ..of_record(server, started.record) })
    }

    fn upstream(&self, server: Server, upstream: Server) -> Result<Upstream, Error> {
        if self.named.contains_key(&upstream) {
            return Err(Error::Missing(format!(
                "{upstream} is named by {}, and none is started before it; name {} too",
                upstream.variable(),
                server.variable()
            )));
        }
        let folder = self.folder_of(upstream);
        let secret = fs::read_to_string(folder.join("password")).ok();
        match (Record::read(&folder), secret) {
            (Some(record), Some(secret)) if record.alive().is_some() => Ok(Upstream { port: record.port, secret }),
            _ => Err(Error::failed(format!("{upstream}, which it needs, does not run"))),
        }
    }

    /// Stops what is ours; true for what ran. Data and port are kept.
    pub fn down(&self, asked: &[Server]) -> Result<Vec<(Server, bool)>, Error> {
        let _lock = self.lock()?;
        let mut servers = asked.to_vec();
        servers.sort_unstable();
        servers.dedup();
        // A pooler before the server behind it.
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

    /// Held by whoever starts or stops; the file is never removed, so all lock the same one.
    fn lock(&self) -> Result<fs::File, Error> {
        let path = folder::make(&self.folder)?.join("lock");
        let file = fs::File::options().create(true).truncate(false).write(true).open(&path);
        let file = file.map_err(Error::io("open", &path))?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            eprintln!("waiting for somebody else who starts or stops servers here");
            flock(&file, FlockOperation::LockExclusive).map_err(|error| Error::io("lock", &path)(error.into()))?;
        }
        Ok(file)
    }
}

/// Each on a thread of its own: most of a start is waiting.
fn at_once(servers: &[Server], start: impl Fn(Server) -> Result<Service, Error> + Sync) -> Vec<Outcome> {
    let start = &start;
    std::thread::scope(|scope| {
        let starting: Vec<_> = servers.iter().map(|server| (*server, scope.spawn(move || start(*server)))).collect();
        let result = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        starting.into_iter().map(|(server, thread)| (server, result(thread))).collect()
    })
}

fn of_record(server: Server, record: Record) -> Service {
    Service { server, url: record.url, version: Some(record.version), started_in: None }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn servers_start_at_once() {
        // Each waits for the other: one after the other they would never come to an end.
        let meeting = Barrier::new(2);
        let outcomes = at_once(&[Server::Cassandra, Server::Opensearch], |server| {
            meeting.wait();
            Err(Error::failed(server.name()))
        });
        let said: Vec<String> = outcomes.iter().map(|(_, result)| result.as_ref().unwrap_err().to_string()).collect();
        assert_eq!(said, ["cassandra", "opensearch"]);
    }
}
