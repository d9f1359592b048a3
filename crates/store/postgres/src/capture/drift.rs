//! Drift: how the application's migrations have changed our triggers, or the columns that they read.
//!
//! `honeyflow_meta` stores a fingerprint of each captured table from the moment when its triggers were complete: its used
//! columns, and for each trigger and the function a hash of the wanted text and the version of its row in the catalogue.
//! A trigger that was switched off and on again has another version.

use honeyflow_event::document;
use honeyflow_store::{
    CaptureTable, Columns,
    capture::{Drift, DriftKind, DriftReport},
};
use serde_json::Value;

use super::{
    fit,
    found::{CaptureState, FoundTable, Note},
    trigger::{Texts, compared, texts},
};

/// The parts of a fingerprint are the function, the triggers under their names, and `column <name>`.
pub(super) const FUNCTION: &str = "function";
const COLUMN_HEAD: &str = "column ";

pub(super) fn report(wanted: &[CaptureTable], found: &CaptureState) -> DriftReport {
    let mut report = DriftReport { schema_unchanged: true, ..DriftReport::default() };
    for capture in wanted {
        match fit::fits(capture, found) {
            Ok(table) => compare(capture, table, found, &mut report),
            Err(misfits) => report.misfits.extend(misfits),
        }
    }
    for spare in &found.spare {
        for trigger in &spare.triggers {
            let (table, trigger) = (spare.name.clone(), trigger.clone());
            report.drifts.push(Drift { table, trigger, what: DriftKind::Superfluous });
        }
    }
    report
}

fn compare(capture: &CaptureTable, table: &FoundTable, found: &CaptureState, report: &mut DriftReport) {
    let texts = texts(capture, table, &found.schema);
    let now = note(capture, table, &texts);
    let noted = found.notes.get(&capture.table);
    for (part, print) in &now {
        let before = noted.and_then(|noted| noted.get(part));
        let is_missing = print.is_empty();
        let is_column = part.starts_with(COLUMN_HEAD);
        // Another configuration uses other columns. If it uses all, the column is new, and its rows changed without an event.
        if is_column && before.is_none() && (noted.is_none() || capture.watched != Columns::All) {
            continue;
        }
        if before == Some(print) && !is_missing {
            continue;
        }
        let state = |print: &str| print.split_once(':').map_or(String::new(), |(state, _)| state.to_owned());
        if is_column || before.is_some_and(|before| state(before) != state(print)) {
            report.schema_unchanged = false;
        }
        let what = if is_missing { DriftKind::Missing } else { DriftKind::Changed };
        report.drifts.push(Drift { table: capture.table.clone(), trigger: part.clone(), what });
    }
}

/// Returns the fingerprint of a table: for each part, the state in the database and the wanted text. The part that does
/// not exist is empty.
pub(super) fn note(capture: &CaptureTable, table: &FoundTable, texts: &Texts) -> Note {
    let columns = compared(capture, table).into_iter();
    let mut note: Note =
        columns.map(|column| (format!("{COLUMN_HEAD}{}", column.name), format!("{}:", column.identity))).collect();
    let function = table.function.as_ref();
    let function = function.map(|(_, version)| print(version, &texts.function.sql)).unwrap_or_default();
    note.insert(FUNCTION.to_owned(), function);
    for trigger in &texts.triggers {
        let version = table.triggers.get(trigger.name);
        note.insert(trigger.name.to_owned(), version.map(|version| print(version, &trigger.sql)).unwrap_or_default());
    }
    note
}

fn print(version: &str, text: &str) -> String {
    format!("{}:{}", version.replace(':', " "), hash(&Value::from(text)))
}

fn hash(value: &Value) -> String {
    format!("{:016x}", document::hash(value))
}
