//! The kinds of servers: the name of each, the environment variable that names an external one, and its packages.

use std::fmt;

use crate::process::Signal;

/// The kinds of servers, in the order in which they are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    Postgres,
    Mariadb,
    Redis,
    Pgbouncer,
    Cassandra,
    Opensearch,
}

impl Server {
    pub const ALL: [Self; 6] =
        [Self::Postgres, Self::Mariadb, Self::Redis, Self::Pgbouncer, Self::Cassandra, Self::Opensearch];

    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Redis => "redis",
            Self::Pgbouncer => "pgbouncer",
            Self::Cassandra => "cassandra",
            Self::Opensearch => "opensearch",
        }
    }

    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|server| server.name() == word)
    }

    /// The variable that names an external server. Such a server is used as it is; we never start, stop or wipe it.
    pub fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "HONEYFLOW_TEST_POSTGRES_URL",
            Self::Mariadb => "HONEYFLOW_TEST_MARIADB_URL",
            Self::Redis => "HONEYFLOW_TEST_REDIS_URL",
            Self::Pgbouncer => "HONEYFLOW_TEST_PGBOUNCER_URL",
            Self::Cassandra => "HONEYFLOW_TEST_CASSANDRA_URL",
            Self::Opensearch => "HONEYFLOW_TEST_OPENSEARCH_URL",
        }
    }

    /// The Debian packages. For MariaDB, the package that sets up a system-wide server is left out; for Cassandra and
    /// OpenSearch, only Java and Maven are packages.
    pub fn packages(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => &["postgresql"],
            Self::Mariadb => &["mariadb-server-core", "mariadb-client"],
            Self::Redis => &["redis-server"],
            Self::Pgbouncer => &["pgbouncer", "postgresql-client"],
            Self::Cassandra | Self::Opensearch => &["openjdk-17-jre-headless", "maven"],
        }
    }

    /// The server that must run before this one.
    pub fn upstream(self) -> Option<Self> {
        (self == Self::Pgbouncer).then_some(Self::Postgres)
    }

    /// The kernel's name for its processes.
    pub(crate) fn process_name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadbd",
            Self::Redis => "redis-server",
            Self::Pgbouncer => "pgbouncer",
            Self::Cassandra | Self::Opensearch => "java",
        }
    }

    /// The signal that ends it fast and cleanly, also with connected clients; and the shell's word for it.
    pub(crate) fn stop_signal(self) -> (Signal, &'static str) {
        match self {
            Self::Postgres | Self::Pgbouncer => (Signal::INT, "INT"),
            Self::Mariadb | Self::Redis | Self::Cassandra | Self::Opensearch => (Signal::TERM, "TERM"),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
