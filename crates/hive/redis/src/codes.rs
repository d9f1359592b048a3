//! Failure codes of this backend, and the shared ones that it uses.

pub(crate) use honeyflow_hive::codes::{
    ACCESS_DENIED, BAD_URL, EPOCH_TOO_LARGE, HIVE_BUSY, HIVE_ERROR, HIVE_OPTIONS, HIVE_STOPPED, META_TOO_LARGE,
    NO_CONNECTION, NO_PRIVILEGE, NO_THREAD, NO_TLS, OUT_OF_MEMORY, READ_ONLY, SERVER_TOO_OLD, TOO_MANY_CONNECTIONS,
    UNREADABLE_ROW,
};
pub(crate) use honeyflow_runtime::codes::NO_ANSWER;

honeyflow_runtime::codes! {
    CLUSTER_DOWN = "cluster-down" [Retry]
        "The Redis cluster reports that it is down.",
        "Look at the state of the cluster; the request is tried again.";
    CLUSTER_MOVING = "cluster-moving" [Retry]
        "The Redis cluster is moving the hive's keys to another server.",
        "Nothing: the request is tried again.";
    CONNECTION_LOST = "connection-lost" [Retry]
        "The connection to Redis broke during a request; whether it was executed is unknown.",
        "Nothing: the node connects again. If it lasts, check the server and the network.";
    EVICTING_SERVER = "evicting-server" [Fatal]
        "The Redis server evicts keys when its memory is full, also leases.",
        "Set `maxmemory-policy` to `noeviction`, or use a separate server for the hive.";
    KEY_TAKEN = "key-taken" [Fatal]
        "Another program uses a key of this hive for something else.",
        "Give the hive another `name`, or use another database of the server.";
    LIMIT_TOO_LARGE = "limit-too-large" [Reject]
        "The numbers of a limit are larger than Redis can count exactly.",
        "Set a lower limit, or keep the hive in another store.";
    NO_REPLICA = "no-replica" [Retry]
        "No replica of the Redis server received the change, or the server has fewer replicas than it requires.",
        "Check the replication, or set `require-replica = false` and accept that a failover may lose leases.";
    NO_RUN_ID = "no-run-id" [Fatal]
        "The Redis server does not report its `run_id`, so the hive could not see whether the server was replaced.",
        "Allow `INFO server`, or use another server.";
    SERVER_BUSY = "server-busy" [Retry]
        "A script runs on the Redis server for too long.",
        "Nothing: the request is tried again. If it lasts, look for long scripts of other programs.";
    SERVER_CANNOT_SAVE = "server-cannot-save" [Retry]
        "The Redis server cannot write its snapshot to disk, so it refuses writes.",
        "Check the server's log and its disk; the request is tried again.";
    SERVER_STARTING = "server-starting" [Retry]
        "The Redis server is loading its data, or waits for its primary.",
        "Nothing: the request is tried again.";
}
