//! Honeyflow's tables in the application's database, created by numbered migrations.
//!
//! Each migration is one transaction; `honeyflow_meta` stores its number. The application's own SQLite may be as old as
//! 3.35 and must be able to insert into these tables, so they use nothing newer.

use honeyflow_runtime::Failure;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use uuid::Uuid;

use crate::{codes, outcome};

/// The clock of the database: milliseconds since 1970.
pub(crate) const NOW_MS: &str = "cast(round((julianday('now') - 2440587.5) * 86400000.0) as integer)";

/// SQLite has one writer, so there is one shard.
pub const SHARDS: u16 = 1;

const MIGRATIONS: &[&str] = &[include_str!("schema/0001_tables.sql"), include_str!("schema/0002_change.sql")];

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
pub fn ddl() -> String {
    MIGRATIONS.concat()
}

/// Returns the installation; refuses a schema that is newer than this binary.
pub fn installed(connection: &Connection) -> Result<Option<Installation>, Failure> {
    let installed = read(connection).map_err(|error| outcome::failure(&error, "read honeyflow_meta"))?;
    if let Some(Installation { version: found, .. }) = &installed
        && *found > version()
    {
        return Err(Failure::fatal(
            codes::SCHEMA_TOO_NEW,
            format!("the tables have version {found}, this binary knows {}; use a newer honeyflow", version()),
        ));
    }
    Ok(installed)
}

/// Migrates the tables to the newest version. It has no effect if they already are.
pub fn migrate(connection: &mut Connection) -> Result<Installation, Failure> {
    let from = installed(connection)?.map_or(0, |installed| installed.version);
    for (number, migration) in (1..).zip(MIGRATIONS).skip(usize::try_from(from).unwrap_or(usize::MAX)) {
        apply(connection, number, migration)
            .map_err(|error| outcome::failure(&error, format_args!("migrate the tables to version {number}")))?;
    }
    installed(connection)?.ok_or_else(|| Failure::retry(codes::STORE_ERROR, "the tables disappeared after a migration"))
}

fn apply(connection: &mut Connection, number: u32, migration: &str) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another node may have been first while this one waited for the lock.
    if read(&transaction)?.map_or(0, |installed| installed.version) >= number {
        return Ok(());
    }
    transaction.execute_batch(migration)?;
    let mut put = transaction.prepare("insert or replace into honeyflow_meta(name, value) values (?1, ?2)")?;
    if number == 1 {
        put.execute(params!["install", Uuid::new_v4().to_string()])?;
        put.execute(params!["shards", SHARDS.to_string()])?;
    }
    put.execute(params!["schema", number.to_string()])?;
    drop(put);
    transaction.commit()
}

fn read(connection: &Connection) -> rusqlite::Result<Option<Installation>> {
    let exists = connection
        .prepare("select 1 from sqlite_master where type = 'table' and name = 'honeyflow_meta'")?
        .exists([])?;
    if !exists {
        return Ok(None);
    }
    let value = |name: &str| {
        connection
            .query_row("select value from honeyflow_meta where name = ?1", [name], |row| row.get::<_, String>(0))
            .optional()
    };
    let Some(version) = value("schema")?.and_then(|text| text.parse().ok()) else { return Ok(None) };
    let install_id = value("install")?.and_then(|text| text.parse().ok()).unwrap_or(Uuid::nil());
    let shards = value("shards")?.and_then(|text| text.parse().ok()).unwrap_or(SHARDS);
    Ok(Some(Installation { install_id, version, shards }))
}
