//! How the database is reached.

use std::{str::FromStr, time::Duration};

use honeyflow_event::{Name, shard};
use honeyflow_runtime::Failure;

use crate::driver::{ConnectOptions, PgConnectOptions};

/// Enough for a node to hold a few and for many nodes to share them.
pub const SHARDS_DEFAULT: u16 = 64;

/// Where the server is, with the password; it shows neither.
#[derive(Clone)]
pub struct Address(pub(crate) PgConnectOptions);

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Address(…)")
    }
}

#[derive(Clone, Debug)]
pub struct Options {
    pub address: Address,
    /// Name of the source, for messages and for the server's list of sessions.
    pub source: Name,
    /// Name of the hive whose leases stand in this database.
    pub hive: Name,
    /// How many shards an installation makes; one that is there keeps its own.
    pub shards: u16,
    /// How long a lease is trusted: a transaction that stands still is ended well before.
    pub lease_ttl: Duration,
    /// For one request, connecting included. The server may be gone without a word.
    pub timeout: Duration,
    /// Requests waiting for one of our connections; more of them wait at the caller.
    pub queue_max: usize,
    /// Connections for documents and for questions of people.
    pub readers: usize,
}

impl Options {
    /// # Errors
    /// If `url` is no address of a PostgreSQL server. Its text is not repeated: it may hold a password.
    pub fn new(url: &str, source: impl Into<Name>) -> Result<Options, Failure> {
        let source = source.into();
        let connect = PgConnectOptions::from_str(url).map_err(|error| {
            let wanted = "write postgres://user:password@host:5432/database";
            Failure::fatal("bad-url", format!("the address cannot be read: {error}; {wanted}"))
        })?;
        let connect = connect
            .application_name(&format!("honeyflow {source}"))
            // A pooler between us and the server refuses what it does not know, and keeps no statements for us.
            .extra_float_digits(None)
            .statement_cache_capacity(0)
            .disable_statement_logging();
        Ok(Options {
            address: Address(connect),
            source,
            hive: "honeyflow".into(),
            shards: SHARDS_DEFAULT,
            lease_ttl: Duration::from_secs(6),
            timeout: Duration::from_secs(10),
            queue_max: 1024,
            readers: 4,
        })
    }

    pub(crate) fn checked(self) -> Result<Options, Failure> {
        let Options { shards, .. } = self;
        if !shards.is_power_of_two() || shards > shard::COUNT_MAX {
            let most = shard::COUNT_MAX;
            return Err(Failure::fatal("bad-shards", format!("{shards} shards; write a power of two, at most {most}")));
        }
        Ok(self)
    }

    /// A session that stops in the middle of a transaction holds the lease's row: nobody could take over.
    pub(crate) fn idle_in_transaction(&self) -> Duration {
        (self.lease_ttl / 3).max(Duration::from_secs(1))
    }
}
