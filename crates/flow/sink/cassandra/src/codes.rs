//! Failure codes of this sink, the shared ones that it uses, and the problems of a table.

pub mod problem;

pub(crate) use honeyflow_runtime::codes::BAD_KEY;
pub(crate) use honeyflow_sink::codes::{BAD_DOCUMENT, BAD_FIELD};

honeyflow_runtime::codes! {
    BAD_CURSOR = "bad-cursor" [Reject]
        "The position of a listing is not valid.",
        "Begin the listing again.";
    CASSANDRA_ANSWER = "cassandra-answer" [Retry]
        "The cluster's description of its schema cannot be read.",
        "Check the version of the cluster; the request is tried again.";
    CASSANDRA_AWAY = "cassandra-away" [Retry, RetryAfter]
        "No server of the cluster can be reached.",
        "Check the cluster, the addresses and the network: the write is tried again.";
    CASSANDRA_BUSY = "cassandra-busy" [RetryAfter]
        "The pool has no room for the request now.",
        "Nothing: the write is tried again. If it lasts, raise the pool's limits or reduce the load.";
    CASSANDRA_COUNT = "cassandra-count" [Retry]
        "The counting of the rows was interrupted.",
        "Try again.";
    CASSANDRA_FORBIDDEN = "cassandra-forbidden" [Fatal]
        "The cluster does not permit the request to this account.",
        "Grant the account the rights on the table.";
    CASSANDRA_LOGIN = "cassandra-login" [Retry, RetryAfter]
        "The cluster refuses the login.",
        "Correct `user` and `password` in `[cassandra.NAME.cql]`; the write is tried again.";
    CASSANDRA_REFUSED = "cassandra-refused" [Reject]
        "The cluster refuses the request as invalid, because of the table or of a value.",
        "Compare the table and the document with the message, then retry the parked event.";
    CASSANDRA_ROW = "cassandra-row" [Fatal]
        "A row of the table cannot be read.",
        "Compare the types of the table's columns with the message.";
    CASSANDRA_TABLE = "cassandra-table" [Fatal]
        "The table does not fit the configuration.",
        "Change the table or the sink as the message says; `honeyflow check` shows all misfits.";
    CASSANDRA_UNANSWERED = "cassandra-unanswered" [Retry]
        "The cluster did not answer the request in time.",
        "Nothing: the write is tried again, because a write with the same stamp may be repeated.";
    CASSANDRA_UNKNOWN = "cassandra-unknown" [Retry]
        "The cluster reports an error after which it is unknown whether the write was executed.",
        "Nothing: the write is tried again, because a write with the same stamp may be repeated.";
}
