//! Installs and removes triggers. Everything happens in one transaction that holds the write lock: each statement of
//! the application runs with either the old set of triggers or the new one.

use honeyflow_runtime::Failure;
use honeyflow_store::{
    CaptureTable, Catalogue,
    capture::{Changes, Misfit},
};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{
    drift::{InstalledTrigger, fingerprint, installed, note, table_of},
    fit::fits,
    quote::identifier,
    trigger::{Trigger, triggers},
};
use crate::{catalogue, codes, outcome};

/// Makes the installed triggers equal to the wanted ones; a second call changes nothing. The outbox must exist.
pub fn install(connection: &mut Connection, wanted: &[CaptureTable]) -> Result<Changes, Failure> {
    put(connection, wanted, true)
}

/// Does the same as [`install`]: it compares the wanted triggers with the installed ones, from any release.
pub fn upgrade(connection: &mut Connection, wanted: &[CaptureTable]) -> Result<Changes, Failure> {
    put(connection, wanted, true)
}

/// Reinstalls triggers after a migration of the application: it installs the triggers that fit and reports the misfits,
/// instead of refusing everything. The tables of `created` and `replaced` had no capture for a while and must be
/// verified.
pub fn reinstall(connection: &mut Connection, wanted: &[CaptureTable]) -> Result<Changes, Failure> {
    put(connection, wanted, false)
}

/// Returns the statements of an installation, for `--print`.
pub fn plan(wanted: &[CaptureTable], catalogue: &Catalogue) -> Result<String, Failure> {
    let (triggers, misfits) = generate(wanted, catalogue);
    match misfits.into_iter().next() {
        Some(misfit) => Err(misfit.into()),
        None => Ok(triggers.iter().map(|trigger| format!("{};\n\n", trigger.sql)).collect()),
    }
}

/// Removes the triggers and Honeyflow's tables. It refuses while the outbox has events, which would be lost, unless
/// `force` is set.
pub fn uninstall(connection: &mut Connection, force: bool) -> Result<(), Failure> {
    let transaction = begin(connection)?;
    let work = || -> rusqlite::Result<Option<i64>> {
        let tables: Vec<String> = transaction
            .prepare("select name from sqlite_master where type = 'table' and name like 'honeyflow\\_%' escape '\\'")?
            .query_map([], |row| row.get(0))?
            .collect::<Result<_, _>>()?;
        if !force && tables.iter().any(|table| table == "honeyflow_outbox") {
            let left = transaction.query_row("select count(*) from honeyflow_outbox", [], |row| row.get(0))?;
            if left > 0 {
                return Ok(Some(left));
            }
        }
        for trigger in installed(&transaction)? {
            drop_trigger(&transaction, &trigger.name)?;
        }
        for table in tables {
            transaction.execute_batch(&format!("DROP TABLE {}", identifier(&table)))?;
        }
        Ok(None)
    };
    let left = work().map_err(|error| outcome::failure(&error, "uninstall the source"))?;
    if let Some(left) = left {
        return Err(Failure::reject(
            codes::OUTBOX_NOT_EMPTY,
            format!(
                "{left} events are left in the outbox; let a node finish them, or uninstall with --force and lose them"
            ),
        ));
    }
    transaction.commit().map_err(|error| outcome::failure(&error, "uninstall the source"))
}

fn put(connection: &mut Connection, wanted: &[CaptureTable], strict: bool) -> Result<Changes, Failure> {
    let transaction = begin(connection)?;
    let catalogue = catalogue::read(&transaction)?;
    let (triggers, misfits) = generate(wanted, &catalogue);
    if strict && let Some(misfit) = misfits.first() {
        return Err(misfit.clone().into());
    }
    refuse_other_encodings(&transaction, wanted)?;
    let failed = |error| outcome::failure(&error, "install triggers");
    let mut changes = exchange(&transaction, &triggers, &misfits).map_err(failed)?;
    // With a misfit, the next check must compare everything again.
    let seen = misfits.is_empty().then(|| fingerprint(wanted));
    note(&transaction, seen).map_err(failed)?;
    transaction.commit().map_err(failed)?;
    changes.misfits = misfits;
    Ok(changes)
}

fn begin(connection: &mut Connection) -> Result<Transaction<'_>, Failure> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    transaction.map_err(|error| outcome::failure(&error, "begin the installation"))
}

pub(super) fn generate(wanted: &[CaptureTable], catalogue: &Catalogue) -> (Vec<Trigger>, Vec<Misfit>) {
    let mut made = Vec::new();
    let mut misfits = Vec::new();
    for capture in wanted {
        match fits(capture, catalogue) {
            Ok(table) => made.extend(triggers(capture, table)),
            Err(found) => misfits.extend(found),
        }
    }
    (made, misfits)
}

/// Refuses a database that is not UTF-8: `hex` returns a text's bytes as stored, and a payload does not say the
/// encoding.
pub fn refuse_other_encodings(connection: &Connection, wanted: &[CaptureTable]) -> Result<(), Failure> {
    let Some(carrying) = wanted.iter().find(|capture| !capture.carried.is_empty()) else { return Ok(()) };
    let encoding: String = connection
        .query_row("select encoding from pragma_encoding", [], |row| row.get(0))
        .map_err(|error| outcome::failure(&error, "read the database's encoding"))?;
    if encoding == "UTF-8" {
        return Ok(());
    }
    let table = &carrying.table;
    Err(Failure::fatal(
        codes::ENCODING,
        format!(
            "the database is {encoding}, but edges by key (here of `{table}`) need UTF-8; write them as statements"
        ),
    ))
}

fn exchange(transaction: &Transaction<'_>, triggers: &[Trigger], misfits: &[Misfit]) -> rusqlite::Result<Changes> {
    // Fail now if the outbox does not exist, not at the application's next statement.
    transaction.execute_batch(
        "select entity, entity_key, priority, format, payload, change, columns from honeyflow_outbox limit 0",
    )?;
    let mut changes = Changes::default();
    let present = installed(transaction)?;
    for InstalledTrigger { name, .. } in &present {
        // The triggers of a table that does not fit now stay: they still capture what they can.
        let kept = misfits.iter().any(|misfit| misfit.table() == table_of(name));
        if !kept && !triggers.iter().any(|trigger| trigger.name == *name) {
            drop_trigger(transaction, name)?;
            changes.dropped.push(name.clone());
        }
    }
    for trigger in triggers {
        match present.iter().find(|found| found.name == trigger.name) {
            Some(found) if found.sql == trigger.sql => {
                changes.unchanged += 1;
                continue;
            }
            Some(_) => {
                drop_trigger(transaction, &trigger.name)?;
                changes.replaced.push(trigger.name.clone());
            }
            None => changes.created.push(trigger.name.clone()),
        }
        transaction.execute_batch(&trigger.sql)?;
    }
    Ok(changes)
}

fn drop_trigger(transaction: &Transaction<'_>, name: &str) -> rusqlite::Result<()> {
    transaction.execute_batch(&format!("DROP TRIGGER {}", identifier(name)))
}
