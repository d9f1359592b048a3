//! Failure codes of this backend, and the shared ones that it uses.

pub(crate) use honeyflow_hive::codes::{
    ANOTHER_NODE, CANNOT_OPEN, DATABASE_BUSY, DATABASE_CORRUPT, DISK_FULL, EPOCH_TOO_LARGE, HIVE_BUSY, HIVE_ERROR,
    HIVE_STOPPED, IO_ERROR, META_TOO_LARGE, NO_THREAD, NOT_A_DATABASE, READ_ONLY, SCHEMA_TOO_NEW,
};

honeyflow_runtime::codes! {
    LOCK_FAILED = "lock-failed" [Retry]
        "The lock file of a node cannot be made or tried.",
        "Check that the node may write into the folder that the message names.";
    NETWORK_FILESYSTEM = "network-filesystem" [Fatal]
        "The database is on a network filesystem, where locks do not hold.",
        "Put the database on a local disk.";
    NOT_LEFT_YET = "not-left-yet" [Retry]
        "An earlier node of the same process has not left the hive yet.",
        "Nothing: the node tries again.";
}
