//! Failure codes that crates without a closer common crate share.

crate::codes! {
    BAD_KEY = "bad-key" [Reject]
        "The key of an event is not one that its entity, its store or its sink can have.",
        "Correct the event where it is made, or the `key` of the step; then retry or drop the parked event.";
    MISPLACED_REPLY = "misplaced-reply" [Fatal]
        "A store answered with a reply that does not belong to the request: a bug in Honeyflow.",
        "Report it with the message and the versions of Honeyflow and of the database.";
    NO_ANSWER = "no-answer" [Retry]
        "A store, a database server or the running node did not answer in time; whether it executed the request is \
         unknown.",
        "Check that the server is up and not overloaded; the engine tries again, a command has to be repeated.";
    OUTPUT_TOO_LARGE = "output-too-large" [Reject]
        "A document, an answer or the result of an expression is larger than the limit.",
        "Load or return less: fewer columns, fewer rows or smaller pages.";
    PANICKED = "panicked" [Retry, Fatal]
        "A part of the program panicked: a bug in Honeyflow.",
        "Report it with the log; a part that fails with `retry` is started again.";
    REFUSED = "refused" [Retry, Reject]
        "The server of an `http.call` refuses the credentials (401, 403), or the running node refuses a command's \
         request.",
        "Check the step's credentials, or correct the command as the message says.";
}
