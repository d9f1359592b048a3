//! The hive's tables and their numbered migrations.
//!
//! The server commits before and after every statement that creates a table. So each statement can be repeated, and two
//! nodes may run the same migration at once.

use honeyflow_runtime::Failure;

use crate::{
    codes,
    message::Message,
    outcome::{self, Answer, Stop},
    row,
    server::Flavour,
    session::{PLAIN, Session},
};

/// Hive time by the server's clock at the start of the statement: milliseconds since 2020, independent of the time
/// zone.
pub(crate) const HIVE_MS: &str = "timestampdiff(microsecond, '2020-01-01', utc_timestamp(6)) div 1000";

/// The longest name of a hive, node, lease or limit.
pub(crate) const NAME_CHARS_MAX: usize = 191;
pub(crate) const CAUSE_CHARS_MAX: usize = 500;

/// [`migrations`] replaces `NAME`, `CAUSE`, `LONG`, `ID`, `KEY` and `TABLE`.
const MIGRATIONS: [&[&str]; 1] = [&[
    "create table if not exists hive_node (
  hive       NAME not null,
  id         ID not null,
  name       NAME not null,
  beat       bigint not null,
  beat_ms    bigint not null,
  ttl_ms     bigint not null,
  expires_ms bigint not null,
  engaged_ms bigint not null default 0,
  ready      smallint not null default 0,
  eligible   smallint not null default 0,
  warm       LONG not null,
  meta       LONG not null,
  primary key (hive, id),
  key hive_node_expires (hive, expires_ms, id)
) TABLE",
    "create table if not exists hive_lease (
  hive     NAME not null,
  name     NAME not null,
  epoch    bigint not null,
  holder   ID,
  heir     ID,
  since_ms bigint not null,
  cause    CAUSE not null,
  primary key (hive, name),
  key hive_lease_heir (hive, heir)
) TABLE",
    "create table if not exists hive_view (
  hive       NAME not null primary key,
  origin     ID not null,
  lineage    NAME,
  lineage_ms bigint not null default 0,
  max_ttl_ms bigint not null default 0,
  hold       NAME,
  version    bigint not null default 0,
  limits     bigint not null default 0,
  alive      bigint not null default 0,
  ready      bigint not null default 0,
  engaged    bigint not null default 0,
  epoch      bigint not null default 0,
  counted_ms bigint not null default 0
) TABLE",
    "create table if not exists hive_event (
  hive    NAME not null,
  version bigint not null,
  at_ms   bigint not null,
  kind    NAME not null,
  node    ID,
  lease   NAME,
  epoch   bigint,
  cause   CAUSE not null,
  primary key (hive, version)
) TABLE",
    "create table if not exists hive_limit (
  hive         NAME not null,
  name         NAME not null,
  limit_key    KEY not null comment '32 digits; empty: the definition; next: the one to come',
  version      bigint not null,
  rate_u       bigint not null,
  period_ms    bigint not null,
  burst_u      bigint not null,
  effective_ms bigint not null comment 'since when a definition is in force; of a bucket, when its window ends',
  pool_u       bigint not null default 0,
  pool_ms      bigint not null default 0,
  issued_u     bigint not null default 0,
  slot         bigint not null default 0 comment 'the present second; what is booked of it and of the next',
  booked_u     bigint not null default 0,
  next_u       bigint not null default 0,
  level_u      bigint not null default 0,
  asked_u      bigint not null default 0,
  weight       bigint not null default 0,
  cut_weight   bigint not null default 0,
  primary key (hive, name, limit_key)
) TABLE",
    "create table if not exists hive_share (
  hive      NAME not null,
  name      NAME not null,
  limit_key KEY not null,
  node      ID not null,
  has_u     bigint not null default 0,
  until_ms  bigint not null default 0,
  seq       bigint not null default 0,
  wants_u   bigint not null default 0,
  weight    bigint not null default 1,
  primary key (hive, name, limit_key, node),
  key hive_share_node (hive, node)
) TABLE",
]];

const META: &str = "create table if not exists hive_meta (name NAME not null primary key, value NAME not null) TABLE";

/// The names of all tables, in the order in which they are created.
pub const TABLES: [&str; 7] =
    ["hive_meta", "hive_node", "hive_lease", "hive_view", "hive_event", "hive_limit", "hive_share"];

