//! The hive's own tables and their numbered migrations.

use rusqlite::{Connection, OptionalExtension};

/// Hive time by the database's clock: milliseconds since 2020.
pub(crate) const HIVE_MS: &str = "cast(round((julianday('now') - 2458849.5) * 86400000.0) as integer)";

const MIGRATIONS: &[&str] = &["
create table hive_node (
  hive       text not null,
  id         text not null,
  name       text not null,
  beat       bigint not null,
  beat_ms    bigint not null,
  ttl_ms     bigint not null,
  expires_ms bigint not null,
  engaged_ms bigint not null default 0,
  ready      smallint not null default 0,
  eligible   smallint not null default 0,
  warm       text not null default '[]',
  meta       text not null,
  primary key (hive, id)
) without rowid;
-- Rows are never deleted: an epoch outlives its holder.
create table hive_lease (
  hive     text not null,
  name     text not null,
  epoch    bigint not null,
  holder   text,
  heir     text,
  since_ms bigint not null,
  cause    text not null,
  primary key (hive, name)
) without rowid;
"];

pub(crate) fn exists(connection: &Connection) -> rusqlite::Result<bool> {
    connection.prepare_cached("select 1 from sqlite_master where type = 'table' and name = 'hive_lease'")?.exists([])
}

/// Within the transaction of whoever needs the tables.
pub(crate) fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .execute_batch("create table if not exists hive_meta (name text not null primary key, value text not null)")?;
    let from: Option<String> =
        connection.query_row("select value from hive_meta where name = 'schema'", [], |row| row.get(0)).optional()?;
    let from: usize = from.and_then(|text| text.parse().ok()).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(from) {
        connection.execute_batch(migration)?;
    }
    if from < MIGRATIONS.len() {
        connection.execute(
            "insert or replace into hive_meta(name, value) values ('schema', ?1)",
            [MIGRATIONS.len().to_string()],
        )?;
    }
    Ok(())
}

/// Every table that a migration makes.
pub(crate) fn tables() -> impl Iterator<Item = &'static str> {
    let made = MIGRATIONS.iter().flat_map(|migration| migration.split("create table ").skip(1));
    made.filter_map(|rest| rest.split_whitespace().next()).chain(["hive_meta"])
}
