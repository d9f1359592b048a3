//! The configuration of a client: its servers and how to connect to them.

use honeyflow_pool::{Settings, settings::Translate};
use honeyflow_tls::Tls;
use http::Uri;

use crate::login::Login;

/// The version of HTTP on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Http {
    /// One request at a time: the connection is lent exclusively.
    #[default]
    One,
    /// Many requests at a time; over plain TCP without negotiation.
    Two,
    /// The version that the TLS handshake negotiates; HTTP/1.1 over plain TCP.
    Agreed,
}

/// ```
/// use honeyflow_sink_search::Config;
///
/// let config = Config::of_urls(&["http://10.0.0.7:9200", "http://10.0.0.8:9200"])?;
/// assert!(config.sniffs()); // two servers are a cluster, and a cluster may grow
/// # Ok::<(), honeyflow_sink_search::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Host and port of each server.
    pub servers: Vec<String>,
    /// The prefix of every path if the servers are behind a gateway: `/search`.
    pub prefix: String,
    pub tls: Option<Tls>,
    pub http: Http,
    pub login: Option<Login>,
    /// Whether to ask the servers for the others. `None` = only if two or more servers are configured.
    pub sniff: Option<bool>,
    /// Which addresses to dial instead of those that servers publish.
    pub translate: Translate,
    /// The longest answer in bytes; a longer one is an error.
    pub answer_bytes_max: usize,
    /// The largest number of concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("no server is configured; add one such as `http://127.0.0.1:9200`")]
    NoServer,
    #[error("`{0}` is not the address of a search server; use one such as `https://search.example.com:9200`")]
    Url(String),
    #[error("the address of a search server contains a login; set user and password separately")]
    Login,
    #[error(
        "`{0}` differs from the first server in more than host and port; all servers need the same scheme and path"
    )]
    Different(String),
}

impl Config {
    /// Makes a configuration of these servers, with the default of every other setting.
    ///
    /// # Errors
    /// Returns which address is wrong, and an example of a correct one.
    pub fn of_urls(urls: &[impl AsRef<str>]) -> Result<Config, ConfigError> {
        let parts = urls.iter().map(|url| UrlParts::read(url.as_ref())).collect::<Result<Vec<_>, _>>()?;
        let first = parts.first().ok_or(ConfigError::NoServer)?;
        if let Some(at) = parts.iter().position(|part| (part.secure, &part.prefix) != (first.secure, &first.prefix)) {
            return Err(ConfigError::Different(urls[at].as_ref().to_owned()));
        }
        Ok(Config {
            prefix: first.prefix.clone(),
            tls: first.secure.then(Tls::default),
            servers: parts.into_iter().map(|part| part.server).collect(),
            http: Http::default(),
            login: None,
            sniff: None,
            translate: Translate::default(),
            answer_bytes_max: 64 << 20,
            streams_max: 128,
        })
    }

    pub fn sniffs(&self) -> bool {
        self.sniff.unwrap_or(self.servers.len() >= 2)
    }

    /// Returns the settings of a pool, with the values of this configuration set in them.
    pub fn settings(&self, other: Settings) -> Settings {
        Settings { servers: self.servers.clone(), discovery: self.sniffs(), translate: self.translate.clone(), ..other }
    }
}

struct UrlParts {
    secure: bool,
    server: String,
    prefix: String,
}

impl UrlParts {
    fn read(url: &str) -> Result<UrlParts, ConfigError> {
        // Checked before parsing: an address that cannot be parsed may still contain a password.
        if url.contains('@') {
            return Err(ConfigError::Login);
        }
        let wrong = || ConfigError::Url(url.chars().take(128).collect());
        let uri: Uri = url.parse().map_err(|_| wrong())?;
        let secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(wrong)?;
        // The library reads an invalid port as no port.
        let written = uri.authority().and_then(|authority| authority.as_str().strip_prefix(host));
        let port = match written {
            Some("") => Some(if secure { 443 } else { 80 }),
            Some(written) => written.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port != 0_u16),
            None => None,
        };
        let port = port.filter(|_| uri.query().is_none()).ok_or_else(wrong)?;
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(UrlParts { secure, server: format!("{host}:{port}"), prefix })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let config = Config::of_urls(&["https://search.example.com:9200/es/", "https://[::1]/es"]).unwrap();
        assert_eq!(config.servers, ["search.example.com:9200", "[::1]:443"]);
        assert_eq!((config.prefix.as_str(), config.tls.is_some()), ("/es", true));
        let plain = Config::of_urls(&["http://localhost"]).unwrap();
        assert_eq!((plain.servers.as_slice(), plain.prefix.as_str()), (&["localhost:80".to_owned()][..], ""));
        assert!(plain.tls.is_none());
    }

    #[test]
    fn errors_name_wrong_addresses_and_hide_passwords() {
        for url in ["localhost:9200", "ftp://a:1", "", "http://", "http://a:0", "http://a/?b", "http://a:99999"] {
            assert!(matches!(Config::of_urls(&[url]), Err(ConfigError::Url(_))), "{url}");
        }
        let error = Config::of_urls(&["https://me:hidden@search:9200"]).unwrap_err();
        assert!(!error.to_string().contains("hidden"), "{error}");
        assert_eq!(Config::of_urls(&[""; 0]).unwrap_err(), ConfigError::NoServer);
        for other in ["https://b:1", "http://b:1/x"] {
            assert!(matches!(Config::of_urls(&["http://a:1", other]), Err(ConfigError::Different(_))), "{other}");
        }
    }

    #[test]
    fn pl_141_sniffing_is_on_with_two_servers_and_off_with_one() {
        let one = Config::of_urls(&["http://a:1"]).unwrap();
        let two = Config::of_urls(&["http://a:1", "http://b:1"]).unwrap();
        assert!(!one.settings(Settings::default()).discovery);
        assert!(two.settings(Settings::default()).discovery);
        assert!(Config { sniff: Some(true), ..one }.settings(Settings::default()).discovery);
        assert!(!Config { sniff: Some(false), ..two }.settings(Settings::default()).discovery);
    }
}
