//! The options of the hive: the address of its database, its name and its timeout.

use std::{fmt, str::FromStr, time::Duration};

use honeyflow_event::Name;
use honeyflow_hive::contract::HIVE;
use honeyflow_runtime::Failure;

use crate::{
    codes,
    driver::{ConnectOptions, MySqlConnectOptions},
    schema::NAME_CHARS_MAX,
};

#[derive(Clone)]
pub struct Options {
    /// `mysql://user:password@host:3306/database`, or `mariadb://…`. Add `?ssl-mode=verify_identity&ssl-ca=…` where the
    /// network is not trusted.
    pub url: String,
    /// Several hives may share a database.
    pub hive: Name,
    /// The timeout of one request, including the connection. A server may disappear without closing the connection.
    pub timeout: Duration,
    /// The operator confirms that all nodes use only this server, though it is one of several that accept writes.
    pub one_writer: bool,
}

impl Options {
    pub fn new(url: impl Into<String>) -> Options {
        Options { url: url.into(), hive: HIVE.into(), timeout: Duration::from_secs(10), one_writer: false }
    }

    /// Parses the address. No message repeats it, because it may contain a password.
    pub(crate) fn address(&self) -> Result<MySqlConnectOptions, Failure> {
        const WANTED: &str = "write mysql://user:password@host:3306/database";
        let wrong =
            |what: String| Failure::fatal(codes::BAD_URL, format!("the address cannot be used: {what}; {WANTED}"));
        let scheme = self.url.split_once("://").map_or("", |(scheme, _)| scheme);
        if !matches!(scheme, "mysql" | "mariadb") {
            return Err(wrong("it does not begin with mysql:// or mariadb://".to_owned()));
        }
        let address = MySqlConnectOptions::from_str(&self.url).map_err(|error| wrong(error.to_string()))?;
        if address.get_database().is_none() {
            return Err(wrong("it names no database".to_owned()));
        }
        let hive = self.hive.chars().count();
        if hive == 0 || hive > NAME_CHARS_MAX {
            let said = format!("the hive's name has {hive} characters; it must have 1 to {NAME_CHARS_MAX}");
            return Err(Failure::fatal(codes::BAD_NAME, said));
        }
        // No session settings: a pooler would lose them, and every message brings the settings that it needs.
        Ok(address
            .pipes_as_concat(false)
            .no_engine_substitution(false)
            .timezone(None::<String>)
            .set_names(false)
            .statement_cache_capacity(0)
            .disable_statement_logging())
    }
}

/// Shows everything except the address.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { hive, timeout, one_writer, .. } = self;
        f.debug_struct("Options")
            .field("hive", hive)
            .field("timeout", timeout)
            .field("one_writer", one_writer)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_75_an_address_that_cannot_be_right_is_refused_without_repeating_it() {
        let refused = |url: &str| {
            let failure = Options::new(url).address().err().unwrap_or_else(|| panic!("{url}"));
            assert!(!failure.message.contains("s3cret"), "{failure}");
            assert!(failure.message.contains("mysql://user:password"), "{failure}");
            failure.code
        };
        assert_eq!(refused("postgres://u:s3cret@h/d"), "bad-url");
        assert_eq!(refused("mysql://u:s3cret@h:99999/d"), "bad-url");
        assert_eq!(refused("mysql://u:s3cret@h"), "bad-url");
        assert_eq!(refused(""), "bad-url");
        for good in ["mysql://u:p@h/d", "mariadb://u@h:3307/d?ssl-mode=required", "mysql:///d?socket=/run/x.sock"] {
            assert!(Options::new(good).address().is_ok(), "{good}");
        }
        let unnamed = Options { hive: "".into(), ..Options::new("mysql://u:p@h/d") };
        assert_eq!(unnamed.address().unwrap_err().code, "bad-name");
        assert!(!format!("{:?}", Options::new("mysql://u:s3cret@h/d")).contains("s3cret"));
    }
}
