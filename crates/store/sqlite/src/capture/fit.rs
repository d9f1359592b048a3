//! Whether a table can be captured as wished: asked before a trigger is made, because SQLite would only find out when
//! the application's next statement fails.

use std::fmt;

use honeyflow_runtime::Failure;
use honeyflow_store::{CaptureTable, Catalogue, Columns, catalogue::Table};

use super::expression::rowid_name;

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Misfit {
    MissingTable {
        table: String,
    },
    MissingColumn {
        table: String,
        column: String,
    },
    /// A view has no rows of its own.
    View {
        table: String,
    },
    /// Neither a key was named nor is there a rowid to write.
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
            Misfit::MissingTable { .. } => "missing-table",
            Misfit::MissingColumn { .. } => "missing-column",
            Misfit::View { .. } | Misfit::NoKey { .. } => "not-capturable",
        };
        Failure::fatal(code, format!("capture: {misfit}"))
    }
}

/// The table to capture, or everything that is in the way.
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
    let named = capture.key.iter().map(|part| &part.name).chain(&capture.carried).chain(watched);
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
