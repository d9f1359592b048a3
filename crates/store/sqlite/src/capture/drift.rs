//! Drift: how the application's migrations have changed our triggers. Frameworks rebuild tables (create, copy, drop,
//! rename) and so drop triggers silently.
//!
//! `honeyflow_meta` stores the schema version at which the triggers were last complete, and a hash of the tables that
//! were to be captured then. While both are unchanged there is nothing to check, even after a time without any node.

use honeyflow_event::document;
use honeyflow_runtime::Failure;
use honeyflow_store::{
    CaptureTable,
    capture::{Drift, DriftKind, DriftReport},
};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};

use super::{install::generate, trigger::NAME_HEAD};
use crate::{catalogue, outcome};

const SCHEMA_SEEN: &str = "capture-schema-version";
const WANTED_SEEN: &str = "capture-wanted";

/// Compares the installed triggers with the wanted ones. It costs two small reads while nothing has changed.
pub fn check_drift(connection: &Connection, wanted: &[CaptureTable]) -> Result<DriftReport, Failure> {
    let failed = |error| outcome::failure(&error, "look for changed triggers");
    let schema_version = schema_version(connection).map_err(failed)?;
    let seen = seen(connection).map_err(failed)?;
    let schema_unchanged = seen.is_some_and(|(version, _)| version == schema_version);
    if seen == Some((schema_version, fingerprint(wanted))) {
        return Ok(DriftReport { schema_version, schema_unchanged, ..DriftReport::default() });
    }
    let catalogue = catalogue::read(connection)?;
    let (triggers, misfits) = generate(wanted, &catalogue);
    let present = installed(connection).map_err(failed)?;
    let mut drifts = Vec::new();
    for trigger in &triggers {
        let what = match present.iter().find(|found| found.name == trigger.name) {
            None => DriftKind::Missing,
            Some(found) if found.sql != trigger.sql => DriftKind::Changed,
            Some(_) => continue,
        };
        drifts.push(Drift { table: table_of(&trigger.name), trigger: trigger.name.clone(), what });
    }
    for found in present {
        // The triggers of a table that does not fit now stay: they still capture what they can.
        let misfit = misfits.iter().any(|misfit| misfit.table() == table_of(&found.name));
        if !misfit && !triggers.iter().any(|trigger| trigger.name == found.name) {
            drifts.push(Drift { table: table_of(&found.name), trigger: found.name, what: DriftKind::Superfluous });
        }
    }
    Ok(DriftReport { schema_version, schema_unchanged, drifts, misfits })
}

/// Returns only the list of drifts.
pub fn drift(connection: &Connection, wanted: &[CaptureTable]) -> Result<Vec<Drift>, Failure> {
    Ok(check_drift(connection, wanted)?.drifts)
}

pub(super) struct InstalledTrigger {
    pub name: String,
    pub sql: String,
}

/// Returns our triggers, on any table.
pub(super) fn installed(connection: &Connection) -> rusqlite::Result<Vec<InstalledTrigger>> {
    connection
        .prepare("select name, sql from sqlite_master where type = 'trigger' and substr(name, 1, length(?1)) = ?1 order by rowid")?
        .query_map([NAME_HEAD], |row| Ok(InstalledTrigger { name: row.get(0)?, sql: row.get(1)? }))?
        .collect()
}

/// Returns the hash of the tables to capture: the triggers follow from them and the schema.
pub(super) fn fingerprint(wanted: &[CaptureTable]) -> u64 {
    let texts = wanted.iter().map(|capture| format!("{capture:?}").into()).collect();
    // A new release may generate other triggers for the same tables.
    document::hash(&serde_json::json!([env!("CARGO_PKG_VERSION"), serde_json::Value::Array(texts)]))
}

/// Stores that the triggers are complete at this schema version, or (none) that this is unknown.
pub(super) fn note(connection: &Connection, fingerprint: Option<u64>) -> rusqlite::Result<()> {
    let Some(fingerprint) = fingerprint else {
        connection.execute("delete from honeyflow_meta where name in (?1, ?2)", params![SCHEMA_SEEN, WANTED_SEEN])?;
        return Ok(());
    };
    let mut put = connection.prepare("insert or replace into honeyflow_meta(name, value) values (?1, ?2)")?;
    put.execute(params![SCHEMA_SEEN, schema_version(connection)?.to_string()])?;
    put.execute(params![WANTED_SEEN, format!("{fingerprint:016x}")])?;
    Ok(())
}

/// Stores that the triggers were complete at the schema version at which a check found no drift, so that a later change
/// of the configuration alone is told from one of the schema. Changes nothing if the schema has moved on since.
pub fn note_complete(connection: &mut Connection, wanted: &[CaptureTable], checked_at: i64) -> Result<(), Failure> {
    let work = |connection: &mut Connection| -> rusqlite::Result<()> {
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if schema_version(&transaction)? == checked_at {
            note(&transaction, Some(fingerprint(wanted)))?;
        }
        transaction.commit()
    };
    work(connection).map_err(|error| outcome::failure(&error, "note that the triggers are complete"))
}

fn seen(connection: &Connection) -> rusqlite::Result<Option<(i64, u64)>> {
    let value = |name: &str| {
        connection
            .query_row("select value from honeyflow_meta where name = ?1", [name], |row| row.get::<_, String>(0))
            .optional()
    };
    let version = value(SCHEMA_SEEN)?.and_then(|text| text.parse().ok());
    let wanted = value(WANTED_SEEN)?.and_then(|text| u64::from_str_radix(&text, 16).ok());
    Ok(version.zip(wanted))
}

fn schema_version(connection: &Connection) -> rusqlite::Result<i64> {
    connection.query_row("select schema_version from pragma_schema_version", [], |row| row.get(0))
}

/// Returns the table of a trigger's name: `honeyflow: run … (book) insert` → `book`.
pub(super) fn table_of(trigger: &str) -> String {
    let rest = trigger.strip_prefix(NAME_HEAD).unwrap_or(trigger);
    rest.rsplit_once(')').map_or(rest, |(table, _)| table).to_owned()
}
