//! Honeyflow's tables in the application's database, created by numbered migrations.
//!
//! Each migration is one transaction; `honeyflow_meta` stores its number. It also stores the number of shards: that is
//! fixed at the installation, because the shard of every row was computed with it.

use honeyflow_runtime::Failure;
use uuid::Uuid;

use crate::{
    codes,
    driver::{Error, PgConnection},
    outcome, row, session,
};

const MIGRATIONS: &[&str] = &[include_str!("schema/0001_tables.sql"), include_str!("schema/0002_change.sql")];

/// The names of all tables that the migrations create.
pub(crate) fn tables() -> impl Iterator<Item = &'static str> {
    let created = MIGRATIONS.iter().flat_map(|migration| migration.split("create table ").skip(1));
    created.filter_map(|rest| rest.split_whitespace().next())
}

/// DDL waits at most this long for a lock, because statements behind it in the lock queue wait too.
const LOCK_WAIT_MS: u32 = 2_000;

/// The content of `honeyflow_meta`: the installation of a store.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Installation {
    pub install_id: Uuid,
    pub version: u32,
    pub shards: u16,
}

/// Returns the number of the newest migration that this binary knows.
pub fn version() -> u32 {
    u32::try_from(MIGRATIONS.len()).unwrap_or(u32::MAX)
}

/// Returns the migrations as SQL, for `--print`.
pub fn ddl(shards: u16) -> String {
    let texts = (1..).zip(MIGRATIONS).map(|(number, migration)| transaction(number, migration, shards));
    texts.collect::<Vec<_>>().join("\n")
}

fn transaction(number: u32, migration: &str, shards: u16) -> String {
    let migration = migration.replace("{shards}", &shards.to_string());
    // An operator executes a printed migration by hand, so the SQL itself creates the install id.
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

/// Returns the installation; refuses a schema that is newer than this binary.
pub(crate) fn refuse_newer(installed: Option<Installation>) -> Result<Option<Installation>, Failure> {
    match installed {
        Some(Installation { version: found, .. }) if found > version() => Err(Failure::fatal(
            codes::SCHEMA_TOO_NEW,
            format!("the tables have version {found}, this binary knows {}; use a newer honeyflow", version()),
        )),
        installed => Ok(installed),
    }
}

pub(crate) async fn read(connection: &mut PgConnection) -> Result<Option<Installation>, Error> {
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
    Ok(Some(Installation { install_id: install_id.unwrap_or(Uuid::nil()), version, shards: shards.unwrap_or(1) }))
}

/// Applies one migration. It has no effect if another node was first.
pub(crate) async fn apply(connection: &mut PgConnection, from: u32, shards: u16) -> Result<(), Error> {
    let number = from + 1;
    let Some(migration) = usize::try_from(from).ok().and_then(|from| MIGRATIONS.get(from)) else { return Ok(()) };
    match session::run(connection, transaction(number, migration, shards)).await {
        Ok(_) => Ok(()),
        // Another node created the tables at the same time: names of tables and types are unique.
        Err(error) if matches!(outcome::state(&error), Some("42P07" | "23505" | "42710" | "42723" | "42701")) => {
            session::run(connection, "rollback".to_owned()).await?;
            match read(connection).await? {
                Some(installed) if installed.version >= number => Ok(()),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}
