//! The hive's tables and their numbered migrations. Each migration is one transaction, which writes its number to
//! `hive_meta`.

use crate::{
    driver::{Error, PgConnection},
    outcome, session,
};

const MIGRATIONS: &[&str] = &[include_str!("schema/0001_tables.sql")];

/// How long DDL waits for a lock: all later transactions on the table would wait behind it.
const LOCK_WAIT_MS: u32 = 2_000;

/// Number of the newest migration that this program knows.
pub fn version() -> usize {
    MIGRATIONS.len()
}

/// The migrations as SQL, for administrators who create tables themselves.
pub fn ddl() -> String {
    (1..).zip(MIGRATIONS).map(|(number, migration)| transaction(number, migration)).collect()
}

/// The names of all tables that the migrations create.
pub fn tables() -> impl Iterator<Item = &'static str> {
    let made = MIGRATIONS.iter().flat_map(|migration| migration.split("create table ").skip(1));
    made.filter_map(|rest| rest.split_whitespace().next()).chain(["hive_meta"])
}

fn transaction(number: usize, migration: &str) -> String {
    format!(
        "begin isolation level read committed;\nset local lock_timeout = {LOCK_WAIT_MS};\n\
         create table if not exists hive_meta (name text collate \"C\" not null primary key, value text not null);\n\
         {migration}\
         insert into hive_meta(name, value) values ('schema', '{number}')\n  \
         on conflict (name) do update set value = excluded.value;\ncommit;\n"
    )
}

/// Applies the missing migrations. Does nothing if other nodes have applied them first.
pub(crate) async fn migrate(connection: &mut PgConnection) -> Result<(), Error> {
    loop {
        let from = applied_migrations(connection).await?;
        let Some(migration) = MIGRATIONS.get(from) else { return Ok(()) };
        match session::run(connection, transaction(from + 1, migration)).await {
            Ok(_) => {}
            Err(error) if outcome::is_made_by_another(&error) => {
                session::run(connection, "rollback".to_owned()).await?;
                if applied_migrations(connection).await? == from {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// How many of the migrations have been applied.
async fn applied_migrations(connection: &mut PgConnection) -> Result<usize, Error> {
    let there = "select to_regclass('hive_meta') is not null";
    let answers = session::run(connection, there.to_owned()).await?;
    let is_there = |rows: &Vec<_>| rows.first().map(|row| crate::row::Line(row).flag(0)).transpose();
    if answers.first().map(is_there).transpose()?.flatten() != Some(true) {
        return Ok(0);
    }
    let asked = "select value from hive_meta where name = 'schema'";
    let answers = session::run(connection, asked.to_owned()).await?;
    let Some(row) = answers.first().and_then(|rows| rows.first()) else { return Ok(0) };
    Ok(crate::row::Line(row).text(0)?.parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_5_the_tables_are_those_of_every_sql_backend() {
        let mut made: Vec<&str> = tables().collect();
        made.sort_unstable();
        let expected = ["event", "lease", "limit", "meta", "node", "share", "view"].map(|name| format!("hive_{name}"));
        assert_eq!(made, expected);
        assert!(!ddl().to_lowercase().contains("unlogged"), "an epoch must survive a crash");
    }
}
