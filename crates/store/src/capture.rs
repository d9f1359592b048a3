//! What is to be captured, table by table: plain data from which an adapter generates its triggers.

use crate::statement::KeyColumn;

/// One captured table. Whoever reads it (documents, edges) has been merged into one entry before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaptureTable {
    pub table: String,
    /// What the row's `entity_key` is made of. Empty: a table without a key, which writes its rowid.
    pub key: Vec<KeyColumn>,
    /// A change of these makes an event; a change of the key or of a carried column always does.
    pub watched: Columns,
    /// Columns whose OLD and NEW values go into the payload: those by which edges name their containers.
    pub carried: Vec<String>,
    /// Written into the row: 0 first … 9 last.
    pub priority: u8,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Columns {
    All,
    Some(Vec<String>),
}

impl Columns {
    /// No column at all: only inserts and deletes count.
    pub const NONE: Columns = Columns::Some(Vec::new());

    /// Both; each column once.
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
