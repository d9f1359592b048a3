//! Failure codes of the hive, and those that its backends and the stores share.

pub mod notice;

pub(crate) use honeyflow_runtime::codes::{MISPLACED_REPLY, NO_ANSWER};

honeyflow_runtime::codes! {
    ACCESS_DENIED = "access-denied" [Retry, Fatal]
        "The database server refuses the login, or the operating system refuses access to the database's file.",
        "Correct user and password in the address, and the server's rules about accounts and hosts.";
    ANOTHER_NODE = "another-node" [Reject, Fatal]
        "Another node works on this database, this data folder or this embedded index.",
        "Stop that node first, or give this node its own database, data folder or index.";
    ANOTHER_STORE = "another-store" [Retry]
        "The hive's store was replaced before it answered.",
        "Nothing: the node asks the new store.";
    BAD_LIMIT = "bad-limit" [Reject]
        "A limit is not written correctly, has numbers that the store cannot keep, or is defined twice and \
         differently.",
        "Correct the limit as the message says.";
    BAD_TEXT = "bad-text" [Reject]
        "A text has characters that the database cannot store, such as NUL.",
        "Remove these characters where the text is made, or use a database in UTF-8.";
    BAD_URL = "bad-url" [Fatal]
        "The address of a database, a hive or an index cannot be used.",
        "Correct the address in the configuration; the message shows the expected form.";
    CANNOT_OPEN = "cannot-open" [Retry, Fatal]
        "The file of a SQLite database cannot be opened.",
        "Check that the file and its folder exist and that the node may write there.";
    COLLISION = "collision" [Retry]
        "The database ended a transaction that collided with another one; nothing was written.",
        "Nothing: the request is tried again.";
    DATABASE_BUSY = "database-busy" [Retry]
        "Another transaction or connection holds the rows or the file.",
        "Nothing: the request is tried again. If it lasts, look for a long transaction of another program.";
    DATABASE_CORRUPT = "database-corrupt" [Fatal]
        "The database reports that its files are damaged.",
        "Look at the server's log or run `pragma integrity_check`, and restore the database from a backup.";
    DISK_FULL = "disk-full" [Retry]
        "The disk of the database is full.",
        "Free some space: the request is tried again.";
    EPOCH_TOO_LARGE = "epoch-too-large" [Fatal]
        "The next epoch of a lease would be above 2^40, the largest that a stamp can hold.",
        "Check the clock of the hive's database, because new epochs follow its time.";
    HEARTBEAT_ENDED = "heartbeat-ended" [Retry]
        "The thread of the hive's heartbeat has ended, so the node is no longer a member.",
        "Nothing: the node joins the hive again; the log shows why the thread ended.";
    HIVE_BUSY = "hive-busy" [Retry]
        "Too many requests wait for the hive's connection, or another node is changing the hive's tables.",
        "Nothing: the request is tried again. If it lasts, look at the load of the hive's database.";
    HIVE_ERROR = "hive-error" [Retry, Fatal]
        "The hive's database answered with an error that has no code of its own.",
        "Read the message: it contains the text of the database.";
    HIVE_OPTIONS = "hive-options" [Fatal]
        "The settings of the hive do not fit together, or the hive's name is not valid.",
        "Correct the settings that the message names.";
    HIVE_STOPPED = "hive-stopped" [Retry]
        "The hive's thread has ended, because the node is stopping or restarts the hive.",
        "Nothing: a running node opens the hive again.";
    IO_ERROR = "io-error" [Retry]
        "The operating system could not read or write the database's file.",
        "Check the disk and the system's log; the request is tried again.";
    LEASE_HELD = "lease-held" [Fatal]
        "Another node holds the lease that was asked for.",
        "Stop that node or let it transfer the lease, then try again.";
    LEASE_RACED = "lease-raced" [Retry]
        "The store did not grant the lease, because another node changed it at the same moment.",
        "Try again.";
    LED_TWICE = "led-twice" [Fatal]
        "The process leads a duty that it already leads.",
        "Call `lead` once for each duty.";
    META_TOO_LARGE = "meta-too-large" [Reject]
        "The data that a node stores about itself is larger than the limit.",
        "Store less in it; the message shows the limit.";
    MISSING_DATABASE = "missing-database" [Retry, Fatal]
        "The database in the address does not exist on the server.",
        "Create it, or name another one in the address.";
    MISSING_TABLE = "missing-table" [Retry, Fatal]
        "A table that Honeyflow or a statement of the configuration uses does not exist.",
        "Wait for the end of a migration, run `honeyflow source install`, or correct the table's name.";
    NO_CONNECTION = "no-connection" [Retry]
        "The database server cannot be reached, or it ended the connection.",
        "Check that the server is up and the address right; the node tries again.";
    NO_PRIVILEGE = "no-privilege" [Retry, Fatal]
        "The database account may not do what Honeyflow needs.",
        "Grant it the rights; `honeyflow source install --print` lists those for a source.";
    NO_RUNTIME = "no-runtime" [Retry, Fatal]
        "The async runtime could not be started, or a program declared limits outside of one.",
        "Check the system's limits of threads and open files; declare limits inside a Tokio runtime.";
    NO_THREAD = "no-thread" [Retry, Fatal]
        "The operating system could not start a thread.",
        "Raise the limit of threads, or free some memory.";
    NO_TLS = "no-tls" [Retry, Fatal]
        "TLS to the server failed, or the server does not accept the password without TLS.",
        "Enable TLS on the server, and make this machine trust the server's certificate.";
    NOT_A_DATABASE = "not-a-database" [Fatal]
        "The file is not a SQLite database.",
        "Correct the path in the address, or restore the file.";
    NOT_A_DUTY = "not-a-duty" [Fatal]
        "A program leads a lease that is not a duty: its name does not begin with `duty/`.",
        "Name the lease `duty/NAME`.";
    NOT_A_MEMBER = "not-a-member" [Retry]
        "This node has left the hive, or was refused by it.",
        "Nothing, if the node is stopping; otherwise the log shows why it was refused.";
    NOT_DURABLE = "not-durable" [Fatal]
        "The database may lose committed data in a crash.",
        "Change the setting that the message names, such as `fsync` or `synchronous`.";
    OUT_OF_MEMORY = "out-of-memory" [Retry]
        "The database has no memory left for the request.",
        "Give it more memory, in Redis by `maxmemory`; the request is tried again.";
    READ_ONLY = "read-only" [Retry]
        "The database only reads, because it is a standby or its file may not be written.",
        "Give the address of the primary, or make the file writable.";
    SCHEMA_TOO_NEW = "schema-too-new" [Fatal]
        "The tables were made by a newer version of Honeyflow.",
        "Use that version or a newer one.";
    SERVER_TOO_OLD = "server-too-old" [Fatal]
        "The version of the database server is too old.",
        "Upgrade the server to the version that the message names.";
    SHARD_COUNT = "shard-count" [Fatal]
        "A source has another number of shards than this node is configured for.",
        "Set `shards` to the number that the message names, or remove the key.";
    SOURCE_NOT_SAID = "source-not-said" [Fatal]
        "A program takes shards of a source that is not in the hive's options.",
        "Add the source to `Options::sources`.";
    STATEMENT_TIMEOUT = "statement-timeout" [Retry]
        "A statement took longer than its time limit.",
        "Make the statement cheaper, for example by an index, or raise the step's `timeout`; it is tried again.";
    STORE_SILENT = "store-silent" [Retry]
        "The hive's store did not answer a request about limits in time.",
        "Check the load of the hive's database; meanwhile each limit acts as its `on-outage` says.";
    TAKEN_TWICE = "taken-twice" [Fatal]
        "The process takes the shards of a source that it already takes.",
        "Call `shards` once for each source.";
    TOO_MANY_CONNECTIONS = "too-many-connections" [Retry]
        "The server accepts no further connections.",
        "Raise the server's limit of connections, or put a pooler in front of it.";
    TWO_WRITERS = "two-writers" [Fatal]
        "A server that was replaced answers again, so two servers take writes for one hive.",
        "Make sure that all nodes reach only one of them, then start the node again.";
    UNKNOWN_LIMIT = "unknown-limit" [Reject]
        "A program uses a limit that was not declared.",
        "Declare it in the hive's options or with `Hive::declare`.";
    UNREADABLE_ROW = "unreadable-row" [Retry, Reject, Fatal]
        "A row of Honeyflow's tables or keys holds a value that this version cannot read.",
        "Find out whether the row was changed by hand or written by a newer version; correct it, or drop the parked \
         event.";
}
