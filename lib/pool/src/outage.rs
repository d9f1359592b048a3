//! Why no server can be used: each one that is down with what its last connect came to, and what kept others from being
//! found. Part of every error that says that there was none; bounded, since thousands may fail at the same moment.

use std::{fmt, sync::Arc};

use crate::{error::Kind, server::Server};

/// What went wrong with a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trouble {
    pub kind: Kind,
    pub why: Arc<str>,
}

/// A server without a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Down {
    pub server: Server,
    /// None: the first connect has not ended yet.
    pub trouble: Option<Trouble>,
}

#[derive(Clone, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct Outage {
    /// At most [`Outage::NAMED`] of them.
    pub down: Vec<Down>,
    /// How many more are down.
    pub more: usize,
    /// How many are there and not used, since they are elsewhere and the settings allow no remote ones.
    pub remote: usize,
    /// How many there are in all.
    pub known: usize,
    /// Which configured names lead nowhere.
    pub names: Option<Arc<str>>,
    /// Why servers could not be asked who else is there.
    pub discovery: Option<Arc<str>>,
}

/// The longest that one server's trouble is told at, in bytes.
const TEXT_MAX: usize = 240;

impl Outage {
    pub const NAMED: usize = 8;

    pub(crate) fn at(server: &Server, kind: Kind, why: impl Into<Arc<str>>) -> Outage {
        let trouble = Some(Trouble { kind, why: why.into() });
        Outage { down: vec![Down { server: server.clone(), trouble }], ..Outage::default() }
    }

    pub fn login_refused(&self) -> bool {
        self.down.iter().filter_map(|down| down.trouble.as_ref()).any(|trouble| trouble.kind == Kind::Login)
    }

    /// What is wrong with this one, for a text that has named it already.
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
        for Down { server, trouble } in &self.down {
            said.push(about(server, &brief(trouble.as_ref().map_or("no connection yet", |trouble| &trouble.why))));
        }
        if self.more > 0 {
            said.push(format!("{} more", self.more));
        }
        if self.remote > 0 {
            said.push(format!("{} elsewhere, which the settings keep out (allow-remote)", self.remote));
        }
        said.extend(self.names.as_deref().map(brief));
        // Whoever looks for servers fails as those do that connect to them: said once.
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

/// What is said about a server, with its name, unless the text has that already.
pub(crate) fn about(server: &Server, said: &str) -> String {
    let name = server.to_string();
    if said.contains(&name) { said.to_owned() } else { format!("{name}: {said}") }
}

/// In one line, no longer than a log can bear.
pub(crate) fn brief(text: &str) -> String {
    let kept = &text[..text.floor_char_boundary(TEXT_MAX)];
    let cut = if kept.len() < text.len() { "…" } else { "" };
    one_line(kept) + cut
}

/// Without what would begin another line or command a terminal.
pub(crate) fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(last: u8) -> Server {
        Server::at(([127, 0, 0, last], 9042).into())
    }

    fn down(last: u8, why: &str) -> Down {
        Down { server: server(last), trouble: Some(Trouble { kind: Kind::Connect, why: why.into() }) }
    }

    /// PL-90
    #[test]
    fn pl_90_an_outage_names_each_server_and_its_cause_once() {
        let mut outage = Outage {
            down: vec![down(1, "nobody listens"), down(2, "127.0.0.2:9042 refused the login"), down(3, "silent")],
            discovery: Some("127.0.0.1:9042: nobody listens".into()),
            ..Outage::default()
        };
        outage.down[2].trouble = None;
        assert_eq!(
            outage.to_string(),
            "no server is usable: 127.0.0.1:9042: nobody listens; 127.0.0.2:9042 refused the login; \
             127.0.0.3:9042: no connection yet"
        );
        assert_eq!(outage.of(&server(2)), "refused the login");
        outage = Outage { names: Some("db cannot be looked up: no".into()), remote: 2, ..Outage::default() };
        assert_eq!(
            outage.to_string(),
            "no server is usable: 2 elsewhere, which the settings keep out (allow-remote); db cannot be looked up: no"
        );
        assert_eq!(Outage::default().to_string(), "no server is known yet");
        outage = Outage { known: 2, ..Outage::default() };
        assert_eq!(outage.to_string(), "no server is left: each was tried before or is leaving");
    }

    /// PL-90: one line, of a length that a log can bear, whatever servers say.
    #[test]
    fn pl_90_an_outage_is_told_briefly() {
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
        let told = "no  2026-01-01 INFO all is well  [2Jnow ";
        let outage = Outage { down: vec![down(1, said)], ..Outage::default() };
        assert_eq!(outage.to_string(), format!("no server is usable: 127.0.0.1:9042: {told}"));
        assert_eq!(outage.of(&server(1)), told);
        let outage = Outage { names: Some("a\nb".into()), discovery: Some("c\nd".into()), ..Outage::default() };
        assert_eq!(outage.to_string(), "no server is usable: a b; c d");
    }
}
