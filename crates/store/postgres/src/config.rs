//! The options of the store: the address of the database, time limits and sizes.

use std::{str::FromStr, time::Duration};

use honeyflow_event::{Name, shard};
use honeyflow_runtime::Failure;

use crate::{
    codes,
    driver::{ConnectOptions, PgConnectOptions},
};

/// Enough shards for many nodes to own a few each.
pub const SHARDS_DEFAULT: u16 = 64;

/// The address of the server, with the password. Its Debug text shows neither.
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
    /// The name of the source, for messages and for the server's list of sessions.
    pub source: Name,
    /// The name of the hive whose leases are in this database.
    pub hive: Name,
    /// The number of shards of a new installation; an existing installation keeps its number.
    pub shards: u16,
    /// How long a lease is trusted: the server ends an idle transaction well before that.
    pub lease_ttl: Duration,
    /// The time limit of one request, connecting included: a lost server may never answer.
    pub timeout: Duration,
    /// The maximum number of requests that wait in the queue of one connection; further callers wait for room.
    pub queue_max: usize,
    /// The number of connections for documents and for an operator's reads.
    pub readers: usize,
}

impl Options {
    /// # Errors
    /// If `url` is not an address of a PostgreSQL server. The error does not repeat it: it may contain a password.
    pub fn new(url: &str, source: impl Into<Name>) -> Result<Options, Failure> {
        let source = source.into();
        let connect = PgConnectOptions::from_str(url).map_err(|error| {
            let wanted = "write postgres://user:password@host:5432/database";
            Failure::fatal(codes::BAD_URL, format!("the address cannot be read: {error}; {wanted}"))
        })?;
        let connect = connect
            .application_name(&format!("honeyflow {source}"))
            // A pooler refuses unknown start-up parameters and keeps no prepared statements.
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
            return Err(Failure::fatal(
                codes::BAD_SHARDS,
                format!("{shards} shards; write a power of two, at most {most}"),
            ));
        }
        Ok(self)
    }

    /// The server's limit for an idle transaction. A session that stops in the middle of a transaction locks the
    /// lease's row, so no other node could take the lease over.
    pub(crate) fn idle_in_transaction(&self) -> Duration {
        (self.lease_ttl / 3).max(Duration::from_secs(1))
    }
}
