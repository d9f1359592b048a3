//! Checks the server before anything is written to it: its version, role and durability settings.

use honeyflow_runtime::Failure;

use crate::{
    codes,
    driver::{Error, PgConnection},
    row, session,
};

const VERSION_MIN: u32 = 130_000;

/// The properties of a server that decide whether Honeyflow can use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Server {
    version: u32,
    in_recovery: bool,
    settings: Vec<(&'static str, String)>,
    /// Honeyflow's tables whose rows a row-security policy may hide from the role.
    blinded: Vec<String>,
}

const DURABLE: [&str; 3] = ["fsync", "full_page_writes", "synchronous_commit"];

pub(crate) async fn inspect(connection: &mut PgConnection) -> Result<Server, Error> {
    let settings = DURABLE.map(|name| format!("current_setting('{name}')")).join(", ");
    let text = format!(
        "select current_setting('server_version_num'), pg_is_in_recovery(), {settings};
         select relname from pg_class where oid = any (array[to_regclass('honeyflow_outbox'),
           to_regclass('honeyflow_checkpoint'), to_regclass('honeyflow_failure'), to_regclass('honeyflow_parked'),
           to_regclass('honeyflow_dedupe'), to_regclass('hive_lease')]::oid[]) and row_security_active(oid) order by 1"
    );
    let answers = session::run(connection, text).await?;
    let Some(row) = answers.first().and_then(|rows| rows.first()) else { return Err(Error::RowNotFound) };
    let setting = |(n, name): (usize, &'static str)| -> Result<(&'static str, String), Error> {
        Ok((name, row::text(row, n + 2)?.unwrap_or_default().to_owned()))
    };
    let blinded = answers.get(1).into_iter().flatten();
    Ok(Server {
        version: row::number(row, 0)?,
        in_recovery: row::text(row, 1)? == Some("t"),
        settings: DURABLE.into_iter().enumerate().map(setting).collect::<Result<_, _>>()?,
        blinded: blinded
            .map(|row| Ok(row::text(row, 0)?.unwrap_or_default().to_owned()))
            .collect::<Result<_, Error>>()?,
    })
}

impl Server {
    /// Returns a failure if events would not be safe on this server.
    pub fn judge(&self) -> Result<(), Failure> {
        if self.version < VERSION_MIN {
            let version = self.version / 10_000;
            return Err(Failure::fatal(
                codes::SERVER_TOO_OLD,
                format!("the server is PostgreSQL {version}; it must be 13 or newer, upgrade it"),
            ));
        }
        if self.in_recovery {
            return Err(Failure::retry(
                codes::READ_ONLY,
                "the server is a standby and only reads; give the address of the primary, or promote it",
            ));
        }
        if let Some((name, _)) = self.settings.iter().find(|(_, value)| value == "off") {
            return Err(Failure::fatal(
                codes::NOT_DURABLE,
                format!("the server runs with {name} = off: {}", remedy(name)),
            ));
        }
        if let Some(table) = self.blinded.first() {
            return Err(Failure::fatal(
                codes::ROW_SECURITY,
                format!(
                    "row security may hide rows of {table} from this role, and a hidden row looks deleted; make the role \
                     the table's owner, or `alter role … bypassrls`"
                ),
            ));
        }
        Ok(())
    }
}

fn remedy(setting: &str) -> &'static str {
    match setting {
        "synchronous_commit" => {
            "a crash may lose acknowledged events; run `alter role … set synchronous_commit = on` for the role in the address"
        }
        _ => "a crash of the machine may destroy the database; set it to on in postgresql.conf and reload",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rl_20_a_server_that_may_lose_what_it_has_committed_is_refused() {
        let on = |name| (name, "on".to_owned());
        let good =
            Server { version: 150_004, in_recovery: false, settings: DURABLE.map(on).to_vec(), blinded: Vec::new() };
        assert_eq!(good.judge(), Ok(()));
        for name in DURABLE {
            let mut bad = good.clone();
            bad.settings
                .iter_mut()
                .filter(|(setting, _)| *setting == name)
                .for_each(|(_, value)| *value = "off".into());
            let failure = bad.judge().unwrap_err();
            assert_eq!(failure.code, "not-durable");
            assert!(failure.message.contains(name), "{failure}");
        }
        let remote = Server { settings: vec![("synchronous_commit", "remote_apply".into())], ..good.clone() };
        assert_eq!(remote.judge(), Ok(()));
        assert_eq!(Server { version: 120_000, ..good.clone() }.judge().unwrap_err().code, "server-too-old");
        assert_eq!(Server { in_recovery: true, ..good.clone() }.judge().unwrap_err().code, "read-only");
        let blinded = Server { blinded: vec!["honeyflow_outbox".into()], ..good };
        assert_eq!(blinded.judge().unwrap_err().code, "row-security");
    }
}
