//! How the database is reached.

use std::{fmt, str::FromStr, time::Duration};

use honeyflow_event::Name;
use honeyflow_hive::contract::HIVE;
use honeyflow_runtime::Failure;

use crate::driver::{ConnectOptions, PgConnectOptions};

/// ```
/// let options = honeyflow_hive_postgres::Options::new("postgres://bee:secret@db/shop");
/// assert_eq!(&*options.hive, "honeyflow");
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:5432/database`: of the primary, or of a pooler before it.
    pub url: String,
    /// Several hives may share a database.
    pub hive: Name,
    /// For one request whose asker has no deadline of its own. The server may be gone without a word.
    pub timeout: Duration,
}

impl Options {
    pub fn new(url: impl Into<String>) -> Options {
        Options { url: url.into(), hive: HIVE.into(), timeout: Duration::from_secs(10) }
    }

    /// The address without its text in any message: it may hold a password.
    pub(crate) fn address(&self) -> Result<PgConnectOptions, Failure> {
        let wanted = "write postgres://user:password@host:5432/database";
        let is_ours = ["postgres://", "postgresql://"].iter().any(|scheme| self.url.starts_with(scheme));
        if !is_ours {
            let said = format!("the hive's address is not one of a PostgreSQL server; {wanted}");
            return Err(Failure::fatal("bad-url", said));
        }
        let connect = PgConnectOptions::from_str(&self.url).map_err(|error| {
            Failure::fatal("bad-url", format!("the hive's address cannot be read: {error}; {wanted}"))
        })?;
        Ok(connect
            .application_name(&format!("honeyflow hive {}", self.hive))
            // A pooler between us and the server refuses what it does not know, and keeps no statements for us.
            .extra_float_digits(None)
            .statement_cache_capacity(0)
            .disable_statement_logging())
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { hive, timeout, .. } = self;
        f.debug_struct("Options").field("hive", hive).field("timeout", timeout).finish_non_exhaustive()
    }
}
