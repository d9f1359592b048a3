//! Failure codes of the binary, and the shared ones that it uses.

pub mod problem;

pub(crate) use honeyflow_engine::codes::STUCK_EXPRESSIONS;
pub(crate) use honeyflow_hive::codes::{ANOTHER_NODE, BAD_URL, CANNOT_OPEN, NO_RUNTIME, NOT_DURABLE, SHARD_COUNT};
pub(crate) use honeyflow_runtime::codes::{MISPLACED_REPLY, NO_ANSWER, PANICKED, REFUSED};
pub(crate) use honeyflow_sink_tantivy::codes::{
    INDEX_DAMAGED, INDEX_FIELDS_CHANGED, INDEX_FOREIGN, INDEX_MISFIT, INDEX_MISSING,
};
#[cfg(feature = "postgres")]
pub(crate) use honeyflow_store::codes::KEY_TYPE;
pub(crate) use honeyflow_store::codes::{BAD_STATEMENT, STORE_ERROR};

honeyflow_runtime::codes! {
    BAD_SETTINGS = "bad-settings" [Fatal]
        "The settings of a Cassandra cluster cannot be used.",
        "Correct `[cassandra.NAME]` as the message says.";
    BAD_STEP = "bad-step" [Fatal]
        "A step cannot be built from its settings.",
        "Correct the step as the message says.";
    BAD_WORKFLOW = "bad-workflow" [Fatal]
        "A workflow, or a stored version of it, is not valid.",
        "Correct the workflow; `honeyflow check` shows the places.";
    CANNOT_LISTEN = "cannot-listen" [Fatal]
        "The node cannot listen on its address.",
        "Stop the program that uses the port, or set another address in `listen`.";
    CANNOT_WRITE = "cannot-write" [Fatal]
        "A command cannot write its output file.",
        "Check the path and the rights of the folder.";
    CHANGE_PENDING = "change-pending" [Retry]
        "Another change of the limit is not in force yet.",
        "Set the limit again after the time in the message.";
    DATA_FOLDER = "data-folder" [Fatal]
        "The data folder of the node cannot be used.",
        "Check the path `data` and the rights of the folder.";
    DEMO = "demo" [Fatal]
        "The demo could not make or run its shop.",
        "Read the message; free the disk or choose another folder with `--keep`.";
    DOES_NOT_FIT = "does-not-fit" [Fatal]
        "The configuration does not fit the tables of the database.",
        "Run `honeyflow check`, which shows the places.";
    FOLDER_IN_USE = "folder-in-use" [Reject]
        "The folder of the demo already holds a shop.",
        "Choose another folder with `--keep`.";
    INDEX_UNKNOWN = "index-unknown" [Retry]
        "The progress of the build of a generation is unknown, so the build is given up.",
        "Nothing: the node begins the build again.";
    NO_PROGRESS = "no-progress" [Retry]
        "A reindex ended, because for a long time none of its rows was processed.",
        "Find out why they wait (`honeyflow status`), then run it again: it continues where it stopped.";
    NO_SIGNALS = "no-signals" [Fatal]
        "The process cannot receive signals from the operating system.",
        "Check the system's limits for the process.";
    NO_SOURCE = "no-source" [Fatal]
        "The configuration has no source.",
        "Add `[source.NAME]` with a `url`.";
    NODE_ENDED = "node-ended" [Fatal]
        "The node that a command started for its work has ended.",
        "Read the log above the message.";
    NOT_BUILT = "not-built" [Reject]
        "The next generation of an index was given up; the current one is still served.",
        "Correct the cause that the message names, then run `honeyflow reindex`.";
    NOT_DEFINED = "not-defined" [Retry]
        "The limit is not in the store yet, because no node has started with it.",
        "Start a node with this configuration.";
    NOT_INSTALLED = "not-installed" [Fatal]
        "The source has no outbox and triggers yet.",
        "Run `honeyflow source install`, or start with `--yes`.";
    NOT_JOINED = "not-joined" [Retry]
        "The node could not join the hive in time.",
        "Check that the hive's database can be reached; the node tries again.";
    NOT_YET_ON_POSTGRESQL = "not-yet-on-postgresql" [Reject]
        "`honeyflow init` does not read PostgreSQL yet.",
        "Write `[source.NAME]`, `[entity.NAME]` and `[workflow.NAME]` by hand.";
    ODD_ANSWER = "odd-answer" [Retry]
        "The running node sent an answer that is not JSON.",
        "Check that the address in the data folder is that of a node, and that its version fits the command's.";
    PROOF = "proof" [Fatal]
        "The demo could not compare its documents with its rows.",
        "Read the message, and run the demo again.";
    RACED = "raced" [Retry]
        "Other operators keep changing the same limit.",
        "Run the command again.";
    SINK = "sink" [Fatal]
        "The opening of a sink panicked: a bug in Honeyflow.",
        "Report it with the log.";
    SURFACE = "surface" [Retry]
        "The HTTP surface of the node failed.",
        "Nothing: the node starts it again; the message shows the cause.";
    UNKNOWN = "unknown" [Retry]
        "The build of a generation was given up, and the reason was not stored.",
        "Nothing: the build is tried again; the log shows more.";
    UNKNOWN_CLUSTER = "unknown-cluster" [Fatal]
        "A sink names a Cassandra cluster that is not configured.",
        "Add `[cassandra.NAME]`, or correct the sink's `url`.";
    UNKNOWN_SOURCE = "unknown-source" [Fatal]
        "An entity names a source that is not configured.",
        "Add `[source.NAME]`, or correct the entity's `source`.";
    UNKNOWN_URL = "unknown-url" [Fatal]
        "This build has no store, hive or sink for the scheme of the address.",
        "Use one of the schemes that the message lists.";
    UNRESOLVED = "unresolved" [Fatal]
        "A reference to a secret or an address cannot be resolved.",
        "Set the environment variable, or make the file readable for this user only.";
}
