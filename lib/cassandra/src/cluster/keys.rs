//! Reads the settings of connections from the table `cql` in the pool's settings: `[cassandra.cql]`.

use std::sync::Arc;

use honeyflow_pool::SettingsError;
use honeyflow_pool::settings::{Table, Value, nearest};

use crate::connection::{Password, Secret, Settings, Tls};
use crate::wire::{Compression, Version};

const TABLE: &str = "cql";

/// All keys with their allowed values.
pub const KEYS: [(&str, &str); 12] = [
    ("lowest-version", "4 or 5"),
    ("highest-version", "4 or 5, not below the lowest"),
    ("compression", "\"none\", \"lz4\" or \"snappy\""),
    ("user", "a name"),
    ("password", "a reference: \"env:NAME\" or \"file:PATH\""),
    ("keyspace", "a name"),
    ("tls", "true or false"),
    ("tls-roots", "a file of certificates to trust"),
    ("tls-certificate", "a file; needs tls-key"),
    ("tls-key", "a file; needs tls-certificate"),
    ("tls-name", "the name in the servers' certificates"),
    ("max-frame", "\"64KiB\" to \"256MiB\""),
];

/// Returns `base`, changed by the table. Reports all errors together.
pub fn read(base: &Settings, own: &Table) -> Result<Settings, SettingsError> {
    let mut wrong: Vec<(String, String)> = Vec::new();
    let others = own.keys().filter(|name| *name != TABLE);
    wrong.extend(others.map(|name| (name.clone(), format!("is no setting; connections have theirs in `{TABLE}`"))));
    let empty = Table::new();
    let table = match own.get(TABLE) {
        None => &empty,
        Some(Value::Table(table)) => table,
        Some(_) => {
            wrong.push((TABLE.to_owned(), "is no table".to_owned()));
            &empty
        }
    };
    let mut settings = base.clone();
    let mut combined = CombinedKeys::default();
    for (key, value) in table {
        if let Err(what) = combined.take(&mut settings, key, value) {
            wrong.push((format!("{TABLE}.{key}"), what));
        }
    }
    if let Err((key, what)) = combined.apply(&mut settings) {
        wrong.push((format!("{TABLE}.{key}"), what));
    }
    if wrong.is_empty() { Ok(settings) } else { Err(SettingsError { wrong }) }
}

/// Keys that are only valid in combination.
#[derive(Default)]
struct CombinedKeys {
    user: Option<String>,
    password: Option<Secret>,
    tls: Option<bool>,
    about_tls: Tls,
    certificate: Option<String>,
    key: Option<String>,
}

impl CombinedKeys {
    fn take(&mut self, settings: &mut Settings, key: &str, value: &Value) -> Result<(), String> {
        let allowed = KEYS.iter().find(|(name, _)| *name == key).map(|(_, allowed)| *allowed);
        let Some(allowed) = allowed else {
            let meant = nearest(key, KEYS.map(|(name, _)| name));
            let meant = meant.map_or_else(String::new, |found| format!("; did you mean `{found}`?"));
            return Err(format!("is no setting{meant}"));
        };
        let refused = || format!("is {value}, not {allowed}");
        let text = || match value {
            Value::Text(text) if !text.is_empty() => Ok(text.clone()),
            _ => Err(refused()),
        };
        let number = || match value {
            Value::Integer(number) => u64::try_from(*number).map_err(|_| refused()),
            _ => Err(refused()),
        };
        let version = || number()?.try_into().ok().and_then(Version::numbered).ok_or_else(refused);
        match key {
            "lowest-version" => settings.versions.lowest = version()?,
            "highest-version" => settings.versions.highest = version()?,
            "compression" => {
                let word = text()?;
                let named = Compression::named(&word).or((word == "none").then_some(Compression::None));
                settings.compression = named.ok_or_else(refused)?;
            }
            "user" => self.user = Some(text()?),
            "password" => {
                // The value is not shown: it may be the password itself.
                let named = text().ok().as_deref().and_then(secret);
                self.password = Some(named.ok_or_else(|| format!("is not {allowed}"))?);
            }
            "keyspace" => settings.keyspace = Some(text()?),
            "tls" => match value {
                Value::Boolean(tls) => self.tls = Some(*tls),
                _ => return Err(refused()),
            },
            "tls-roots" => self.about_tls.roots = Some(text()?.into()),
            "tls-certificate" => self.certificate = Some(text()?),
            "tls-key" => self.key = Some(text()?),
            "tls-name" => self.about_tls.name = Some(text()?),
            _ => {
                let bytes = bytes(&text()?).filter(|bytes| (64 << 10..=256 << 20).contains(bytes));
                settings.frame_bytes_max = bytes.ok_or_else(refused)?;
            }
        }
        Ok(())
    }

