//! Failure codes of this store, and the shared ones that it uses.

pub(crate) use honeyflow_hive::codes::{
    ACCESS_DENIED, ANOTHER_NODE, BAD_TEXT, BAD_URL, COLLISION, DATABASE_BUSY, DATABASE_CORRUPT, DISK_FULL,
    MISSING_DATABASE, MISSING_TABLE, NO_CONNECTION, NO_PRIVILEGE, NO_TLS, NOT_DURABLE, OUT_OF_MEMORY, READ_ONLY,
    SCHEMA_TOO_NEW, SERVER_TOO_OLD, STATEMENT_TIMEOUT, TOO_MANY_CONNECTIONS, UNREADABLE_ROW,
};
pub(crate) use honeyflow_runtime::codes::{BAD_KEY, OUTPUT_TOO_LARGE};
pub(crate) use honeyflow_store::codes::{
    BAD_JSON, BAD_PARAMETERS, BAD_STATEMENT, CONSTRAINT, MISSING_COLUMN, NO_KEY_COLUMN, NOT_A_NUMBER, OUTBOX_NOT_EMPTY,
    STORE_ERROR, STORE_STOPPED, TWO_ROWS,
};

honeyflow_runtime::codes! {
    BAD_SHARDS = "bad-shards" [Fatal]
        "The number of shards is not a power of two, or too large.",
        "Use a power of two; the message shows the largest.";
    BAD_VALUE = "bad-value" [Reject]
        "The database cannot store or compute a value, for example because it is out of range.",
        "Correct the row or the statement; the message contains the database's text.";
    MISSING_FUNCTION = "missing-function" [Fatal]
        "A statement uses a function or type that the database does not have.",
        "Correct the statement, or install the extension that has it.";
    ROW_LOCKED = "row-locked" [Retry]
        "Another transaction holds a row of the outbox that should be written.",
        "Nothing: the write is tried again. If it lasts, look for long transactions.";
    ROW_SECURITY = "row-security" [Fatal]
        "Row security may hide rows of a table from Honeyflow's role, and a hidden row looks deleted.",
        "Make the role the table's owner, or run `alter role … bypassrls`.";
    TRANSACTION_ENDED = "transaction-ended" [Retry]
        "The server ended the transaction, for example because it was idle for too long.",
        "Nothing: the request is tried again.";
    TWO_COLUMNS = "two-columns" [Fatal]
        "Two columns of a statement's result have the same name.",
        "Rename one of them with `as`.";
}
