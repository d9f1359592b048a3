//! Checks whether a table can be captured as configured, before a trigger is created: SQLite would find a problem only
//! when the application's next statement fails.

use std::fmt;

use honeyflow_runtime::Failure;
use honeyflow_store::{CaptureTable, Catalogue, Columns, catalogue::Table};

use super::expression::rowid_name;
use crate::codes;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Misfit {
    MissingTable {
        table: String,
    },
    MissingColumn {
        table: String,
        column: String,
    },
    /// The name is that of a view, which has no rows of its own.
    View {
        table: String,
    },
    /// The configuration names no key, and the table has no rowid.
    NoKey {
        table: String,
    },
}

impl Misfit {
    pub fn table(&self) -> &str {
        match self {
            Misfit::MissingTable { table }
            | Misfit::MissingColumn { table, .. }
            | Misfit::View { table }
            | Misfit::NoKey { table } => table,
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::MissingTable { table } => write!(f, "there is no table `{table}`"),
            Misfit::MissingColumn { table, column } => write!(f, "table `{table}` has no column `{column}`"),
            Misfit::View { table } => write!(f, "`{table}` is a view; name the tables it reads as edges"),
            Misfit::NoKey { table } => write!(f, "`{table}` has no rowid to write; name its key"),
        }
    }
}

impl From<Misfit> for Failure {
    fn from(misfit: Misfit) -> Failure {
        let code = match misfit {
            Misfit::MissingTable { .. } => codes::MISSING_TABLE,
            Misfit::MissingColumn { .. } => codes::MISSING_COLUMN,
            Misfit::View { .. } | Misfit::NoKey { .. } => codes::NOT_CAPTURABLE,
        };
        Failure::fatal(code, format!("capture: {misfit}"))
    }
}

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
