//! What the server must be like, and how it says who it is.

use honeyflow_runtime::Failure;

use crate::{
    message::Message,
    outcome::Answer,
    row,
    session::{PLAIN, Session},
};

/// The two differ in what they call themselves, and in the names of collations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    Mysql,
    Mariadb,
}

impl Flavour {
    /// An expression: the lineage of the server that evaluates it. MariaDB has no identity of its own.
    pub(crate) fn lineage(self) -> &'static str {
        match self {
            Flavour::Mysql => "@@global.server_uuid",
            Flavour::Mariadb => "concat(@@global.hostname, ':', @@global.port, ':', @@global.server_id)",
        }
    }

    /// Compares bytes, trailing spaces included.
    pub(crate) fn collation(self) -> &'static str {
        match self {
            Flavour::Mysql => "utf8mb4_0900_bin",
            Flavour::Mariadb => "utf8mb4_nopad_bin",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Flavour::Mysql => "MySQL",
            Flavour::Mariadb => "MariaDB",
        }
    }

    fn oldest(self) -> (u32, u32, u32) {
        match self {
            Flavour::Mysql => (8, 0, 17),
            Flavour::Mariadb => (10, 6, 0),
        }
    }
}

/// What a server says about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    pub flavour: Flavour,
    version: (u32, u32, u32),
    /// Others that accept writes too, and do not wait for our row locks.
    writers: Option<String>,
    durable: bool,
}

pub(crate) async fn look(session: &mut Session) -> Answer<Server> {
    let mut message = Message::default();
    message.add(PLAIN);
    let version = message.add("select version()");
    let settings = message.add(
        "show variables where variable_name in
         ('wsrep_on', 'group_replication_single_primary_mode', 'innodb_flush_log_at_trx_commit')",
    );
    let cluster = message.add("show status like 'wsrep_cluster_size'");
    let told = session.tell(message).await?;
    let version = told.first(version).map(|row| row::required(row, 0)).transpose()?.unwrap_or_default().to_owned();
    let mut pairs = Vec::new();
    for row in told.rows(settings).iter().chain(told.rows(cluster)) {
        pairs.push((row::text(row, 0)?.unwrap_or_default(), row::text(row, 1)?.unwrap_or_default()));
    }
    Ok(read(&version, &pairs))
}

fn read(version: &str, settings: &[(&str, &str)]) -> Server {
    let setting = |name: &str| settings.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let flavour = if version.to_ascii_lowercase().contains("mariadb") { Flavour::Mariadb } else { Flavour::Mysql };
    let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().unwrap_or(0));
    let version = [(); 3].map(|()| numbers.next().unwrap_or(0)).into();
    let members: u32 = setting("wsrep_cluster_size").and_then(|size| size.parse().ok()).unwrap_or(0);
    let writers = if setting("wsrep_on") == Some("ON") && members > 1 {
        Some(format!("it is one of {members} of a Galera cluster"))
    } else if setting("group_replication_single_primary_mode") == Some("OFF") {
        Some("its replication group has several primaries".to_owned())
    } else {
        None
    };
    let durable = setting("innodb_flush_log_at_trx_commit").is_none_or(|value| value == "1");
    Server { flavour, version, writers, durable }
}

impl Server {
    /// Whether leases are safe with it. `one_writer`: a person says that all nodes come to this server alone.
    pub fn judge(&self, one_writer: bool) -> Result<(), Failure> {
        let Server { flavour, version, writers, .. } = self;
        if *version < flavour.oldest() {
            let (name, (major, minor, patch)) = (flavour.name(), *version);
            let (a, b, c) = flavour.oldest();
            let said =
                format!("the server is {name} {major}.{minor}.{patch}; it must be {a}.{b}.{c} or newer, upgrade it");
            return Err(Failure::fatal("server-too-old", said));
        }
        if !self.durable {
            let said = "the server may forget in a crash who holds what: it runs with innodb_flush_log_at_trx_commit other \
                        than 1; set it to 1, also in the server's configuration";
            return Err(Failure::fatal("not-durable", said));
        }
        match writers {
            Some(why) if !one_writer => Err(Failure::fatal(
                "several-writers",
                format!(
                    "the server does not wait for the locks of others that write: {why}; send every node to one and the \
                     same server, and say so by `one-writer`"
                ),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_38_old_servers_and_several_writers_are_refused() {
        let code = |version, settings: &[(&str, &str)], one_writer| {
            read(version, settings).judge(one_writer).err().map(|failure| failure.code.into_owned())
        };
        for (version, flavour) in [
            ("8.0.36", Flavour::Mysql),
            ("9.1.0-commercial", Flavour::Mysql),
            ("10.11.19-MariaDB-0+deb12u1", Flavour::Mariadb),
            ("5.5.5-10.4.2-mariadb", Flavour::Mariadb),
        ] {
            assert_eq!(read(version, &[]).flavour, flavour, "{version}");
        }
        assert_eq!(code("8.0.36", &[], false), None);
        assert_eq!(code("10.6.0-MariaDB", &[], false), None);
        for old in ["5.7.44", "8.0.16", "10.5.29-MariaDB"] {
            assert_eq!(code(old, &[], false).as_deref(), Some("server-too-old"), "{old}");
        }
        let galera = [("wsrep_on", "ON"), ("wsrep_cluster_size", "3")];
        assert_eq!(code("10.11.2-MariaDB", &galera, false).as_deref(), Some("several-writers"));
        assert_eq!(code("10.11.2-MariaDB", &galera, true), None);
        assert_eq!(code("10.11.2-MariaDB", &[("wsrep_on", "OFF"), ("wsrep_cluster_size", "0")], false), None);
        let group = [("group_replication_single_primary_mode", "OFF")];
        assert_eq!(code("8.0.36", &group, false).as_deref(), Some("several-writers"));
    }

    /// HV-51: a change of hands that can be lost is none.
    #[test]
    fn hv_51_a_server_that_may_lose_what_it_has_committed_is_refused() {
        let judged = |value| read("8.0.36", &[("innodb_flush_log_at_trx_commit", value)]).judge(true);
        assert_eq!(judged("1"), Ok(()));
        for value in ["0", "2"] {
            let failure = judged(value).unwrap_err();
            assert_eq!(failure.code, "not-durable");
            assert!(failure.message.contains("set it to 1"), "{failure}");
        }
    }
}
