//! How one kind of server is made and asked; when it is started, watched and stopped is the instance's business.

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

/// Where an instance lies, whom it belongs to, and the password that only its record tells.
pub struct Place {
    pub folder: PathBuf,
    pub account: Account,
    pub secret: String,
}

impl Place {
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }
}

pub use cassandra::{Cassandra, Member, native};

/// The file of those who vouch for a server that speaks TLS, in the folder of its instance.
pub const ROOTS: &str = cassandra::ROOTS;

/// The PostgreSQL behind a pooler.
pub struct Upstream {
    pub port: u16,
    pub secret: String,
}

pub trait Recipe: Send + Sync {
    /// The server's program; the error names what is not there.
    fn program(&self) -> Result<PathBuf, Absent>;
    /// Users to run it as when we are root, best first.
    fn accounts(&self) -> &'static [&'static str];
    /// Fills an empty folder, which becomes the data folder when all went well.
    fn make_data(&self, place: &Place, empty: &Path) -> Result<(), Error>;
    /// Writes what the command line refers to, and returns the command line after the program.
    fn arguments(&self, place: &Place, port: u16) -> Result<Vec<String>, Error>;
    /// Logs in and asks for something; the answer is the version. `pid` is who should answer.
    fn ask(&self, place: &Place, port: u16, pid: u32) -> Result<String, String>;
    fn url(&self, place: &Place, port: u16) -> String;

    /// Where it listens.
    fn address(&self) -> Ipv4Addr {
        Ipv4Addr::LOCALHOST
    }
}

/// A program that this machine does not have.
pub struct Absent(pub &'static str);

pub fn of(server: Server, upstream: Option<Upstream>) -> Result<Box<dyn Recipe>, Error> {
    Ok(match (server, upstream) {
        (Server::Postgres, _) => Box::new(postgres::Postgres),
        (Server::Mariadb, _) => Box::new(mariadb::Mariadb),
        (Server::Redis, _) => Box::new(redis::Redis),
        (Server::Cassandra, _) => Box::new(cassandra::Cassandra::alone()),
        (Server::Opensearch, _) => Box::new(opensearch::Opensearch),
        (Server::Pgbouncer, Some(upstream)) => Box::new(pgbouncer::Pgbouncer { upstream }),
        (Server::Pgbouncer, None) => return Err(Error::failed("pgbouncer needs a PostgreSQL behind it")),
    })
}

/// Whether all programs of a server are there.
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

fn program(name: &'static str) -> Result<PathBuf, Absent> {
    install::program(name).ok_or(Absent(name))
}

fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
