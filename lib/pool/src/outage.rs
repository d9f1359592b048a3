//! Explains why no server can be used: names each server that is down with its last error, and says why discovery found
//! no others. It is part of every error with that cause, and its text is bounded, since thousands of requests may fail
//! at the same moment.

use std::{fmt, sync::Arc};

use crate::{error::Kind, server::Server};

/// The last error of a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastError {
    pub kind: Kind,
    pub why: Arc<str>,
}

/// A server without a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DownServer {
    pub server: Server,
    /// `None` if the first connect has not ended yet.
    pub trouble: Option<LastError>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Outage {
    /// The servers that are down, at most [`Outage::NAMED`] of them.
    pub down: Vec<DownServer>,
    /// How many more are down.
    pub more: usize,
    /// How many servers are not used because they are remote and the settings forbid remote ones.
    pub remote: usize,
    /// How many servers the ring has.
    pub known: usize,
    /// The configured names that cannot be looked up, with their errors.
    pub names: Option<Arc<str>>,
    /// Why discovery failed.
    pub discovery: Option<Arc<str>>,
}

/// The longest text about one server, in bytes.
const TEXT_MAX: usize = 240;

impl Outage {
    pub const NAMED: usize = 8;

    pub(crate) fn at(server: &Server, kind: Kind, why: impl Into<Arc<str>>) -> Outage {
        let trouble = Some(LastError { kind, why: why.into() });
        Outage { down: vec![DownServer { server: server.clone(), trouble }], ..Outage::default() }
    }

    pub fn login_refused(&self) -> bool {
        self.down.iter().filter_map(|down| down.trouble.as_ref()).any(|trouble| trouble.kind == Kind::Login)
    }

    /// The error of this server, without its name, for a text that names it already.
    pub(crate) fn of(&self, server: &Server) -> String {
        let found = self.down.iter().find(|down| down.server.id == server.id);
        let why = found.and_then(|down| down.trouble.as_ref()).map_or("no connection yet", |trouble| &trouble.why);
        let why = why.strip_prefix(&*server.to_string()).map_or(why, |rest| rest.trim_start_matches([':', ' ']));
        brief(why)
    }
}

/// `no server is usable: 127.0.0.1:9042: connection refused; 127.0.0.2:9042: refused the login`
impl fmt::Display for Outage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said: Vec<String> = Vec::new();
        for DownServer { server, trouble } in &self.down {
            said.push(about(server, &brief(trouble.as_ref().map_or("no connection yet", |trouble| &trouble.why))));
        }
        if self.more > 0 {
            said.push(format!("{} more", self.more));
        }
        if self.remote > 0 {
            said.push(format!("{} remote, which the settings forbid (allow-remote)", self.remote));
        }
        said.extend(self.names.as_deref().map(brief));
        // Discovery fails for the same reason as the connects: name that reason once.
        if self.down.iter().all(|down| down.trouble.is_none()) {
            said.extend(self.discovery.as_deref().map(brief));
        }
        if said.is_empty() && self.known > 0 {
            return f.write_str("no server is left: each was tried before or is leaving");
        }
        if said.is_empty() {
            return f.write_str("no server is known yet");
        }
        write!(f, "no server is usable: {}", said.join("; "))
    }
}

/// Prefixes a text with the server's name, unless it contains the name already.
pub(crate) fn about(server: &Server, said: &str) -> String {
    let name = server.to_string();
    if said.contains(&name) { said.to_owned() } else { format!("{name}: {said}") }
}

/// The text in one line, cut to [`TEXT_MAX`] bytes.
pub(crate) fn brief(text: &str) -> String {
    let kept = &text[..text.floor_char_boundary(TEXT_MAX)];
    let cut = if kept.len() < text.len() { "…" } else { "" };
    one_line(kept) + cut
}

/// Replaces line breaks and control characters, which could start a new log line or command a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last: u8) -> Server {
        Server::at(([127, 0, 0, last], 9042).into())
    }

    fn down(last: u8, why: &str) -> DownServer {
        DownServer { server: server(last), trouble: Some(LastError { kind: Kind::Connect, why: why.into() }) }
    }

    /// PL-90
    #[test]
    fn pl_90_an_outage_names_each_server_and_its_cause_once() {
        let mut outage = Outage {
            down: vec![down(1, "connection refused"), down(2, "127.0.0.2:9042 refused the login"), down(3, "silent")],
            discovery: Some("127.0.0.1:9042: connection refused".into()),
            ..Outage::default()
        };
        outage.down[2].trouble = None;
        assert_eq!(
            outage.to_string(),
            "no server is usable: 127.0.0.1:9042: connection refused; 127.0.0.2:9042 refused the login; \
             127.0.0.3:9042: no connection yet"
        );
        assert_eq!(outage.of(&server(2)), "refused the login");
        outage = Outage { names: Some("db cannot be looked up: no".into()), remote: 2, ..Outage::default() };
        assert_eq!(
            outage.to_string(),
            "no server is usable: 2 remote, which the settings forbid (allow-remote); db cannot be looked up: no"
        );
        assert_eq!(Outage::default().to_string(), "no server is known yet");
        outage = Outage { known: 2, ..Outage::default() };
        assert_eq!(outage.to_string(), "no server is left: each was tried before or is leaving");
    }

    /// PL-90: the text is one line of bounded length, also if a server sends a long text with line breaks.
    #[test]
    fn pl_90_the_text_of_an_outage_is_one_short_line() {
        let said = "é".repeat(10_000);
        let outage = Outage {
            down: (0..8).map(|last| down(last, &said)).collect(),
            more: 992,
            names: Some(said.as_str().into()),
            ..Outage::default()
        };
        let text = outage.to_string();
        assert!(text.len() < 3000 && text.contains("é…; 992 more; "), "{} bytes", text.len());
        let said = "127.0.0.1:9042: no\r\n2026-01-01 INFO all is well\u{2028}\x1b[2Jnow\0";
        let shown = "no  2026-01-01 INFO all is well  [2Jnow ";
        let outage = Outage { down: vec![down(1, said)], ..Outage::default() };
        assert_eq!(outage.to_string(), format!("no server is usable: 127.0.0.1:9042: {shown}"));
        assert_eq!(outage.of(&server(1)), shown);
        let outage = Outage { names: Some("a\nb".into()), discovery: Some("c\nd".into()), ..Outage::default() };
        assert_eq!(outage.to_string(), "no server is usable: a b; c d");
    }
}