pub(crate) fn version() -> usize {
    MIGRATIONS.len()
}

/// All statements for a fresh database, for an administrator who creates the tables by hand.
pub fn ddl(flavour: Flavour) -> String {
    let mut statements = vec![expand_types(META, flavour)];
    statements.extend(migrations(flavour, 0));
    statements.push(record());
    statements.iter().map(|statement| format!("{statement};\n")).collect()
}

fn migrations(flavour: Flavour, from: usize) -> impl Iterator<Item = String> {
    MIGRATIONS.iter().skip(from).flat_map(|statements| statements.iter()).map(move |text| expand_types(text, flavour))
}

fn record() -> String {
    let version = version();
    format!(
        "insert into hive_meta(name, value) values ('schema', '{version}') on duplicate key update value = '{version}'"
    )
}

fn expand_types(text: &str, flavour: Flavour) -> String {
    let collation = flavour.collation();
    let words = [
        (" NAME", format!(" varchar({NAME_CHARS_MAX}) character set utf8mb4 collate {collation}")),
        (" CAUSE", format!(" varchar({CAUSE_CHARS_MAX}) character set utf8mb4 collate {collation}")),
        (" LONG", format!(" mediumtext character set utf8mb4 collate {collation}")),
        (" ID", " char(36) character set ascii collate ascii_bin".to_owned()),
        (" KEY", " varchar(32) character set ascii collate ascii_bin".to_owned()),
        (" TABLE", " engine = InnoDB row_format = dynamic".to_owned()),
    ];
    words.into_iter().fold(text.to_owned(), |text, (word, meaning)| text.replace(word, &meaning))
}

/// Refuses tables of a newer version, because their columns may have another meaning.
pub(crate) async fn check(session: &mut Session) -> Answer<()> {
    let mut message = Message::default();
    message.add(PLAIN);
    let installed = message.add("select value from hive_meta where name = 'schema'");
    let told = match session.send(message).await {
        Err(Stop::Sql(error)) if outcome::is_schema_missing(&error) => return Ok(()),
        told => told?,
    };
    match told.first(installed).map(|row| row::unsigned(row, 0)).transpose()? {
        Some(installed) if installed > version() as u64 => {
            let known = version();
            let said = format!(
                "the hive's tables have version {installed}, this program knows up to {known}; use a newer one"
            );
            Err(Failure::fatal(codes::SCHEMA_TOO_NEW, said).into())
        }
        installed => {
            session.outdated = installed.is_some_and(|installed| installed < version() as u64);
            Ok(())
        }
    }
}

/// Applies the missing migrations.
pub(crate) async fn migrate(session: &mut Session) -> Answer<()> {
    let flavour = session.flavour();
    let mut message = Message::default();
    message.add(PLAIN);
    message.add(expand_types(META, flavour));
    let installed = message.add("select value from hive_meta where name = 'schema'");
    let told = session.send(message).await?;
    let from = told
        .first(installed)
        .map(|row| row::required(row, 0))
        .transpose()?
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let mut message = Message::default();
    message.add(PLAIN);
    // If a table was dropped though the version is current, all migrations run again and create it.
    for statement in migrations(flavour, if from < version() { from } else { 0 }) {
        message.add(statement);
    }
    if from < version() {
        message.add(record());
    }
    session.send(message).await?;
    session.outdated = false;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hv_5_every_table_is_durable_and_compares_bytes() {
        for (flavour, collation) in [(Flavour::Mysql, "utf8mb4_0900_bin"), (Flavour::Mariadb, "utf8mb4_nopad_bin")] {
            let ddl = ddl(flavour);
            let made: Vec<&str> = ddl
                .split("create table if not exists ")
                .skip(1)
                .filter_map(|rest| rest.split_whitespace().next())
                .collect();
            assert_eq!(made, TABLES);
            assert_eq!(ddl.matches("engine = InnoDB").count(), TABLES.len());
            for word in [" NAME", " CAUSE", " LONG", " ID", " KEY", " TABLE"] {
                assert!(!ddl.contains(word), "{word} in {ddl}");
            }
            assert!(ddl.contains(collation));
        }
    }
}
