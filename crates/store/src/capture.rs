//! The tables to capture: plain data from which an adapter generates its triggers.

mod report;

pub use report::{Changes, Drift, DriftKind, DriftReport, Misfit};

use crate::statement::KeyColumn;

/// One captured table. The needs of all its readers (documents, edges) have already been merged into this one entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureTable {
    pub table: String,
    /// The columns that form the row's `entity_key`. Empty: the table has no key, and its triggers write the rowid.
    pub key: Vec<KeyColumn>,
    /// A change of these columns creates an event; a change of the key or of a carried column always does.
    pub watched: Columns,
    /// Columns whose OLD and NEW values go into the payload: edges use them to find the containers.
    pub carried: Vec<String>,
    /// Columns that a workflow asks for by name: an update says which of them it changed.
    pub reported: Vec<String>,
    /// The priority that the triggers write into the outbox row: 0 is processed first, 9 last.
    pub priority: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Columns {
    All,
    Some(Vec<String>),
}

impl Columns {
    /// No columns: only inserts and deletes create events.
    pub const NONE: Columns = Columns::Some(Vec::new());

    /// Returns the columns of both sets, each column once.
    #[must_use]
    pub fn union(self, other: &Columns) -> Columns {
        match (self, other) {
            (Columns::Some(mut mine), Columns::Some(others)) => {
                for name in others {
                    if !mine.iter().any(|column| column.eq_ignore_ascii_case(name)) {
                        mine.push(name.clone());
                    }
                }
                Columns::Some(mine)
            }
            _ => Columns::All,
        }
    }

    pub fn contains(&self, name: &str) -> bool {
        match self {
            Columns::All => true,
            Columns::Some(names) => names.iter().any(|column| column.eq_ignore_ascii_case(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_9_columns_are_united_without_regard_to_case() {
        let some = |names: &[&str]| Columns::Some(names.iter().map(ToString::to_string).collect());
        assert_eq!(some(&["title"]).union(&some(&["Title", "isbn"])), some(&["title", "isbn"]));
        assert_eq!(some(&["title"]).union(&Columns::All), Columns::All);
        assert_eq!(Columns::All.union(&Columns::NONE), Columns::All);
        assert!(!Columns::NONE.contains("title"));
    }
}
