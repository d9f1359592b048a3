//! The connector's part of a pool's settings: the table `http` in it, such as `[search.http]`. A key overrides the
//! configuration that the connector was created with, for connections opened from then on. If one key is wrong, none is
//! applied.

use honeyflow_pool::{
    SettingsError,
    settings::{Table, Value, nearest},
};
use honeyflow_tls::Tls;

use crate::{
    config::{Config, Http},
    login::{Login, Secret},
};

/// Each key with its allowed values.
const KEYS: [(&str, &str); 11] = [
    ("version", "1, 2 or \"agreed\""),
    ("prefix", "a path such as \"/search\""),
    ("tls", "true or false"),
    ("tls-roots", "the path of a file"),
    ("tls-name", "the name in the servers' certificates"),
    ("tls-certificate", "the path of a file, beside tls-key"),
    ("tls-key", "the path of a file, beside tls-certificate"),
    ("login", "\"user:env:NAME\" or \"user:file:path\""),
    ("authorization", "the place of the whole header: \"env:NAME\" or \"file:path\""),
    ("answer-bytes-max", "1024 to 1073741824"),
    ("streams-max", "1 to 32768"),
];

impl Config {
    /// Returns this configuration, changed by the keys of the table.
    ///
    /// # Errors
    /// Returns all wrong keys.
    pub fn with_keys(&self, own: &Table) -> Result<Config, SettingsError> {
        let mut config = self.clone();
        let mut wrong = Vec::new();
        for (name, value) in own {
            match (name.as_str(), value) {
                ("http", Value::Table(keys)) => config.take(keys, &mut wrong),
                ("http", _) => wrong.push((name.clone(), "is no table".to_owned())),
                _ => wrong.push((name.clone(), unknown(name, ["http"]))),
            }
        }
        if wrong.is_empty() { Ok(config) } else { Err(SettingsError { wrong }) }
    }

    fn take(&mut self, keys: &Table, wrong: &mut Vec<(String, String)>) {
        for (key, value) in keys {
            let Some((_, allowed)) = KEYS.iter().find(|(name, _)| name == key) else {
                wrong.push((format!("http.{key}"), unknown(key, KEYS.map(|(name, _)| name))));
                continue;
            };
            if self.set(key, value).is_none() {
                // The value is not quoted: it may be a secret.
                wrong.push((format!("http.{key}"), format!("is not {allowed}")));
            }
        }
        let path = |key| keys.get(key).and_then(text).map(Into::into);
        match (path("tls-certificate"), path("tls-key")) {
            (Some(certificate), Some(key)) => self.secure().certificate = Some((certificate, key)),
            (None, None) => {}
            _ => wrong.push(("http.tls-certificate".to_owned(), "needs both a certificate and its key".to_owned())),
        }
        let is_off = keys.get("tls") == Some(&Value::Boolean(false));
        if let Some(other) = keys.keys().find(|key| is_off && key.starts_with("tls-")) {
            wrong.push(("http.tls".to_owned(), format!("is off, but {other} is set; remove one of them")));
        }
        if keys.contains_key("login") && keys.contains_key("authorization") {
            wrong.push(("http.login".to_owned(), "cannot be combined with authorization".to_owned()));
        }
    }

    /// Sets one key; returns `None` if it cannot have this value.
    fn set(&mut self, key: &str, value: &Value) -> Option<()> {
        match (key, value) {
            ("version", Value::Integer(1)) => self.http = Http::One,
            ("version", Value::Integer(2)) => self.http = Http::Two,
            ("version", value) => self.http = text(value).filter(|word| *word == "agreed").map(|_| Http::Agreed)?,
            ("prefix", value) => self.prefix = text(value).filter(|path| is_prefix(path))?.to_owned(),
            ("tls", Value::Boolean(false)) => self.tls = None,
            ("tls", Value::Boolean(true)) => drop(self.secure()),
            ("tls-roots", value) => self.secure().roots = Some(text(value)?.into()),
            ("tls-name", value) => self.secure().name = Some(text(value)?.to_owned()),
            ("tls-certificate" | "tls-key", value) => drop(text(value)?),
            ("login", value) => {
                let (user, secret) = text(value)?.split_once(':').filter(|(user, _)| !user.is_empty())?;
                self.login = Some(Login::Basic { user: user.to_owned(), password: Secret::named(secret)? });
            }
            ("authorization", value) => self.login = Some(Login::Header(Secret::named(text(value)?)?)),
            ("answer-bytes-max", Value::Integer(bytes @ 1024..=0x4000_0000)) => {
                self.answer_bytes_max = usize::try_from(*bytes).ok()?;
            }
            ("streams-max", Value::Integer(streams @ 1..=32_768)) => self.streams_max = u32::try_from(*streams).ok()?,
            _ => return None,
        }
        Some(())
    }

