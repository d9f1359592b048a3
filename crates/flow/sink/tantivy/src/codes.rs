//! Failure codes of this sink, and the shared ones that it uses.

pub(crate) use honeyflow_runtime::codes::BAD_KEY;
pub(crate) use honeyflow_sink::codes::{BAD_DOCUMENT, BAD_FIELD};

honeyflow_runtime::codes! {
    BAD_FIELD_CONFIGURATION = "bad-field-configuration" [Fatal]
        "The fields of the index are not configured correctly.",
        "Correct them as the message says.";
    BAD_QUERY = "bad-query" [Reject]
        "The query cannot be read.",
        "Correct the query; the message shows what is wrong.";
    INDEX_CLOSED = "index-closed" [Retry]
        "The index was closed, or its generation swapped, before a write was committed.",
        "Nothing: the write is tried again.";
    INDEX_COMMIT = "index-commit" [Retry]
        "The index could not be committed.",
        "Nothing: the write is tried again. If it lasts, look at the disk.";
    INDEX_DAMAGED = "index-damaged" [Fatal]
        "The files of the index are damaged.",
        "Stop the node and run `honeyflow reindex`, which renames the old files and builds a new index.";
    INDEX_DISK_FULL = "index-disk-full" [Retry]
        "The disk of the index is full.",
        "Free some space: the write is tried again.";
    INDEX_FIELDS_CHANGED = "index-fields-changed" [Fatal]
        "The index was built with other fields, by another version or by another program.",
        "Rebuild it with `honeyflow reindex`, restore the fields, or use another index.";
    INDEX_FOREIGN = "index-foreign" [Fatal]
        "The index belongs to another database, or to an earlier installation of its source.",
        "Correct the address, or remove the folder that the message names and start: the node builds the index again.";
    INDEX_IO = "index-io" [Retry]
        "The folder of the index cannot be read or written.",
        "Check the disk and the rights of the folder; the request is tried again.";
    INDEX_LOCKED = "index-locked" [Fatal]
        "Another process writes to the index.",
        "Stop the other process first.";
    INDEX_MISFIT = "index-misfit" [Reject]
        "The build of the next generation was given up, because too many documents do not fit the configured fields.",
        "Correct the fields of the sink or the documents, then run `honeyflow reindex`.";
    INDEX_MISSING = "index-missing" [Fatal]
        "There is no index in the folder.",
        "Start a node or run `honeyflow reindex`: both build it.";
    INDEX_READ_ONLY = "index-read-only" [Fatal]
        "A write was sent to an index that was opened for reading only: a bug in Honeyflow.",
        "Report it.";
    INDEX_SUSPECT = "index-suspect" [Fatal]
        "The disk failed during a commit, so it is unknown what the index holds.",
        "Check the disk, then rebuild the index with `honeyflow reindex`.";
    INDEX_SWAP = "index-swap" [Retry, Fatal]
        "The next generation cannot be served: none is being built, or the build was given up.",
        "Look in the log why it was given up, then run `honeyflow reindex`.";
    INDEX_WRITER = "index-writer" [Retry]
        "The thread that writes the index stopped unexpectedly: a bug in Honeyflow.",
        "Report it with the log; the write is tried again.";
}
