//! Installs function and triggers of one table, in a transaction of its own: a lock on one table never waits for another.

use std::{collections::BTreeSet, fmt};

use honeyflow_store::{CaptureTable, capture::Changes};

use super::{
    drift, fit,
    found::{self, CaptureState, FoundTable, NOTE_HEAD, Notes, SpareTable},
    trigger::{self, Texts, texts},
};
use crate::{
    driver::{Error, PgConnection},
    literal, row, session,
};

/// Begins a transaction that waits two seconds for a lock, because statements behind it in the lock queue wait too. Two
/// nodes install one after the other: replacing a function at the same time is an error.
const BEGIN: &str = "begin isolation level read committed; set local lock_timeout = 2000;
    select value from honeyflow_meta where name = 'install' for update";

/// Returns the statements that drop our triggers, one per row.
pub(crate) const TRIGGERS_OF_OURS: &str = "
    select format('DROP TRIGGER %I ON %s;', t.tgname, t.tgrelid::regclass) from pg_trigger t
      join pg_proc p on p.oid = t.tgfoid
      where p.proname like 'honeyflow\\_capture\\_%' and pg_function_is_visible(p.oid) and not t.tgisinternal
      order by t.tgrelid::regclass::text, t.tgname";

/// The work of one transaction.
pub(super) enum Work<'a> {
    Put(&'a CaptureTable),
    Drop(&'a SpareTable),
    Forget(&'a [CaptureTable]),
}

impl fmt::Display for Work<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Work::Put(capture) => write!(f, "install the triggers of `{}`", capture.table),
            Work::Drop(spare) => write!(f, "drop the triggers of `{}`", spare.name),
            Work::Forget(_) => write!(f, "drop the functions of tables that are not captured any more"),
        }
    }
}

/// Runs one transaction. After an error it is still open.
pub(super) async fn transact(connection: &mut PgConnection, work: &Work<'_>) -> Result<Changes, Error> {
    session::run(connection, BEGIN.to_owned()).await?;
    let changes = match work {
        Work::Put(capture) => put(connection, capture).await?,
        Work::Drop(spare) => drop_triggers(connection, spare).await?,
        Work::Forget(wanted) => forget(connection, wanted).await?,
    };
    session::run(connection, "commit".to_owned()).await?;
    Ok(changes)
}

/// Installs what is missing or differs, and notes the fingerprint. A table that no longer fits stays as it is.
async fn put(connection: &mut PgConnection, capture: &CaptureTable) -> Result<Changes, Error> {
    let mut changes = Changes::default();
    let found = find(connection, capture).await?;
    let Ok(table) = fit::fits(capture, &found) else { return Ok(changes) };
    let texts = texts(capture, table, &found.schema);
    let statements = differences(capture, table, &found, &texts, &mut changes);
    if !statements.is_empty() {
        session::run(connection, statements.join(";\n")).await?;
    }
    // The versions of the new triggers are known only now.
    let found = find(connection, capture).await?;
    let Ok(table) = fit::fits(capture, &found) else { return Ok(changes) };
    let note = drift::note(capture, table, &texts);
    if found.notes.get(&capture.table) != Some(&note) {
        let value = literal::text(&serde_json::json!(note).to_string());
        let name = literal::text(&format!("{NOTE_HEAD}{}", capture.table));
        let note = format!(
            "insert into honeyflow_meta(name, value) values ({name}, {value})
             on conflict (name) do update set value = excluded.value"
        );
        session::run(connection, note).await?;
    }
    Ok(changes)
}

async fn find(connection: &mut PgConnection, capture: &CaptureTable) -> Result<CaptureState, Error> {
    found::read(connection, &[&capture.table], Notes::Read).await
}

/// Returns the statements, and says in `changes` what they change. The function comes first: a trigger needs it, and
/// replacing its body locks no table.
fn differences(
    capture: &CaptureTable,
    table: &FoundTable,
    found: &CaptureState,
    texts: &Texts,
    changes: &mut Changes,
) -> Vec<String> {
    let now = drift::note(capture, table, texts);
    let noted = found.notes.get(&capture.table);
    let is_as_noted =
        |part: &str| now.get(part).is_some_and(|print| noted.and_then(|noted| noted.get(part)) == Some(print));
    let mut statements = Vec::new();
    let function = trigger::function_name(&capture.table);
    let body = table.function.as_ref().map(|(body, _)| body);
    if body != Some(&texts.function.body) || !is_as_noted(drift::FUNCTION) {
        statements.push(texts.function.sql.clone());
        statements.push(format!(
            "revoke all on function {}.{}() from public",
            literal::name(&found.schema),
            literal::name(&function)
        ));
    }
    for trigger in &texts.triggers {
        let name = format!("{} {}", capture.table, trigger.name);
        match table.triggers.contains_key(trigger.name) {
            true if is_as_noted(trigger.name) => {
                changes.unchanged += 1;
                continue;
            }
            true => {
                let on = format!("{}.{}", literal::name(&table.schema), literal::name(&table.name));
                statements.push(format!("drop trigger {} on {on}", literal::name(trigger.name)));
                changes.replaced.push(name);
            }
            false => changes.created.push(name),
        }
        statements.push(trigger.sql.clone());
    }
    statements
}

/// Drops the triggers of a table that is no longer captured.
async fn drop_triggers(connection: &mut PgConnection, spare: &SpareTable) -> Result<Changes, Error> {
    let on = format!("{}.{}", literal::name(&spare.schema), literal::name(&spare.name));
    let drops = spare.triggers.iter().map(|name| format!("drop trigger if exists {} on {on}", literal::name(name)));
    session::run(connection, drops.collect::<Vec<_>>().join(";\n")).await?;
    let dropped = spare.triggers.iter().map(|name| format!("{} {name}", spare.name)).collect();
    Ok(Changes { dropped, ..Changes::default() })
}

/// Drops the functions that no trigger uses, and the fingerprints of tables that are not captured any more.
async fn forget(connection: &mut PgConnection, wanted: &[CaptureTable]) -> Result<Changes, Error> {
    let functions: BTreeSet<String> = wanted.iter().map(|capture| trigger::function_name(&capture.table)).collect();
    let functions: Vec<String> = functions.iter().map(|name| literal::text(name)).collect();
    let notes = wanted.iter().map(|capture| literal::text(&format!("{NOTE_HEAD}{}", capture.table)));
    let (functions, notes) = (functions.join(", "), notes.collect::<Vec<_>>().join(", "));
    let unused = format!(
        "select format('drop function %s', p.oid::regprocedure) from pg_proc p
         where p.proname like 'honeyflow\\_capture\\_%' and p.proname <> all (array[{functions}]::text[])
           and p.pronamespace = (select relnamespace from pg_class where oid = to_regclass('honeyflow_outbox'))
           and not exists (select from pg_trigger t where t.tgfoid = p.oid);
         delete from honeyflow_meta where left(name, {}) = '{NOTE_HEAD}' and name <> all (array[{notes}]::text[])",
        NOTE_HEAD.len()
    );
    let answers = session::run(connection, unused).await?;
    let drops = answers.iter().flatten().filter_map(|row| row::text(row, 0).ok().flatten().map(ToOwned::to_owned));
    let drops: Vec<String> = drops.collect();
    if !drops.is_empty() {
        session::run(connection, drops.join(";\n")).await?;
    }
    Ok(Changes::default())
}

pub(super) fn add(changes: &mut Changes, more: Changes) {
    changes.created.extend(more.created);
    changes.replaced.extend(more.replaced);
    changes.dropped.extend(more.dropped);
    changes.unchanged += more.unchanged;
}
