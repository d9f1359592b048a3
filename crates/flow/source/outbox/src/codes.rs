//! Failure codes of this source, and the shared ones that it uses.

pub(crate) use honeyflow_runtime::codes::BAD_KEY;
pub(crate) use honeyflow_store::codes::{KEY_TOO_LONG, UNREADABLE_PAYLOAD};

honeyflow_runtime::codes! {
    NO_PAYLOAD = "no-payload" [Reject]
        "An event has no payload with the columns by which its row leads to other entities.",
        "Let the writer of the event fill the payload, or leave the events to the triggers.";
    UNKNOWN_ENTITY = "unknown-entity" [Reject]
        "The event names neither a captured table nor a configured entity.",
        "Correct the name in the program that writes the event, or configure the entity; then retry or drop it.";
    UNKNOWN_FORMAT = "unknown-format" [Fatal]
        "The event was written by a newer version of Honeyflow.",
        "Use that version or a newer one.";
    UNKNOWN_KIND = "unknown-kind" [Reject]
        "A table was truncated, and this source cannot tell which keys were deleted.",
        "Run `honeyflow verify --repair`, then drop the parked event.";
}
