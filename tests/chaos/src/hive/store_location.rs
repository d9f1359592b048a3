//! Where the stores of a campaign are: a server that only the campaign uses, or a folder, for the hives and for the
//! log.

use std::{net::SocketAddr, str::FromStr, sync::Arc};

use honeyflow_hive::HiveStore;
use honeyflow_runtime::Failure;
use honeyflow_services::{Server, Throwaway, throwaway, throwaway_pgbouncer};
use serde::Serialize;

use super::ledger::{Ledger, mysql, postgres, redis, sqlite};

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    Sqlite,
    Postgres,
    Mysql,
    Redis,
    /// PostgreSQL behind a pooler in transaction mode.
    Pgbouncer,
}

impl Backend {
    pub const ALL: &[Backend] = &[Backend::Sqlite, Backend::Postgres, Backend::Mysql, Backend::Redis];
    /// The backends on which campaigns run.
    pub const WITH_POOLER: &[Backend] =
        &[Backend::Sqlite, Backend::Postgres, Backend::Mysql, Backend::Redis, Backend::Pgbouncer];

    pub fn name(self) -> &'static str {
        match self {
            Backend::Sqlite => "sqlite",
            Backend::Postgres => "postgres",
            Backend::Mysql => "mysql",
            Backend::Redis => "redis",
            Backend::Pgbouncer => "pgbouncer",
        }
    }

    /// Whether the other nodes go on while a transaction is stopped in its middle.
    pub fn has_server(self) -> bool {
        self != Backend::Sqlite
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(word: &str) -> Result<Backend, String> {
        let names: Vec<&str> = Backend::WITH_POOLER.iter().map(|backend| backend.name()).collect();
        let found = Backend::WITH_POOLER.iter().find(|backend| backend.name() == word);
        found.copied().ok_or_else(|| format!("unknown backend `{word}`; known are {}", names.join(", ")))
    }
}

#[derive(Clone)]
pub struct StoreLocation {
    pub backend: Backend,
    /// The server's URL; for SQLite a folder, in which each hive has a file.
    pub url: String,
}

/// Keeps what was created for a campaign: dropping it deletes the folder or stops the servers.
pub enum LocationGuard {
    Folder(String),
    /// The servers, stopped in this order.
    Servers(Vec<Throwaway>),
}

/// Enough for all hives: every node uses a few.
const CONNECTIONS: &str = "1500";

impl StoreLocation {
    /// Creates a folder, or starts a server, for one campaign.
    ///
    /// # Errors
    /// If the server is not installed, or does not start.
    pub fn prepare(backend: Backend) -> Result<(StoreLocation, LocationGuard), String> {
        let (url, guard) = match backend {
            Backend::Sqlite => {
                let folder = sqlite::make_folder()?;
                (folder.clone(), LocationGuard::Folder(folder))
            }
            Backend::Postgres => start(Server::Postgres, &["-c", &format!("max_connections={CONNECTIONS}")])?,
            Backend::Mysql => start(Server::Mariadb, &[&format!("--max-connections={CONNECTIONS}")])?,
            Backend::Redis => start(Server::Redis, &[])?,
            Backend::Pgbouncer => start_behind_pooler()?,
        };
        match backend {
            Backend::Postgres | Backend::Pgbouncer => postgres::make(&url)?,
            Backend::Mysql => mysql::make(&url)?,
            Backend::Sqlite | Backend::Redis => {}
        }
        Ok((StoreLocation { backend, url }, guard))
    }

    /// The location that another process has prepared.
    pub fn at_url(backend: Backend, url: &str) -> StoreLocation {
        StoreLocation { backend, url: url.to_owned() }
    }

    /// The server's address.
    pub fn address(&self) -> Option<SocketAddr> {
        self.authority()?.parse().ok()
    }

    /// The same server, reached at another address.
    pub fn at_address(&self, address: SocketAddr) -> StoreLocation {
        let url = self.authority().map(|own| self.url.replacen(own, &address.to_string(), 1));
        StoreLocation { backend: self.backend, url: url.unwrap_or_else(|| self.url.clone()) }
    }

