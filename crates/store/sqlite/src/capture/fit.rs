//! Checks whether a table can be captured as configured, before a trigger is created: SQLite would find a problem only
//! when the application's next statement fails.

use honeyflow_store::{CaptureTable, Catalogue, Columns, capture::Misfit, catalogue::Table};

use super::expression::rowid_name;

/// Returns the table to capture, or all reasons why it cannot be captured.
pub fn fits<'a>(capture: &CaptureTable, catalogue: &'a Catalogue) -> Result<&'a Table, Vec<Misfit>> {
    let name = || capture.table.clone();
    let Some(table) = catalogue.table(&capture.table) else {
        return Err(vec![Misfit::MissingTable { table: name() }]);
    };
    if table.view {
        return Err(vec![Misfit::View { table: name() }]);
    }
    let watched = match &capture.watched {
        Columns::All => &[][..],
        Columns::Some(columns) => columns,
    };
    let named =
        capture.key.iter().map(|part| &part.name).chain(&capture.carried).chain(&capture.reported).chain(watched);
    let mut misfits: Vec<_> = named
        .filter(|column| table.column(column).is_none())
        .map(|column| Misfit::MissingColumn { table: name(), column: column.clone() })
        .collect();
    misfits.dedup();
    if capture.key.is_empty() && rowid_name(table).is_none() {
        misfits.push(Misfit::NoKey { table: name() });
    }
    if misfits.is_empty() { Ok(table) } else { Err(misfits) }
}
