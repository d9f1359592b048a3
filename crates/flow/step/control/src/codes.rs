//! Failure codes of the control kinds.

honeyflow_runtime::codes! {
    INLINE = "inline" [Fatal]
        "A step that the engine executes itself was given to a worker: a bug in Honeyflow.",
        "Report it with the workflow.";
}
