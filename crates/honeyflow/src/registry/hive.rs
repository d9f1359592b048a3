//! Opens the hive at an address. Different spellings of one database's address give the same hive.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use honeyflow_hive::HiveStore;
use honeyflow_runtime::Failure;

use crate::{
    codes,
    config::{Url, secret::Secret},
};

/// The URL schemes of databases that can hold a hive.
pub const HIVE_SCHEMES: &[&str] = &[
    "sqlite",
    #[cfg(feature = "postgres")]
    "postgres",
    #[cfg(feature = "postgres")]
    "postgresql",
    #[cfg(feature = "mysql")]
    "mysql",
    #[cfg(feature = "mysql")]
    "mariadb",
    #[cfg(feature = "redis")]
    "redis",
    #[cfg(feature = "redis")]
    "rediss",
];

/// The address of a hive.
#[derive(Clone)]
pub struct HivePlace {
    kind: Kind,
    /// The same for all addresses of one database.
    identity: String,
    trust: Trust,
}

/// What the operator has declared about the server.
#[derive(Clone, Copy)]
pub struct Trust {
    pub require_replica: bool,
    pub one_writer: bool,
}

impl Default for Trust {
    fn default() -> Trust {
        Trust { require_replica: true, one_writer: false }
    }
}

#[derive(Clone)]
enum Kind {
    Sqlite(PathBuf),
    Server(Server, Arc<Secret>),
}

#[derive(Clone, Copy)]
enum Server {
    #[cfg(feature = "postgres")]
    Postgres,
    #[cfg(feature = "mysql")]
    Mysql,
    #[cfg(feature = "redis")]
    Redis,
}

impl Server {
    fn of(scheme: &str) -> Option<Server> {
        match scheme {
            #[cfg(feature = "postgres")]
            "postgres" | "postgresql" => Some(Server::Postgres),
            #[cfg(feature = "mysql")]
            "mysql" | "mariadb" => Some(Server::Mysql),
            #[cfg(feature = "redis")]
            "redis" | "rediss" => Some(Server::Redis),
            _ => None,
        }
    }

    /// The address without user and options, which do not make it another database.
    fn identity(self, url: &str) -> String {
        match self {
            #[cfg(feature = "postgres")]
            Server::Postgres => without_user("postgres", 5432, url),
            #[cfg(feature = "mysql")]
            Server::Mysql => without_user("mysql", 3306, url),
            #[cfg(feature = "redis")]
            Server::Redis => without_user("redis", 6379, url),
        }
    }

    #[cfg_attr(
        not(all(feature = "mysql", feature = "redis")),
        expect(unused_variables, reason = "only MySQL and Redis use it")
    )]
    fn open(self, url: &str, hive: &str, trust: Trust) -> Result<Arc<dyn HiveStore>, Failure> {
        match self {
            #[cfg(feature = "postgres")]
            Server::Postgres => {
                use honeyflow_hive_postgres::{Options, PostgresHive};
                Ok(Arc::new(PostgresHive::open(&Options { hive: hive.into(), ..Options::new(url) })?))
            }
            #[cfg(feature = "mysql")]
            Server::Mysql => {
                use honeyflow_hive_mysql::{MysqlHive, Options};
                let Trust { one_writer, .. } = trust;
                Ok(Arc::new(MysqlHive::open(&Options { hive: hive.into(), one_writer, ..Options::new(url) })?))
            }
            #[cfg(feature = "redis")]
            Server::Redis => {
                use honeyflow_hive_redis::{Options, RedisHive};
                let Trust { require_replica, .. } = trust;
                Ok(Arc::new(RedisHive::open(&Options { hive: hive.into(), require_replica, ..Options::new(url) })?))
            }
        }
    }
}

impl HivePlace {
    /// Parses the address. `place` is the key of the configuration, for messages; relative paths are relative to
    /// `folder`.
    pub fn of(url: &Url, place: &str, folder: &Path) -> Result<HivePlace, Failure> {
        let url = url.resolve().map_err(|unresolved| {
            Failure::fatal(codes::UNRESOLVED, format!("{place}: {unresolved}; {}", unresolved.help()))
        })?;
        let text = url.reveal();
        if let Some(path) = text.strip_prefix("sqlite:").map(|path| path.strip_prefix("//").unwrap_or(path)) {
            let path = folder.join(path);
            let identity = path.canonicalize().unwrap_or_else(|_| path.clone());
            let identity = format!("sqlite:{}", identity.display());
            return Ok(HivePlace { kind: Kind::Sqlite(path), identity, trust: Trust::default() });
        }
        if let Some(server) = text.split_once(':').and_then(|(scheme, _)| Server::of(scheme)) {
            let identity = server.identity(text);
            return Ok(HivePlace { kind: Kind::Server(server, Arc::new(url)), identity, trust: Trust::default() });
        }
        let known = HIVE_SCHEMES.iter().map(|scheme| format!("{scheme}:")).collect::<Vec<_>>().join(", ");
        Err(Failure::fatal(
            codes::UNKNOWN_URL,
            format!("{place}: this build has no hive for this address; it has {known}"),
        ))
    }

