//! Checks whether a table can be captured as configured, before a trigger is created.

use honeyflow_store::{CaptureTable, Columns, capture::Misfit};

use super::found::{CaptureState, FoundTable};

/// Returns the table to capture, or all reasons why it cannot be captured.
pub(super) fn fits<'a>(capture: &CaptureTable, found: &'a CaptureState) -> Result<&'a FoundTable, Vec<Misfit>> {
    let name = || capture.table.clone();
    let Some(table) = found.tables.get(&capture.table) else {
        return Err(vec![Misfit::MissingTable { table: name() }]);
    };
    if matches!(table.kind.as_str(), "v" | "m") {
        return Err(vec![Misfit::View { table: name() }]);
    }
    if let Some(why) = refused(table) {
        return Err(vec![Misfit::NotCaptured { table: name(), why }]);
    }
    let mut misfits: Vec<_> = named(capture)
        .into_iter()
        .filter(|column| table.column(column).is_none())
        .map(|column| Misfit::MissingColumn { table: name(), column: column.to_owned() })
        .collect();
    if capture.key.is_empty() && capture.carried.is_empty() {
        misfits.push(Misfit::NoKey { table: name() });
    }
    if misfits.is_empty() { Ok(table) } else { Err(misfits) }
}

fn refused(table: &FoundTable) -> Option<&'static str> {
    match (table.kind.as_str(), table.persistence.as_str()) {
        ("f", _) => Some("is a foreign table, whose rows change elsewhere; declare it as `untracked`"),
        ("p", _) => Some("is partitioned, and partitioned tables are not captured yet"),
        (_, "u") => Some("is unlogged, and a crash empties it without an event; run `alter table … set logged`"),
        (_, "t") => Some("is a temporary table, which other sessions do not see"),
        ("r", _) if table.inherits => Some("takes part in inheritance, and such tables are not captured yet"),
        ("r", _) => None,
        _ => Some("is no table"),
    }
}

/// Returns the columns that the configuration names, each once.
pub(super) fn named(capture: &CaptureTable) -> Vec<&str> {
    let watched = match &capture.watched {
        Columns::All => &[][..],
        Columns::Some(columns) => columns,
    };
    let key = capture.key.iter().map(|part| part.name.as_str());
    let others = capture.carried.iter().chain(watched).chain(&capture.reported).map(String::as_str);
    let mut names = Vec::new();
    for name in key.chain(others) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}
