//! Failure codes that the sinks share.

pub(crate) use honeyflow_runtime::codes::BAD_KEY;

honeyflow_runtime::codes! {
    BAD_DOCUMENT = "bad-document" [Reject]
        "A document cannot be written into the sink, because of its form or its depth.",
        "Change the document's statement or its transform step, then retry the parked event.";
    BAD_FIELD = "bad-field" [Reject]
        "A field of the document does not fit the type of its index field or column.",
        "Change the document or the type of the field, then retry the parked event.";
}
