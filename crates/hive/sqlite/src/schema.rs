//! The hive's tables and their numbered migrations.

use honeyflow_runtime::Failure;
use rusqlite::{Connection, OptionalExtension};

use crate::{codes, session::Answer};

/// Hive time by the database's clock: milliseconds since 2020.
pub(crate) const HIVE_MS: &str = "cast(round((julianday('now') - 2458849.5) * 86400000.0) as integer)";

const MIGRATIONS: &[&str] = &[
    "
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
",
    "
create index hive_node_expires on hive_node(hive, expires_ms, id);
create index hive_lease_heir on hive_lease(hive, heir) where heir is not null;
create table hive_view (
  hive       text not null primary key,
  origin     text not null,
  lineage    text,
  lineage_ms bigint not null default 0,
  max_ttl_ms bigint not null default 0,
  hold       text,
  version    bigint not null default 0,
  limits     bigint not null default 0,
  alive      bigint not null default 0,
  ready      bigint not null default 0,
  engaged    bigint not null default 0,
  epoch      bigint not null default 0,
  counted_ms bigint not null default 0
) without rowid;
create table hive_event (
  hive    text not null,
  version bigint not null,
  at_ms   bigint not null,
  kind    text not null,
  node    text,
  lease   text,
  epoch   bigint,
  cause   text not null,
  primary key (hive, version)
) without rowid;
-- limit_key: 32 hexadecimal digits; '' is the definition, 'next' the one to come.
-- effective_ms: since when a definition is in force; of a bucket, when its window ends.
-- slot, booked_u, next_u: the present second, and what is booked of it and of the next; the rest says who gets how much.
create table hive_limit (
  hive         text not null,
  name         text not null,
  limit_key    text not null,
  version      bigint not null,
  rate_u       bigint not null,
  period_ms    bigint not null,
  burst_u      bigint not null,
  effective_ms bigint not null,
  pool_u       bigint not null default 0,
  pool_ms      bigint not null default 0,
  issued_u     bigint not null default 0,
  slot         bigint not null default 0,
  booked_u     bigint not null default 0,
  next_u       bigint not null default 0,
  level_u      bigint not null default 0,
  asked_u      bigint not null default 0,
  weight       bigint not null default 0,
  cut_weight   bigint not null default 0,
  primary key (hive, name, limit_key)
) without rowid;
create table hive_share (
  hive      text not null,
  name      text not null,
  limit_key text not null,
  node      text not null,
  has_u     bigint not null default 0,
  until_ms  bigint not null default 0,
  seq       bigint not null default 0,
  wants_u   bigint not null default 0,
  weight    bigint not null default 1,
  primary key (hive, name, limit_key, node)
) without rowid;
create index hive_share_node on hive_share(hive, node);
",
];

/// Whether the tables exist in this program's version. Tables of an older version do not count until they are migrated.
pub(crate) fn exists(connection: &Connection) -> Answer<bool> {
    match applied_migrations(connection)? {
        made if made > MIGRATIONS.len() => {
            let known = MIGRATIONS.len();
            let said =
                format!("the hive's tables have version {made}, this program knows up to {known}; use a newer one");
            Err(Failure::fatal(codes::SCHEMA_TOO_NEW, said).into())
        }
        made => Ok(made == MIGRATIONS.len()),
    }
}

/// How many of the migrations have been applied.
fn applied_migrations(connection: &Connection) -> rusqlite::Result<usize> {
    let there = "select 1 from sqlite_master where type = 'table' and name = 'hive_meta'";
    if !connection.prepare_cached(there)?.exists([])? {
        return Ok(0);
    }
    let version: Option<String> = connection
        .prepare_cached("select value from hive_meta where name = 'schema'")?
        .query_row([], |row| row.get(0))
        .optional()?;
    Ok(version.and_then(|text| text.parse().ok()).unwrap_or(0))
}

/// Applies the missing migrations, in the transaction of the caller.
pub(crate) fn migrate(connection: &Connection) -> rusqlite::Result<()> {
    connection
        .execute_batch("create table if not exists hive_meta (name text not null primary key, value text not null)")?;
    let from = applied_migrations(connection)?;
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

/// The names of all tables that the migrations create.
pub(crate) fn tables() -> impl Iterator<Item = &'static str> {
    let made = MIGRATIONS.iter().flat_map(|migration| migration.split("create table ").skip(1));
    made.filter_map(|rest| rest.split_whitespace().next()).chain(["hive_meta"])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HV-5
    #[test]
    fn hv_5_what_an_older_version_has_made_is_brought_up_to_date() {
        let connection = Connection::open_in_memory().unwrap();
        assert!(matches!(exists(&connection), Ok(false)));
        for older in 0..MIGRATIONS.len() {
            let connection = Connection::open_in_memory().unwrap();
            connection
                .execute_batch("create table hive_meta (name text not null primary key, value text not null)")
                .unwrap();
            MIGRATIONS[..older].iter().for_each(|migration| connection.execute_batch(migration).unwrap());
            connection.execute("insert into hive_meta values ('schema', ?1)", [older.to_string()]).unwrap();
            assert!(matches!(exists(&connection), Ok(false)), "{older}");
            migrate(&connection).unwrap();
            assert!(matches!(exists(&connection), Ok(true)), "{older}");
        }
        // The last migration may create no table at all.
        migrate(&connection).unwrap();
        connection.execute("update hive_meta set value = ?1", [(MIGRATIONS.len() - 1).to_string()]).unwrap();
        assert!(matches!(exists(&connection), Ok(false)), "judged by its number, not by a table");
    }
}
