//! Codes of the problems that `honeyflow check` reports.

use honeyflow_workflow::problem::Severity;

pub(crate) use honeyflow_workflow::codes::problem::{
    BAD_CHANGE, BAD_NAME, BAD_VALUE, MISSING_KEY, SECRET_INLINE, UNKNOWN_COLUMN, UNKNOWN_KEY, UNKNOWN_TABLE, WRONG_TYPE,
};

honeyflow_runtime::codes! {
    Severity;
    A_VIEW = "a-view" [Severity::Error]
        "The name is that of a view, and changes of a view cannot be captured.",
        "Name the table that contains the rows; the document may read the view.";
    AMBIGUOUS_NAME = "ambiguous-name" [Severity::Error]
        "An entity has the name of a table that another entity captures.",
        "Give the entity another name.";
    BAD_ADDRESS = "bad-address" [Severity::Error]
        "The address to listen on is not an address with a port.",
        "Write for example `127.0.0.1:7171`.";
    BAD_COMPILED = "bad-compiled" [Severity::Error]
        "The file of compiled settings cannot be used.",
        "Make it again with `honeyflow config compile NAME`.";
    BAD_EDGE = "bad-edge" [Severity::Error]
        "An edge has not exactly one of `to` and `key`, or names another number of columns than the entity's key has.",
        "Write one of the two, with one column for each part of the key.";
    BAD_LIMIT = "bad-limit" [Severity::Error]
        "A limit is not written correctly.",
        "Write for example `500/s` or `1000/min burst 50`.";
    BAD_STEP = "bad-step" [Severity::Error]
        "A step cannot be built from its settings.",
        "Correct the setting that the message names.";
    BAD_TOML = "bad-toml" [Severity::Error]
        "The file is not valid TOML.",
        "Correct the syntax at the place shown.";
    BAD_UNIT = "bad-unit" [Severity::Error]
        "A duration, size or rate is not written correctly.",
        "Write for example `5s` or `64KiB`.";
    BAD_URL = "bad-url" [Severity::Error]
        "The address cannot be used.",
        "Write for example `sqlite:shop.db`, `tantivy:books` or `env:DATABASE_URL`.";
    DUPLICATE = "duplicate" [Severity::Error]
        "A list contains a text twice.",
        "Remove one of them.";
    EMPTY = "empty" [Severity::Error]
        "A text or list is empty.",
        "Write a value, or remove the key.";
    EXACT_LIMIT = "exact-limit" [Severity::Warning]
        "The burst of a limit is too small for batches of permits, so every decision asks the store.",
        "Set `mode = \"exact\"` if this is intended, or allow a larger burst.";
    EXISTING_BESIDE_SINK = "existing-beside-sink" [Severity::Error]
        "`existing = false` stands in a workflow with a sink, which always handles the rows that exist already.",
        "Remove `existing`, or move the sink into a workflow of its own.";
    EXISTING_UNSAID = "existing-unsaid" [Severity::Error]
        "A workflow with a sink also calls, emits or waits, and its `on` does not say whether existing rows may do so.",
        "Add `existing = true` to its `on`, or move these steps into a workflow without a sink.";
    FAILED = "failed" [Severity::Error]
        "A database refused what the configuration needs, with a code that this version does not know.",
        "Read the message.";
    FILE_MODE = "file-mode" [Severity::Warning]
        "Other users of the machine can read or change a file or folder of Honeyflow.",
        "Run the `chmod` that the hint shows.";
    MISPLACED_KEY = "misplaced-key" [Severity::Error]
        "The key belongs to another kind of sink or entity, or cannot be used with `compiled`.",
        "Remove the key.";
    MISSING_NAME = "missing-name" [Severity::Error]
        "A section has no name.",
        "Write `[section.NAME]`, and put the keys below it.";
    NO_EDGE = "no-edge" [Severity::Error]
        "The document reads a table whose changes would not reach the document.",
        "Add an edge, or list the table in `untracked` if it never changes.";
    NO_KEYS = "no-keys" [Severity::Error]
        "The statement does not contain `$keys`, so it would read the whole table for every batch.",
        "Write for example `… where id in $keys`.";
    NO_ROWS = "no-rows" [Severity::Error]
        "A step loads rows of an entity that has messages only.",
        "Use `$event.payload` instead of a load.";
    NO_TABLE_KEY = "no-table-key" [Severity::Error]
        "The table of an edge has no primary key, so `$keys` cannot identify its rows.",
        "Use `key` with columns that contain the entity's key.";
    NO_WAL = "no-wal" [Severity::Warning]
        "The journal of the SQLite database is not in WAL mode, so readers and writers block each other.",
        "Let `honeyflow source install` switch to WAL.";
    NOT_UNDERSTOOD = "not-understood" [Severity::Warning]
        "The check cannot determine which tables a statement reads.",
        "Make sure that every table in it has an edge.";
    OPEN_LISTEN = "open-listen" [Severity::Error]
        "The address can be reached from other machines, and there are neither access tokens nor TLS yet.",
        "Listen on 127.0.0.1, behind a proxy that authenticates its users.";
    OTHER_SOURCE = "other-source" [Severity::Error]
        "The entity belongs to another source than the workflow says.",
        "Write the source of the entity.";
    OUT_OF_RANGE = "out-of-range" [Severity::Error]
        "A number is outside its range.",
        "Use a number that the message allows.";
    SAME_TARGET = "same-target" [Severity::Error]
        "Documents of two entities, steps or sinks would overwrite each other in one index or table.",
        "Use a sink, with its own index or table, for each entity.";
    SKIPPED_ON_DELETE = "skipped-on-delete" [Severity::Warning]
        "A workflow starts with deletes only, and a step of it is skipped if the row is gone.",
        "Add `on-missing = \"run\"` to the step.";
    SLOW_PLAN = "slow-plan" [Severity::Warning]
        "For every batch the database reads a whole table, or finds rows by fewer columns than the key has.",
        "Compare every column of the key with `$keys`, and make sure that an index begins with these columns.";
    TWO_STATEMENTS = "two-statements" [Severity::Error]
        "A key holds more than one statement.",
        "Write one statement, without `;`.";
    UNKNOWN_CLUSTER = "unknown-cluster" [Severity::Error]
        "There is no such section `[cassandra.NAME]`.",
        "Correct the name, or add the section.";
    UNKNOWN_ENTITY = "unknown-entity" [Severity::Error]
        "There is no such section `[entity.NAME]`.",
        "Correct the name, or add the section.";
    UNKNOWN_FIELD = "unknown-field" [Severity::Warning]
        "No document has this field of the index.",
        "Correct the field's name.";
    UNKNOWN_LIMIT = "unknown-limit" [Severity::Error]
        "There is no such section `[limit.NAME]`.",
        "Correct the name, or add the section.";
    UNKNOWN_SECTION = "unknown-section" [Severity::Error]
        "There is no such section in the configuration.",
        "Correct the name; the hint shows the known ones.";
    UNKNOWN_SINK = "unknown-sink" [Severity::Error]
        "There is no such section `[sink.NAME]`.",
        "Correct the name, or add the section.";
    UNKNOWN_SOURCE = "unknown-source" [Severity::Error]
        "There is no such section `[source.NAME]`.",
        "Correct the name, or add the section.";
    UNKNOWN_TYPE = "unknown-type" [Severity::Error]
        "There is no such type of field.",
        "Use one of the types that the hint lists.";
    UNKNOWN_URL = "unknown-url" [Severity::Error]
        "This build has nothing for the scheme of the address.",
        "Use one of the schemes that the hint lists.";
    UNREADABLE = "unreadable" [Severity::Error]
        "The configuration file cannot be read.",
        "Check its path and rights, or make one with `honeyflow init`.";
    UNRESOLVED = "unresolved" [Severity::Warning, Severity::Error]
        "A reference to a secret cannot be read here.",
        "Set the environment variable, or make the file readable for this user only.";
    UNUSED = "unused" [Severity::Warning]
        "Nothing uses this section.",
        "Use it or remove it.";
    UNWATCHED_COLUMN = "unwatched-column" [Severity::Warning]
        "The document reads a column whose changes make no event.",
        "Add it to `columns`, unless this is intended.";
    WRONG_KIND = "wrong-kind" [Severity::Error]
        "The kind of the step cannot write to this kind of sink.",
        "Set `use` as the hint shows.";
    WRONG_RELATION = "wrong-relation" [Severity::Error]
        "Settings of the hive do not fit together.",
        "Change them as the hint says.";
}