    #[must_use]
    pub fn trusted(self, trust: Trust) -> HivePlace {
        HivePlace { trust, ..self }
    }

    pub fn is_same(&self, other: &HivePlace) -> bool {
        self.identity == other.identity
    }

    /// The address for people, without secrets.
    pub fn shown(&self) -> &str {
        &self.identity
    }

    /// Opens the store. With `alone`, joining fails while another node is alive, if the database can show that.
    pub async fn open(&self, hive: &str, alone: bool) -> Result<Arc<dyn HiveStore>, Failure> {
        match &self.kind {
            Kind::Sqlite(path) => {
                let options = honeyflow_hive_sqlite::Options {
                    alone,
                    hive: hive.to_owned(),
                    ..honeyflow_hive_sqlite::Options::new(path)
                };
                Ok(Arc::new(honeyflow_hive_sqlite::SqliteHive::open(&options)?))
            }
            Kind::Server(server, url) => server.open(url.reveal(), hive, self.trust),
        }
    }

    /// Creates the file of a separate hive; the file of a source's database must already exist.
    pub fn make_if_missing(&self) -> Result<(), Failure> {
        if let Kind::Sqlite(path) = &self.kind {
            let made = std::fs::OpenOptions::new().create(true).append(true).open(path);
            made.map_err(|error| {
                Failure::fatal(codes::CANNOT_OPEN, format!("[hive] url: cannot open {}: {error}", path.display()))
            })?;
        }
        Ok(())
    }

    /// The SQLite file; then all nodes run on this machine, and kernel locks show which are alive. None for a server.
    pub fn file(&self) -> Option<&Path> {
        match &self.kind {
            Kind::Sqlite(path) => Some(path),
            Kind::Server(..) => None,
        }
    }
}

/// The address in the form `scheme://host:port/database`.
pub(crate) fn without_user(scheme: &str, port: u16, url: &str) -> String {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    let rest = rest.rsplit_once('@').map_or(rest, |(_, rest)| rest);
    let (host, database) = rest.split_once('/').unwrap_or((rest, ""));
    let host = host.to_ascii_lowercase();
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    let port = if has_port { String::new() } else { format!(":{port}") };
    format!("{scheme}://{host}{port}/{database}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(url: &str) -> HivePlace {
        HivePlace::of(&Url::Written(url.to_owned()), "hive.url", Path::new("/shop")).unwrap()
    }

    #[test]
    fn hv_43_different_spellings_of_a_database_are_one_hive() {
        assert!(place("sqlite:shop.db").is_same(&place("sqlite:///shop/shop.db")));
        assert!(!place("sqlite:shop.db").is_same(&place("sqlite:other.db")));
    }

    #[cfg(feature = "postgres")]
    #[test]
    fn hv_43_user_and_default_port_do_not_make_another_hive() {
        let one = place("postgres://a@DB.example/shop?sslmode=require");
        assert!(one.is_same(&place("postgresql://b:secret@db.example:5432/shop")));
        assert!(!one.is_same(&place("postgres://a@db.example:5433/shop")));
        assert!(!one.is_same(&place("postgres://a@db.example/other")));
        assert_eq!(one.shown(), "postgres://db.example:5432/shop");
    }

    #[cfg(all(feature = "mysql", feature = "redis"))]
    #[test]
    fn hv_1_a_hive_may_live_in_other_servers_than_the_rows() {
        assert!(place("mysql://a:secret@db/shop").is_same(&place("mariadb://b@db:3306/shop")));
        assert!(place("redis://:secret@cache").is_same(&place("rediss://cache:6379/")));
        assert!(!place("redis://cache/0").is_same(&place("redis://cache/1")));
        assert_eq!(place("redis://:secret@cache/2").shown(), "redis://cache:6379/2");
    }

    #[test]
    fn an_unknown_scheme_is_refused_without_showing_the_address() {
        let failure =
            HivePlace::of(&Url::Written("etcd://a:secret@b".into()), "hive.url", Path::new("")).err().unwrap();
        assert!(failure.message.contains("sqlite:") && !failure.message.contains("secret"), "{failure}");
    }
}