    fn apply(mut self, settings: &mut Settings) -> Result<(), (&'static str, String)> {
        if settings.versions.lowest > settings.versions.highest {
            return Err(("highest-version", "is below lowest-version".to_owned()));
        }
        match (self.user, self.password) {
            (Some(user), Some(password)) => settings.login = Some(Arc::new(Password { user, password })),
            (Some(_), None) => {
                return Err(("user", "has no password; set password to \"env:NAME\" or \"file:PATH\"".to_owned()));
            }
            (None, Some(_)) => return Err(("password", "has no user".to_owned())),
            (None, None) => {}
        }
        let details = self.about_tls.roots.is_some() || self.about_tls.name.is_some() || self.certificate.is_some();
        self.about_tls.certificate = match (self.certificate, self.key) {
            (Some(certificate), Some(key)) => Some((certificate.into(), key.into())),
            (None, None) => None,
            (Some(_), None) => return Err(("tls-certificate", "has no key; set tls-key".to_owned())),
            (None, Some(_)) => return Err(("tls-key", "has no certificate".to_owned())),
        };
        match self.tls {
            Some(true) => settings.tls = Some(self.about_tls),
            Some(false) => settings.tls = None,
            None if details => return Err(("tls", "is not set to true, but other tls keys are set".to_owned())),
            None => {}
        }
        Ok(())
    }
}

/// Parses a size such as `64MiB`.
fn bytes(text: &str) -> Option<usize> {
    let (number, unit) = text.split_at(text.find(|letter: char| !letter.is_ascii_digit())?);
    let shift = ["B", "KiB", "MiB", "GiB"].iter().position(|name| *name == unit)? * 10;
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

fn secret(text: &str) -> Option<Secret> {
    match text.split_once(':')? {
        ("env", name) if !name.is_empty() => Some(Secret::Env(name.to_owned())),
        ("file", path) if !path.is_empty() => Some(Secret::File(path.into())),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use honeyflow_pool::{Provider, Section};

    use super::*;

    fn read_toml(below: &str) -> Result<Settings, String> {
        let text = format!("[cassandra]\nservers = [\"127.0.0.1\"]\n[cassandra.cql]\n{below}");
        let section = Section::from_toml(&text, "cassandra").map_err(|error| error.to_string())?;
        let own = section.settings().map_err(|error| error.to_string())?.connector;
        read(&Settings::default(), &own).map_err(|error| error.to_string())
    }

    /// PL-60
    #[test]
    fn cq_6_connections_are_configured_in_a_table_of_the_pools_settings() {
        let settings = read_toml(
            "lowest-version = 4\nhighest-version = 4\ncompression = \"lz4\"\nuser = \"bee\"\n\
             password = \"env:HONEY\"\nkeyspace = \"shop\"\nmax-frame = \"1MiB\"\n\
             tls = true\ntls-roots = \"/etc/roots.pem\"\ntls-certificate = \"own.pem\"\ntls-key = \"own.key\"\n\
             tls-name = \"hive\"\n",
        );
        let settings = settings.unwrap();
        assert_eq!((settings.versions.lowest, settings.versions.highest), (Version::V4, Version::V4));
        assert_eq!((settings.compression, settings.frame_bytes_max), (Compression::Lz4, 1 << 20));
        assert_eq!(settings.keyspace.as_deref(), Some("shop"));
        assert!(format!("{:?}", settings.login.unwrap()).contains("env:HONEY"));
        let tls = settings.tls.unwrap();
        assert_eq!(tls.certificate, Some(("own.pem".into(), "own.key".into())));
        assert_eq!((tls.roots, tls.name.as_deref()), (Some("/etc/roots.pem".into()), Some("hive")));
        // A key that is not set keeps its value.
        assert!(read_toml("").unwrap().login.is_none());
    }

    #[test]
    fn cq_6_all_errors_are_reported_together_and_a_password_is_not_shown() {
        let wrong = read_toml("pasword = \"env:A\"\ncompression = \"zstd\"\nlowest-version = 3\n").unwrap_err();
        for part in
            ["cql.pasword is no setting; did you mean `password`?", "\"zstd\", not \"none\"", "is 3, not 4 or 5"]
        {
            assert!(wrong.contains(part), "{wrong}");
        }
        for (below, part) in [
            ("user = \"bee\"\npassword = \"honey\"\n", "cql.password is not a reference"),
            ("user = \"bee\"\n", "cql.user has no password"),
            ("password = \"file:/p\"\n", "cql.password has no user"),
            ("lowest-version = 5\nhighest-version = 4\n", "cql.highest-version is below"),
            ("tls-roots = \"r.pem\"\n", "cql.tls is not set to true"),
            ("tls = true\ntls-key = \"k\"\n", "cql.tls-key has no certificate"),
            ("tls = true\ntls-certificate = \"c\"\n", "cql.tls-certificate has no key"),
            ("max-frame = \"7KiB\"\n", "is \"7KiB\", not \"64KiB\" to \"256MiB\""),
            ("max-frame = \"99999999999999999999GiB\"\n", "GiB\", not"),
            ("max-frame = \"64 MB\"\n", "MB\", not"),
            ("max-frame = 65536\n", "is 65536, not"),
            ("tls = \"yes\"\n", "not true or false"),
        ] {
            let wrong = read_toml(below).unwrap_err();
            assert!(wrong.contains(part) && !wrong.contains("honey"), "{wrong}");
        }
        let other = Table::from([("tcp".to_owned(), Value::Table(Table::new()))]);
        assert!(read(&Settings::default(), &other).unwrap_err().to_string().contains("tcp is no setting"));
    }
}
