//! What an installation of triggers has changed, how installed triggers differ from the wanted ones, and why a table cannot
//! be captured: the same on every database.

use std::fmt;

use honeyflow_runtime::Failure;

use crate::codes;

/// The changes of an installation, as names of triggers.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Changes {
    pub created: Vec<String>,
    pub replaced: Vec<String>,
    pub dropped: Vec<String>,
    pub unchanged: usize,
    /// The reasons why tables could not be captured. Only [`reinstall`] continues in spite of them.
    pub misfits: Vec<Misfit>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.created.is_empty() && self.replaced.is_empty() && self.dropped.is_empty()
    }
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct DriftReport {
    pub schema_version: i64,
    /// The schema is as it was when the triggers were last complete: a trigger that differs has captured every change,
    /// and only the configuration or the release asks for another text.
    pub schema_unchanged: bool,
    pub drifts: Vec<Drift>,
    /// Tables and columns that do not exist (any more): their entities wait for the next change of the schema.
    pub misfits: Vec<Misfit>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Drift {
    pub table: String,
    pub trigger: String,
    pub what: DriftKind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DriftKind {
    /// The trigger does not exist, so changes of the table were not captured: the table must be verified.
    Missing,
    /// The trigger's text differs; which changes it captured meanwhile is unknown.
    Changed,
    /// The configuration no longer needs the trigger.
    Superfluous,
}

impl DriftReport {
    pub fn is_empty(&self) -> bool {
        self.drifts.is_empty() && self.misfits.is_empty()
    }

    /// Returns the tables whose changes may have been missed, each once.
    pub fn tables(&self) -> Vec<&str> {
        let mut tables: Vec<&str> = self
            .drifts
            .iter()
            .filter(|drift| match drift.what {
                DriftKind::Missing => true,
                DriftKind::Changed => !self.schema_unchanged,
                DriftKind::Superfluous => false,
            })
            .map(|drift| drift.table.as_str())
            .chain(self.misfits.iter().map(Misfit::table))
            .collect();
        tables.sort_unstable();
        tables.dedup();
        tables
    }
}

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
    /// Changes of such a table are not captured (yet): `why` says what it is, and what to do.
    NotCaptured {
        table: String,
        why: &'static str,
    },
}

impl Misfit {
    pub fn table(&self) -> &str {
        match self {
            Misfit::MissingTable { table }
            | Misfit::MissingColumn { table, .. }
            | Misfit::View { table }
            | Misfit::NoKey { table }
            | Misfit::NotCaptured { table, .. } => table,
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Misfit::MissingTable { table } => write!(f, "there is no table `{table}`"),
            Misfit::MissingColumn { table, column } => write!(f, "table `{table}` has no column `{column}`"),
            Misfit::View { table } => write!(f, "`{table}` is a view; name the tables it reads as edges"),
            Misfit::NoKey { table } => write!(f, "`{table}` has neither a key nor a rowid to write; name its key"),
            Misfit::NotCaptured { table, why } => write!(f, "`{table}` {why}"),
        }
    }
}

impl From<Misfit> for Failure {
    fn from(misfit: Misfit) -> Failure {
        let code = match misfit {
            Misfit::MissingTable { .. } => codes::MISSING_TABLE,
            Misfit::MissingColumn { .. } => codes::MISSING_COLUMN,
            Misfit::View { .. } | Misfit::NoKey { .. } | Misfit::NotCaptured { .. } => codes::NOT_CAPTURABLE,
        };
        Failure::fatal(code, format!("capture: {misfit}"))
    }
}
