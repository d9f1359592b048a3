//! Our tables in the application's database, made by numbered migrations.
//!
//! Each migration is one transaction, its number stands in `honeyflow_meta`, and so does the number of shards: it is
//! fixed at the installation, since every row has been placed by it.

use honeyflow_runtime::Failure;
use uuid::Uuid;

use crate::{
    driver::{Error, PgConnection},
    outcome, row, session,
};

const MIGRATIONS: &[&str] = &[include_str!("schema/0001_tables.sql")];

/// DDL waits no longer for a lock: whoever comes after it would wait too.
const LOCK_WAIT_MS: u32 = 2_000;

/// What `honeyflow_meta` says of an installed store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Installed {
    pub install_id: Uuid,
    pub version: u32,
    pub shards: u16,
}

/// Number of the newest migration this binary knows.
pub fn version() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// The migrations as SQL, for `--print`.
pub fn ddl(shards: u16) -> String {
    let texts = (1..).zip(MIGRATIONS).map(|(number, migration)| transaction(number, migration, shards));
    texts.collect::<Vec<_>>().join("\n")
}

fn transaction(number: u32, migration: &str, shards: u16) -> String {
    let migration = migration.replace("{shards}", &shards.to_string());
    // A printed one is run by hand: it makes its own install id.
    let first = format!(
        "insert into honeyflow_meta(name, value) values ('install', gen_random_uuid()::text), ('shards', '{shards}');\n"
    );
    let first = if number == 1 { first } else { String::new() };
    format!(
        "begin isolation level read committed;\nset local lock_timeout = {LOCK_WAIT_MS};\n{migration}\n{first}\
         insert into honeyflow_meta(name, value) values ('schema', '{number}')\n  \
         on conflict (name) do update set value = excluded.value;\ncommit;\n"
    )
}

/// What is installed; a schema newer than this binary is refused.
pub(crate) fn known(installed: Option<Installed>) -> Result<Option<Installed>, Failure> {
    match installed {
        Some(Installed { version: found, .. }) if found > version() => Err(Failure::fatal(
            "schema-too-new",
            format!("the tables have version {found}, this binary knows {}; use a newer honeyflow", version()),
        )),
        installed => Ok(installed),
    }
}

pub(crate) async fn read(connection: &mut PgConnection) -> Result<Option<Installed>, Error> {
    let there = "select to_regclass('honeyflow_meta') is not null";
    let answers = session::run(connection, there.to_owned()).await?;
    let there = answers.first().and_then(|rows| rows.first()).map(|row| row::text(row, 0)).transpose()?.flatten();
    if there != Some("t") {
        return Ok(None);
    }
    let answers = session::run(connection, "select name, value from honeyflow_meta".to_owned()).await?;
    let mut values = std::collections::BTreeMap::new();
    for row in answers.iter().flatten() {
        if let (Some(name), Some(value)) = (row::text(row, 0)?, row::text(row, 1)?) {
            values.insert(name.to_owned(), value.to_owned());
        }
    }
    let value = |name: &str| values.get(name).map(String::as_str).unwrap_or_default();
    let Ok(version) = value("schema").parse() else { return Ok(None) };
    let (install_id, shards) = (value("install").parse(), value("shards").parse());
    Ok(Some(Installed { install_id: install_id.unwrap_or(Uuid::nil()), version, shards: shards.unwrap_or(1) }))
}

/// One migration; without effect if someone else was first.
pub(crate) async fn apply(connection: &mut PgConnection, from: u32, shards: u16) -> Result<(), Error> {
    let number = from + 1;
    let Some(migration) = usize::try_from(from).ok().and_then(|from| MIGRATIONS.get(from)) else { return Ok(()) };
    match session::run(connection, transaction(number, migration, shards)).await {
        Ok(_) => Ok(()),
        // Made at the same time by another node: tables and types have unique names.
        Err(error) if matches!(outcome::state(&error), Some("42P07" | "23505" | "42710" | "42723")) => {
            session::run(connection, "rollback".to_owned()).await?;
            match read(connection).await? {
                Some(installed) if installed.version >= number => Ok(()),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}
