//! Problems that `honeyflow check` reports about a table.

use honeyflow_workflow::problem::Severity;

pub(crate) use honeyflow_workflow::codes::problem::{UNKNOWN_COLUMN, UNKNOWN_TABLE, WRONG_TYPE};

honeyflow_runtime::codes! {
    Severity;
    STATIC_COLUMN = "static-column" [Severity::Error]
        "A static column is used for a field or the document, though all rows of a partition share it.",
        "Use a regular column.";
    WRONG_KEY = "wrong-key" [Severity::Error]
        "The primary key of the table does not have every part of the entity's key exactly once.",
        "Change the table's primary key, or name the parts in `column`.";
}