    fn secure(&mut self) -> &mut Tls {
        self.tls.get_or_insert_default()
    }
}

fn text(value: &Value) -> Option<&str> {
    match value {
        Value::Text(text) if !text.is_empty() => Some(text),
        _ => None,
    }
}

fn is_prefix(path: &str) -> bool {
    path.starts_with('/')
        && !path.ends_with('/')
        && path.parse::<http::uri::PathAndQuery>().is_ok_and(|path| path.query().is_none())
}

fn unknown<const N: usize>(word: &str, known: [&str; N]) -> String {
    let meant = nearest(word, known).map_or_else(String::new, |found| format!("; did you mean `{found}`?"));
    format!("is no setting{meant}")
}

#[cfg(test)]
mod tests {
    use honeyflow_pool::{Provider, Section};

    use super::*;

    fn with_keys(keys: &str) -> Result<Config, String> {
        let section = Section::from_toml(&format!("[search]\n[search.http]\n{keys}"), "search").unwrap();
        let made_with = Config::of_urls(&["https://a:1/es"]).unwrap();
        made_with.with_keys(&section.settings().unwrap().connector).map_err(|error| error.to_string())
    }

    /// PL-60
    #[test]
    fn every_key_is_read() {
        let config = with_keys(
            "version = 2\nprefix = \"/x/y\"\ntls-roots = \"ca.pem\"\ntls-name = \"search\"\ntls-certificate = \"c.pem\"\n\
             tls-key = \"k.pem\"\nlogin = \"indexer:env:SEARCH_PASSWORD\"\nanswer-bytes-max = 4096\nstreams-max = 9\n",
        );
        let config = config.unwrap();
        let tls = config.tls.unwrap();
        assert_eq!((config.http, config.prefix.as_str(), tls.name.as_deref()), (Http::Two, "/x/y", Some("search")));
        assert_eq!((tls.roots, tls.certificate), (Some("ca.pem".into()), Some(("c.pem".into(), "k.pem".into()))));
        assert_eq!((config.answer_bytes_max, config.streams_max), (4096, 9));
        assert!(matches!(config.login, Some(Login::Basic { user, .. }) if user == "indexer"));
        assert!(with_keys("tls = false").unwrap().tls.is_none());
        assert!(with_keys("tls = true").unwrap().tls.is_some());
        assert!(matches!(with_keys("authorization = \"file:token\"").unwrap().login, Some(Login::Header(_))));
        assert_eq!(with_keys("version = \"agreed\"").unwrap().http, Http::Agreed);
        assert_eq!(with_keys("").unwrap().prefix, "/es");
    }

    /// PL-60
    #[test]
    fn a_wrong_key_is_refused_with_the_nearest_word_and_without_its_value() {
        for (keys, message) in [
            ("verson = 1", "http.verson is no setting; did you mean `version`?"),
            ("version = 3", "http.version is not 1, 2 or \"agreed\""),
            ("prefix = \"x\"", "http.prefix is not a path"),
            ("prefix = \"/x?y\"", "http.prefix is not a path"),
            ("tls-key = \"k.pem\"", "http.tls-certificate needs both a certificate and its key"),
            ("tls = false\ntls-name = \"search\"", "http.tls is off, but tls-name is set; remove one of them"),
            ("login = \"me:hidden\"", "http.login is not \"user:env:NAME\""),
            ("authorization = \"Bearer hidden\"", "http.authorization is not the place of"),
            ("authorization = \"env:A\"\nlogin = \"a:env:B\"", "http.login cannot be combined with authorization"),
            ("answer-bytes-max = 1", "http.answer-bytes-max is not 1024 to"),
            ("streams-max = \"many\"", "http.streams-max is not 1 to"),
        ] {
            let error = with_keys(keys).unwrap_err();
            assert!(error.contains(message) && !error.contains("hidden"), "{keys}: {error}");
        }
        let table = Table::from([("htp".to_owned(), Value::Table(Table::new()))]);
        let error = Config::of_urls(&["http://a:1"]).unwrap().with_keys(&table).unwrap_err();
        assert!(error.to_string().contains("did you mean `http`?"), "{error}");
    }
}
