//! Puts triggers in place and takes them away. Everything happens in one transaction that holds the write lock: the
//! application's statements run either under the old set or under the new one.

use honeyflow_runtime::Failure;
use honeyflow_store::{CaptureTable, Catalogue};
use rusqlite::{Connection, Transaction, TransactionBehavior};

use super::{
    drift::{Installed, fingerprint, installed, note, table_of},
    fit::{Misfit, fits},
    quote::identifier,
    trigger::{Trigger, triggers},
};
use crate::{catalogue, outcome};

/// What an installation has changed, by the triggers' names.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Changes {
    pub created: Vec<String>,
    pub replaced: Vec<String>,
    pub dropped: Vec<String>,
    pub unchanged: usize,
    /// What could not be captured ([`reinstall`] alone goes on past these).
    pub misfits: Vec<Misfit>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.created.is_empty() && self.replaced.is_empty() && self.dropped.is_empty()
    }
}

/// Makes the database's triggers equal to what is wanted; a second time, nothing changes. The outbox must be there.
pub fn install(connection: &mut Connection, wanted: &[CaptureTable]) -> Result<Changes, Failure> {
    put(connection, wanted, true)
}

/// The same as [`install`]: what is wanted is compared with what is there, whoever made it.
pub fn upgrade(connection: &mut Connection, wanted: &[CaptureTable]) -> Result<Changes, Failure> {
    put(connection, wanted, true)
}

/// After a migration of the application: installs what fits and says what does not, instead of refusing it all. The
/// tables of `created` and `replaced` went without capture for a while and have to be verified.
pub fn reinstall(connection: &mut Connection, wanted: &[CaptureTable]) -> Result<Changes, Failure> {
    put(connection, wanted, false)
}

/// The statements of an installation, for `--print`.
pub fn plan(wanted: &[CaptureTable], catalogue: &Catalogue) -> Result<String, Failure> {
    let (triggers, misfits) = generate(wanted, catalogue);
    match misfits.into_iter().next() {
        Some(misfit) => Err(misfit.into()),
        None => Ok(triggers.iter().map(|trigger| format!("{};\n\n", trigger.sql)).collect()),
    }
}

/// Removes triggers and our tables. Refused while the outbox holds events, unless `force`: they would be lost.
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
            "outbox-not-empty",
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
    // With something missing the next look must be a whole one again.
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

/// `hex` gives a text's bytes as they are stored, and a payload does not say how.
fn refuse_other_encodings(transaction: &Transaction<'_>, wanted: &[CaptureTable]) -> Result<(), Failure> {
    let Some(carrying) = wanted.iter().find(|capture| !capture.carried.is_empty()) else { return Ok(()) };
    let encoding: String = transaction
        .query_row("select encoding from pragma_encoding", [], |row| row.get(0))
        .map_err(|error| outcome::failure(&error, "read the database's encoding"))?;
    if encoding == "UTF-8" {
        return Ok(());
    }
    let table = &carrying.table;
    Err(Failure::fatal(
        "encoding",
        format!(
            "the database is {encoding}, but edges by key (here of `{table}`) need UTF-8; write them as statements"
        ),
    ))
}

fn exchange(transaction: &Transaction<'_>, triggers: &[Trigger], misfits: &[Misfit]) -> rusqlite::Result<Changes> {
    // Named here so that a source without tables fails now, not at the application's next statement.
    transaction.execute_batch("select entity, entity_key, priority, format, payload from honeyflow_outbox limit 0")?;
    let mut changes = Changes::default();
    let present = installed(transaction)?;
    for Installed { name, .. } in &present {
        // What stands on a table that does not fit now still captures what it can.
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