    fn authority(&self) -> Option<&str> {
        let after = self.url.split_once("//")?.1;
        let whole = after.split('/').next()?;
        Some(whole.rsplit_once('@').map_or(whole, |(_, address)| address))
    }

    /// # Errors
    /// If it cannot be opened.
    pub async fn open(&self, hive: &str) -> Result<Arc<dyn HiveStore>, Failure> {
        match self.backend {
            Backend::Sqlite => Ok(Arc::new(honeyflow_hive_sqlite::open(&sqlite::file(&self.url, hive), hive)?)),
            Backend::Postgres | Backend::Pgbouncer => {
                let options = honeyflow_hive_postgres::Options::new(&self.url);
                let options = honeyflow_hive_postgres::Options { hive: hive.into(), ..options };
                Ok(Arc::new(honeyflow_hive_postgres::PostgresHive::open(&options)?))
            }
            Backend::Mysql => {
                let options = honeyflow_hive_mysql::Options::new(&self.url);
                let options = honeyflow_hive_mysql::Options { hive: hive.into(), ..options };
                Ok(Arc::new(honeyflow_hive_mysql::MysqlHive::open(&options)?))
            }
            Backend::Redis => {
                let options = honeyflow_hive_redis::Options::new(&self.url);
                let options = honeyflow_hive_redis::Options { hive: hive.into(), ..options };
                Ok(Arc::new(honeyflow_hive_redis::RedisHive::open(&options)?))
            }
        }
    }

    /// Makes the store forget a hive, except what was written to the log.
    ///
    /// # Errors
    /// If it cannot be done, as on a store that is durable.
    pub fn forget_hive(&self, hive: &str) -> Result<(), String> {
        match self.backend {
            Backend::Redis => redis::forget(&self.url, hive),
            _ => Err(format!("{} cannot forget a hive", self.backend.name())),
        }
    }

    /// # Errors
    /// If it cannot be opened.
    pub fn ledger(&self, hive: &str) -> Result<Box<dyn Ledger>, String> {
        match self.backend {
            Backend::Sqlite => Ok(Box::new(sqlite::SqliteLedger::open(&self.url, hive)?)),
            Backend::Postgres | Backend::Pgbouncer => Ok(Box::new(postgres::PostgresLedger::open(&self.url, hive)?)),
            Backend::Mysql => Ok(Box::new(mysql::MysqlLedger::open(&self.url, hive)?)),
            Backend::Redis => Ok(Box::new(redis::RedisLedger::open(&self.url, hive)?)),
        }
    }
}

impl Drop for LocationGuard {
    fn drop(&mut self) {
        if let LocationGuard::Folder(folder) = self {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn start(server: Server, arguments: &[&str]) -> Result<(String, LocationGuard), String> {
    let started = throwaway(server, arguments).ok_or_else(|| format!("{server} is not available"))?;
    Ok((started.url().to_owned(), LocationGuard::Servers(vec![started])))
}

fn start_behind_pooler() -> Result<(String, LocationGuard), String> {
    let max_connections = format!("max_connections={CONNECTIONS}");
    let server = throwaway(Server::Postgres, &["-c", &max_connections]).ok_or("postgres is not available")?;
    let pooler = throwaway_pgbouncer(&server).ok_or("pgbouncer is not available")?;
    Ok((pooler.url().to_owned(), LocationGuard::Servers(vec![pooler, server])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_can_point_to_another_address() {
        for (url, seen) in [
            ("redis://127.0.0.1:7000/", "redis://127.0.0.1:7001/"),
            ("postgres://me:127.0.0.1@127.0.0.1:7000/db", "postgres://me:127.0.0.1@127.0.0.1:7001/db"),
        ] {
            let location = StoreLocation::at_url(Backend::Redis, url);
            assert_eq!(location.address(), Some(SocketAddr::from(([127, 0, 0, 1], 7000))));
            assert_eq!(location.at_address(SocketAddr::from(([127, 0, 0, 1], 7001))).url, seen);
        }
    }
}
