//! Failure codes of expressions.

pub(crate) use honeyflow_step::codes::NOT_REACHED;

honeyflow_runtime::codes! {
    PANIC = "panic" [Reject]
        "The evaluation of an expression panicked for this item: a bug in Honeyflow.",
        "Report it with the expression, then change the expression so that it avoids the case.";
    TOO_SLOW = "too-slow" [Reject, Fatal]
        "An expression took longer than its time limit twice for one item (`reject`), or for several items within \
         minutes (`fatal`).",
        "Make the expression cheaper.";
}
