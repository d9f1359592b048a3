//! Where a campaign takes place: a server of its own, or a folder, for hives and for the log.

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
    /// PostgreSQL, with a pooler in transaction mode before it.
    Pgbouncer,
}

impl Backend {
    pub const ALL: &[Backend] = &[Backend::Sqlite, Backend::Postgres, Backend::Mysql, Backend::Redis];
    /// Where campaigns take place.
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

    /// Whether a transaction can be stopped in the middle and others go on.
    pub fn has_server(self) -> bool {
        self != Backend::Sqlite
    }
}

impl FromStr for Backend {
    type Err = String;

    fn from_str(word: &str) -> Result<Backend, String> {
        let names: Vec<&str> = Backend::WITH_POOLER.iter().map(|backend| backend.name()).collect();
        let found = Backend::WITH_POOLER.iter().find(|backend| backend.name() == word);
        found.copied().ok_or_else(|| format!("no backend is called `{word}`; there are {}", names.join(", ")))
    }
}

#[derive(Clone)]
pub struct Place {
    pub backend: Backend,
    /// Of the server; on SQLite a folder, in which every hive has a file.
    pub url: String,
}

/// Whoever has made a place keeps this: with it the place is gone.
pub enum Made {
    Folder(String),
    /// Dropped in this order.
    Servers(Vec<Throwaway>),
}

/// Every node of every hive has a few.
const CONNECTIONS: &str = "1500";

impl Place {
    /// A fresh one.
    ///
    /// # Errors
    /// If the server is not installed, or does not start.
    pub fn prepare(backend: Backend) -> Result<(Place, Made), String> {
        let (url, made) = match backend {
            Backend::Sqlite => {
                let folder = sqlite::make_folder()?;
                (folder.clone(), Made::Folder(folder))
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
        Ok((Place { backend, url }, made))
    }

    /// One that another process has made.
    pub fn known(backend: Backend, url: &str) -> Place {
        Place { backend, url: url.to_owned() }
    }

    /// Of the server.
    pub fn address(&self) -> Option<SocketAddr> {
        self.authority()?.parse().ok()
    }

    /// The same server, at another address.
    pub fn at(&self, address: SocketAddr) -> Place {
        let url = self.authority().map(|known| self.url.replacen(known, &address.to_string(), 1));
        Place { backend: self.backend, url: url.unwrap_or_else(|| self.url.clone()) }
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

    /// The store forgets everything about a hive but what was written under its leases.
    ///
    /// # Errors
    /// If that cannot be done, as on a store that keeps what it was told.
    pub fn forget(&self, hive: &str) -> Result<(), String> {
        match self.backend {
            Backend::Redis => redis::forget(&self.url, hive),
            _ => Err(format!("{} forgets nothing", self.backend.name())),
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

impl Drop for Made {
    fn drop(&mut self) {
        if let Made::Folder(folder) = self {
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

fn start(server: Server, arguments: &[&str]) -> Result<(String, Made), String> {
    let started = throwaway(server, arguments).ok_or_else(|| format!("{server} cannot be had"))?;
    Ok((started.url().to_owned(), Made::Servers(vec![started])))
}

fn start_behind_pooler() -> Result<(String, Made), String> {
    let most = format!("max_connections={CONNECTIONS}");
    let server = throwaway(Server::Postgres, &["-c", &most]).ok_or("postgres cannot be had")?;
    let pooler = throwaway_pgbouncer(&server).ok_or("pgbouncer cannot be had")?;
    Ok((pooler.url().to_owned(), Made::Servers(vec![pooler, server])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_seen_through_another_address() {
        for (url, seen) in [
            ("redis://127.0.0.1:7000/", "redis://127.0.0.1:7001/"),
            ("postgres://me:127.0.0.1@127.0.0.1:7000/db", "postgres://me:127.0.0.1@127.0.0.1:7001/db"),
        ] {
            let place = Place::known(Backend::Redis, url);
            assert_eq!(place.address(), Some(SocketAddr::from(([127, 0, 0, 1], 7000))));
            assert_eq!(place.at(SocketAddr::from(([127, 0, 0, 1], 7001))).url, seen);
        }
    }
}
