//! The hive's own tables and their numbered migrations.
//!
//! The server commits around every statement that makes a table, so each of them may be repeated: two nodes that come
//! first do the same.

use honeyflow_runtime::Failure;

use crate::{
    message::Message,
    outcome::{self, Answer, Stop},
    row,
    server::Flavour,
    session::{PLAIN, Session},
};

/// Hive time by the server's clock, as of the beginning of the statement: milliseconds since 2020, in no time zone.
pub(crate) const HIVE_MS: &str = "timestampdiff(microsecond, '2020-01-01', utc_timestamp(6)) div 1000";

/// Of hives, nodes, leases and limits.
pub(crate) const NAME_CHARS_MAX: usize = 191;
pub(crate) const CAUSE_CHARS_MAX: usize = 500;

/// `NAME`, `CAUSE`, `LONG`, `ID`, `KEY` and `TABLE` are written out by [`migrations`].
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

/// In the order in which they are made.
pub const TABLES: [&str; 7] =
    ["hive_meta", "hive_node", "hive_lease", "hive_view", "hive_event", "hive_limit", "hive_share"];

pub(crate) fn version() -> usize {
    MIGRATIONS.len()
}

/// All that has to be made on a fresh database, for whoever makes it by hand.
pub fn ddl(flavour: Flavour) -> String {
    let mut statements = vec![written_out(META, flavour)];
    statements.extend(migrations(flavour, 0));
    statements.push(record());
    statements.iter().map(|statement| format!("{statement};\n")).collect()
}

fn migrations(flavour: Flavour, from: usize) -> impl Iterator<Item = String> {
    MIGRATIONS.iter().skip(from).flat_map(|statements| statements.iter()).map(move |text| written_out(text, flavour))
}

fn record() -> String {
    let version = version();
    format!(
        "insert into hive_meta(name, value) values ('schema', '{version}') on duplicate key update value = '{version}'"
    )
}

fn written_out(text: &str, flavour: Flavour) -> String {
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

/// Tables of a newer version may mean something else.
pub(crate) async fn check(session: &mut Session) -> Answer<()> {
    let mut message = Message::default();
    message.add(PLAIN);
    let installed = message.add("select value from hive_meta where name = 'schema'");
    let told = match session.tell(message).await {
        Err(Stop::Sql(error)) if outcome::is_unmade(&error) => return Ok(()),
        told => told?,
    };
    match told.first(installed).map(|row| row::unsigned(row, 0)).transpose()? {
        Some(installed) if installed > version() as u64 => {
            let known = version();
            let said = format!(
                "the hive's tables are of version {installed}, this program knows up to {known}: use a newer one"
            );
            Err(Failure::fatal("schema-too-new", said).into())
        }
        installed => {
            session.outdated = installed.is_some_and(|installed| installed < version() as u64);
            Ok(())
        }
    }
}

/// Makes what is missing.
pub(crate) async fn migrate(session: &mut Session) -> Answer<()> {
    let flavour = session.flavour();
    let mut message = Message::default();
    message.add(PLAIN);
    message.add(written_out(META, flavour));
    let installed = message.add("select value from hive_meta where name = 'schema'");
    let told = session.tell(message).await?;
    let from = told
        .first(installed)
        .map(|row| row::required(row, 0))
        .transpose()?
        .and_then(|text| text.parse().ok())
        .unwrap_or(0);
    let mut message = Message::default();
    message.add(PLAIN);
    // Tables that were dropped under a version that says otherwise are made again.
    for statement in migrations(flavour, if from < version() { from } else { 0 }) {
        message.add(statement);
    }
    if from < version() {
        message.add(record());
    }
    session.tell(message).await?;
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
