//! Failure codes of this store, and the shared ones that it uses.

pub(crate) use honeyflow_hive::codes::{
    ACCESS_DENIED, CANNOT_OPEN, DATABASE_BUSY, DATABASE_CORRUPT, DISK_FULL, IO_ERROR, MISSING_TABLE, NO_THREAD,
    NOT_A_DATABASE, OUT_OF_MEMORY, READ_ONLY, SCHEMA_TOO_NEW, STATEMENT_TIMEOUT, UNREADABLE_ROW,
};
pub(crate) use honeyflow_runtime::codes::{BAD_KEY, OUTPUT_TOO_LARGE};
pub(crate) use honeyflow_store::codes::{
    BAD_JSON, BAD_PARAMETERS, BAD_STATEMENT, CONSTRAINT, KEY_TYPE, MISSING_COLUMN, NO_KEY_COLUMN, NOT_A_NUMBER,
    OUTBOX_NOT_EMPTY, STORE_ERROR, STORE_STOPPED, TWO_ROWS, TWO_STATEMENTS, UNREADABLE_PAYLOAD,
};

honeyflow_runtime::codes! {
    BAD_PATH = "bad-path" [Fatal]
        "The path of the database cannot be used.",
        "Correct the path in the address.";
    ENCODING = "encoding" [Fatal]
        "The database is not encoded in UTF-8, which an edge by `key` needs.",
        "Write the edge as a statement with `to`.";
    INVALID_UTF8 = "invalid-utf8" [Reject]
        "A text of the row is not valid UTF-8.",
        "Correct the value in the row, or convert it in the statement.";
    MISPLACED_REQUEST = "misplaced-request" [Fatal]
        "A request was sent to the wrong connection of the store: a bug in Honeyflow.",
        "Report it with the message.";
    NOT_A_QUERY = "not-a-query" [Fatal]
        "A statement of the configuration does not only read.",
        "Write a `select`.";
    ROLLED_BACK = "rolled-back" [Retry]
        "The database rolled back a whole transaction, for example because the disk is full.",
        "Nothing: the writes are tried again; the log shows the error before it.";
    SCHEMA_CHANGED = "schema-changed" [Retry]
        "The schema of the database changed while a statement was executed.",
        "Nothing: the statement is tried again.";
    TOO_BIG = "too-big" [Fatal]
        "A text or blob is larger than SQLite allows.",
        "Make the value smaller.";
}
