//! Checks that the server is suitable for a hive, and reads its lineage.

use honeyflow_runtime::Failure;

use crate::{
    codes,
    message::Message,
    outcome::Answer,
    row,
    session::{PLAIN, Session},
};

/// The kind of server. The two differ in how they identify themselves, and in the names of collations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flavour {
    Mysql,
    Mariadb,
}

impl Flavour {
    /// An SQL expression for the lineage of the server. MariaDB has no single identity variable.
    pub(crate) fn lineage(self) -> &'static str {
        match self {
            Flavour::Mysql => "@@global.server_uuid",
            Flavour::Mariadb => "concat(@@global.hostname, ':', @@global.port, ':', @@global.server_id)",
        }
    }

    /// The collation that compares bytes, including trailing spaces.
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

/// What a server reports about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    pub flavour: Flavour,
    version: (u32, u32, u32),
    /// Why other servers accept writes too. They would not wait for our row locks.
    writers: Option<String>,
    durable: bool,
}

pub(crate) async fn read_server(session: &mut Session) -> Answer<Server> {
    let mut message = Message::default();
    message.add(PLAIN);
    let version = message.add("select version()");
    let settings = message.add(
        "show variables where variable_name in
         ('wsrep_on', 'group_replication_single_primary_mode', 'innodb_flush_log_at_trx_commit')",
    );
    let cluster = message.add("show status like 'wsrep_cluster_size'");
    let told = session.send(message).await?;
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
    /// Refuses a server on which leases are not safe. With `one_writer`, the operator confirms that all nodes use only
    /// this server.
    pub fn judge(&self, one_writer: bool) -> Result<(), Failure> {
        let Server { flavour, version, writers, .. } = self;
        if *version < flavour.oldest() {
            let (name, (major, minor, patch)) = (flavour.name(), *version);
            let (a, b, c) = flavour.oldest();
            let said =
                format!("the server is {name} {major}.{minor}.{patch}; it must be {a}.{b}.{c} or newer, upgrade it");
            return Err(Failure::fatal(codes::SERVER_TOO_OLD, said));
        }
        if !self.durable {
            let said = "the server may lose committed leases in a crash: it runs with innodb_flush_log_at_trx_commit other \
                        than 1; set it to 1, also in the server's configuration";
            return Err(Failure::fatal(codes::NOT_DURABLE, said));
        }
        match writers {
            Some(why) if !one_writer => Err(Failure::fatal(
                codes::SEVERAL_WRITERS,
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

    /// HV-51: a server that can lose a transfer of a lease is not safe.
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
