//! The configuration of an `http.call` step, and the errors that are reported before it runs.

use std::{fmt, time::Duration};

use honeyflow_workflow::{Expression, duration};
use reqwest::{
    Method,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use serde_json::{Map, Value};

use crate::{
    address::{AddressRefusal, Guard, Network, NetworkError},
    template,
};

pub const CONNECT_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// Which bodies are accepted as an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Answer {
    /// JSON if it is JSON, else text.
    #[default]
    Any,
    /// Only JSON; another body is a broken answer, for example the page of a proxy.
    Json,
}

/// The settings as written, except secrets, which have been resolved.
#[derive(Clone)]
pub struct Config {
    pub url: String,
    pub method: String,
    pub headers: Vec<(String, String)>,
    /// The body; if none, the input is sent with methods that have a body.
    pub body: Option<Expression>,
    pub allow_networks: Vec<String>,
    /// Whether a plain `http:` URL is allowed.
    pub http: bool,
    pub connect_timeout: Duration,
    pub answer: Answer,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Url(#[from] template::Error),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error("the URL's host is refused: {0}")]
    Address(#[from] AddressRefusal),
    #[error("`{0}` is no method: write GET, POST, PUT, PATCH, DELETE or HEAD")]
    Method(String),
    #[error("`headers` has `{name}`: {reason}")]
    Header { name: String, reason: &'static str },
    #[error("cannot read the secret of header `{name}`: {reason}")]
    Secret { name: String, reason: String },
    #[error("`{name}` is not {expected}")]
    Setting { name: &'static str, expected: &'static str },
    #[error("`body` is no expression: {0}")]
    Body(String),
    #[error("the HTTP client cannot be made: {0}")]
    Client(String),
}

impl Config {
    /// Creates a configuration with the default of every setting.
    pub fn new(url: impl Into<String>) -> Config {
        Config {
            url: url.into(),
            method: "POST".to_owned(),
            headers: Vec::new(),
            body: None,
            allow_networks: Vec::new(),
            http: false,
            connect_timeout: CONNECT_TIMEOUT_DEFAULT,
            answer: Answer::default(),
        }
    }

    /// Reads the settings of a step. `secret` resolves `env:NAME` or `file:path`, or returns why it cannot.
    pub fn read(
        settings: &Map<String, Value>,
        secret: &dyn Fn(&str) -> Result<String, String>,
    ) -> Result<Config, Error> {
        let url = text(settings, "url")?.ok_or(Error::Setting { name: "url", expected: "there" })?;
        let mut config = Config::new(url);
        if let Some(method) = text(settings, "method")? {
            config.method = method.to_owned();
        }
        if let Some(body) = text(settings, "body")? {
            config.body = Some(Expression::parse(body).map_err(|error| Error::Body(error.to_string()))?);
        }
        if let Some(value) = settings.get("http") {
            config.http = value.as_bool().ok_or(Error::Setting { name: "http", expected: "true or false" })?;
        }
        if let Some(written) = text(settings, "connect-timeout")? {
            config.connect_timeout = duration::parse(written)
                .filter(|timeout| !timeout.is_zero())
                .ok_or(Error::Setting { name: "connect-timeout", expected: "a duration such as \"5s\"" })?;
        }
        match text(settings, "answer")? {
            None | Some("any") => {}
            Some("json") => config.answer = Answer::Json,
            Some(_) => return Err(Error::Setting { name: "answer", expected: "\"any\" or \"json\"" }),
        }
        if let Some(networks) = settings.get("allow-networks") {
            let wrong =
                Error::Setting { name: "allow-networks", expected: "a list of networks such as \"10.0.0.0/8\"" };
            let networks =
                networks.as_array().map(|list| list.iter().map(|network| network.as_str().map(str::to_owned)));
            config.allow_networks = networks.and_then(Iterator::collect).ok_or(wrong)?;
        }
        if let Some(headers) = settings.get("headers") {
            let wrong = || Error::Setting { name: "headers", expected: "a table of texts" };
            for (name, value) in headers.as_object().ok_or_else(wrong)? {
                let written = value.as_str().ok_or_else(wrong)?;
                config.headers.push((name.clone(), header_text(name, written, secret)?));
            }
        }
        Ok(config)
    }

    pub(crate) fn method(&self) -> Result<Method, Error> {
        match self.method.as_str() {
            "GET" => Ok(Method::GET),
            "POST" => Ok(Method::POST),
            "PUT" => Ok(Method::PUT),
            "PATCH" => Ok(Method::PATCH),
            "DELETE" => Ok(Method::DELETE),
            "HEAD" => Ok(Method::HEAD),
            other => Err(Error::Method(other.chars().take(32).collect())),
        }
    }

    pub(crate) fn guard(&self) -> Result<Guard, Error> {
        let networks = self.allow_networks.iter().map(|text| text.parse::<Network>());
        Ok(Guard::new(networks.collect::<Result<_, _>>()?))
    }

    /// Returns the headers of every request; the configured ones are marked as sensitive, so that they are never
    /// printed.
    pub(crate) fn header_map(&self) -> Result<HeaderMap, Error> {
        let mut map = HeaderMap::new();
        map.insert(header::ACCEPT, HeaderValue::from_static("application/json, text/*;q=0.5, */*;q=0.1"));
        map.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
        if self.body.is_some() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH") {
            map.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (written, value) in &self.headers {
            let wrong = |reason| Error::Header { name: written.chars().take(64).collect(), reason };
            let name: HeaderName = written.parse().map_err(|_| wrong("this is no header name"))?;
            if is_ours(name.as_str()) {
                return Err(wrong("this header is set by the step itself"));
            }
            let mut value =
                HeaderValue::from_str(value).map_err(|_| wrong("its value has characters no header may have"))?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        Ok(map)
    }
}

/// Debug output without header values, so that they do not appear in logs and panics.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Config")
            .field("url", &self.url)
            .field("method", &self.method)
            .field("headers", &names)
            .field("body", &self.body)
            .field("allow_networks", &self.allow_networks)
            .field("http", &self.http)
            .field("connect_timeout", &self.connect_timeout)
            .field("answer", &self.answer)
            .finish()
    }
}

fn text<'a>(settings: &'a Map<String, Value>, name: &'static str) -> Result<Option<&'a str>, Error> {
    let Some(value) = settings.get(name) else { return Ok(None) };
    value.as_str().map(Some).ok_or(Error::Setting { name, expected: "a text" })
}

/// Returns the reference to a secret in the value of a header: `env:TOKEN` of `Bearer env:TOKEN`.
pub fn secret_reference(written: &str) -> Option<&str> {
    let last = written.rsplit_once(' ').map_or(written, |(_, last)| last);
    (last.starts_with("env:") || last.starts_with("file:")).then_some(last)
}

/// Returns `application/xml` unchanged; resolves the secret in `env:TOKEN` and `Bearer env:TOKEN`.
fn header_text(name: &str, written: &str, secret: &dyn Fn(&str) -> Result<String, String>) -> Result<String, Error> {
    if let Some(reference) = secret_reference(written) {
        let before = &written[..written.len() - reference.len()];
        let fetched = secret(reference).map_err(|reason| Error::Secret { name: name.to_owned(), reason })?;
        // the line break at the end of a file is no part of the secret
        return Ok(format!("{before}{}", fetched.trim_end_matches(['\r', '\n'])));
    }
    if is_secret(name) {
        let reason = "a secret is written into the configuration: write `env:NAME` or `file:path`";
        return Err(Error::Header { name: name.to_owned(), reason });
    }
    Ok(written.to_owned())
}

fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["authorization", "cookie", "token", "secret", "password", "api-key", "apikey"]
        .iter()
        .any(|word| name.contains(word))
}

/// Headers that cannot be configured: the client sets those for framing, routing and decoding, the step the last two.
fn is_ours(name: &str) -> bool {
    const OURS: &[&str] = &[
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "accept-encoding",
        "content-encoding",
        "idempotency-key",
        "honeyflow-version",
    ];
    OURS.contains(&name) || name.starts_with("proxy-")
}
