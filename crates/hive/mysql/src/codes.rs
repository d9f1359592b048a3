//! Failure codes of this backend, and the shared ones that it uses.

pub(crate) use honeyflow_hive::codes::{
    ACCESS_DENIED, BAD_URL, COLLISION, DATABASE_BUSY, DISK_FULL, EPOCH_TOO_LARGE, HIVE_BUSY, HIVE_ERROR, HIVE_STOPPED,
    META_TOO_LARGE, MISSING_DATABASE, MISSING_TABLE, NO_CONNECTION, NO_PRIVILEGE, NO_THREAD, NO_TLS, NOT_DURABLE,
    READ_ONLY, SCHEMA_TOO_NEW, SERVER_TOO_OLD, TOO_MANY_CONNECTIONS, UNREADABLE_ROW,
};
pub(crate) use honeyflow_runtime::codes::NO_ANSWER;

honeyflow_runtime::codes! {
    BAD_NAME = "bad-name" [Fatal]
        "The name of the hive is empty or too long for its column.",
        "Use a name of the length that the message allows.";
    BINLOG_BY_STATEMENT = "binlog-by-statement" [Fatal]
        "The server writes its binary log by statement, which does not work with the hive's transactions.",
        "Set `binlog_format` to ROW or MIXED.";
    NAME_TOO_LONG = "name-too-long" [Reject]
        "The name of a lease, node or limit is too long for its column.",
        "Use a shorter name; the message shows the limit.";
    NOT_PRIMARY = "not-primary" [Retry]
        "This server is cut off from its cluster.",
        "Look at the state of the cluster; the request is tried again.";
    SEVERAL_WRITERS = "several-writers" [Fatal]
        "Several servers of the cluster accept writes and do not wait for each other's locks.",
        "Send every node to the same server, and set `one-writer = true` in `[hive]`.";
    STATEMENT_ENDED = "statement-ended" [Retry]
        "The server ended a statement, because of a time limit or an administrator.",
        "Nothing: the request is tried again. If it lasts, look at the server's load and time limits.";
}
