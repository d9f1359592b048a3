//! The options of the hive: the address of its database, its name and its timeout.

use std::{fmt, str::FromStr, time::Duration};

use honeyflow_event::Name;
use honeyflow_hive::contract::HIVE;
use honeyflow_runtime::Failure;

use crate::{
    codes,
    driver::{ConnectOptions, PgConnectOptions},
};

/// ```
/// let options = honeyflow_hive_postgres::Options::new("postgres://bee:secret@db/shop");
/// assert_eq!(&*options.hive, "honeyflow");
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone)]
pub struct Options {
    /// `postgres://user:password@host:5432/database`: the primary, or a pooler in front of it.
    pub url: String,
    /// Several hives may share a database.
    pub hive: Name,
    /// The deadline of one request, for callers that set none. A server may disappear without closing the connection.
    pub timeout: Duration,
}

impl Options {
    pub fn new(url: impl Into<String>) -> Options {
        Options { url: url.into(), hive: HIVE.into(), timeout: Duration::from_secs(10) }
    }

    /// Parses the address. No message repeats its text, because it may contain a password.
    pub(crate) fn address(&self) -> Result<PgConnectOptions, Failure> {
        let wanted = "write postgres://user:password@host:5432/database";
        let is_ours = ["postgres://", "postgresql://"].iter().any(|scheme| self.url.starts_with(scheme));
        if !is_ours {
            let said = format!("the hive's address is not the address of a PostgreSQL server; {wanted}");
            return Err(Failure::fatal(codes::BAD_URL, said));
        }
        let connect = PgConnectOptions::from_str(&self.url).map_err(|error| {
            Failure::fatal(codes::BAD_URL, format!("the hive's address cannot be read: {error}; {wanted}"))
        })?;
        Ok(connect
            .application_name(&format!("honeyflow hive {}", self.hive))
            // A pooler in between refuses parameters that it does not know, and keeps no prepared statements for us.
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
