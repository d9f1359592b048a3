//! Failure codes that kinds of step share with each other and with the engine.

honeyflow_runtime::codes! {
    BAD_ANSWER = "bad-answer" [Retry, Reject]
        "A step or a store answered with another number of results than it was given items.",
        "Report it with the kind of the step: it is a bug of that kind or store.";
    NOT_REACHED = "not-reached" [Retry]
        "The time of the batch was over before this item was begun.",
        "Nothing: the engine tries again.";
}
