//! How one kind of server is set up and asked whether it works. Starting, watching and stopping are the work of
//! `instance.rs`.

mod cassandra;
mod mariadb;
mod maven;
mod opensearch;
mod pgbouncer;
mod postgres;
mod redis;

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::account::Account;
use crate::error::Error;
use crate::install;
use crate::server::Server;

/// The folder of an instance, its user, and its password.
pub struct InstanceHome {
    pub folder: PathBuf,
    pub account: Account,
    pub secret: String,
}

impl InstanceHome {
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }
}

pub use cassandra::{Cassandra, Member, native};

/// The file of trusted certificates for a server with TLS, in the folder of its instance.
pub const ROOTS: &str = cassandra::ROOTS;

/// The PostgreSQL behind a pooler.
pub struct Upstream {
    pub port: u16,
    pub secret: String,
}

pub trait Recipe: Send + Sync {
    /// The server's program; the error names the program that is missing.
    fn program(&self) -> Result<PathBuf, MissingProgram>;
    /// Users to run it as when we are root, the best first.
    fn accounts(&self) -> &'static [&'static str];
    /// Fills an empty folder, which becomes the data folder on success.
    fn make_data(&self, instance: &InstanceHome, empty: &Path) -> Result<(), Error>;
    /// Writes the files that the command line refers to, and returns the arguments after the program.
    fn arguments(&self, instance: &InstanceHome, port: u16) -> Result<Vec<String>, Error>;
    /// Logs in and returns the server's version. `pid` is the process that should answer.
    fn ask(&self, instance: &InstanceHome, port: u16, pid: u32) -> Result<String, String>;
    fn url(&self, instance: &InstanceHome, port: u16) -> String;

    /// The address at which it listens.
    fn address(&self) -> Ipv4Addr {
        Ipv4Addr::LOCALHOST
    }
}

/// A program that this machine does not have.
pub struct MissingProgram(pub &'static str);

pub fn for_server(server: Server, upstream: Option<Upstream>) -> Result<Box<dyn Recipe>, Error> {
    Ok(match (server, upstream) {
        (Server::Postgres, _) => Box::new(postgres::Postgres),
        (Server::Mariadb, _) => Box::new(mariadb::Mariadb),
        (Server::Redis, _) => Box::new(redis::Redis),
        (Server::Cassandra, _) => Box::new(cassandra::Cassandra::alone()),
        (Server::Opensearch, _) => Box::new(opensearch::Opensearch),
        (Server::Pgbouncer, Some(upstream)) => Box::new(pgbouncer::Pgbouncer { upstream }),
        (Server::Pgbouncer, None) => return Err(Error::failed("pgbouncer needs a PostgreSQL")),
    })
}

/// Whether all programs of a server are installed.
pub fn is_installed(server: Server) -> bool {
    match server {
        Server::Postgres => postgres::Postgres.program().is_ok(),
        Server::Mariadb => mariadb::Mariadb.program().is_ok(),
        Server::Redis => redis::Redis.program().is_ok(),
        Server::Pgbouncer => pgbouncer::program().is_ok(),
        Server::Cassandra => cassandra::Cassandra::alone().program().is_ok(),
        Server::Opensearch => opensearch::Opensearch.program().is_ok(),
    }
}

fn program(name: &'static str) -> Result<PathBuf, MissingProgram> {
    install::program(name).ok_or(MissingProgram(name))
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn path_text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
