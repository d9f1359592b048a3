//! Failure codes of this backend, and the shared ones that it uses.

pub(crate) use honeyflow_hive::codes::{
    ACCESS_DENIED, BAD_TEXT, BAD_URL, COLLISION, DATABASE_BUSY, DISK_FULL, EPOCH_TOO_LARGE, HIVE_BUSY, HIVE_ERROR,
    HIVE_STOPPED, META_TOO_LARGE, MISSING_DATABASE, NO_CONNECTION, NO_PRIVILEGE, NO_THREAD, NO_TLS, NOT_DURABLE,
    READ_ONLY, SCHEMA_TOO_NEW, SERVER_TOO_OLD, STATEMENT_TIMEOUT, TOO_MANY_CONNECTIONS, UNREADABLE_ROW,
};

honeyflow_runtime::codes! {
    LIMIT_DISAGREED = "limit-disagreed" [Retry]
        "The database computed another result for a limit than this program, so no permit was given.",
        "Run the same version of Honeyflow on all nodes.";
}
