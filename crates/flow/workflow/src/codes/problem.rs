//! Codes of problems.

use crate::problem::Severity;

honeyflow_runtime::codes! {
    Severity;
    BAD_CHANGE = "bad-change" [Severity::Error]
        "`change` or `columns` of an `on` cannot have a meaning there.",
        "Correct or remove the key as the message says.";
    BAD_EXPRESSION = "bad-expression" [Severity::Error]
        "An expression is not valid, or uses a variable that does not exist there.",
        "Correct the expression as the message says.";
    BAD_FOR_EACH = "bad-for-each" [Severity::Error]
        "A step that is done once in a run has `for-each`.",
        "Move `for-each` to an earlier step.";
    BAD_NAME = "bad-name" [Severity::Error]
        "A name has characters that are not allowed.",
        "Use a lowercase letter, then lowercase letters, digits and `_`.";
    BAD_TRIGGER = "bad-trigger" [Severity::Error]
        "The trigger of a step does not exist, or does not fit its needs.",
        "Use one of the triggers that the message lists, or change the needs.";
    BAD_VALUE = "bad-value" [Severity::Error]
        "The value of a key is not one that the key can have.",
        "Use a value that the message or the reference of the configuration lists.";
    CYCLE = "cycle" [Severity::Error]
        "Steps wait for each other.",
        "Remove one of the `needs` that the message shows.";
    DUPLICATE_STEP = "duplicate-step" [Severity::Error]
        "Two steps have the same name, or a step needs another one twice.",
        "Rename or remove one of them.";
    MISSING_KEY = "missing-key" [Severity::Error]
        "A required key is missing.",
        "Add the key that the message names.";
    NOT_AN_ANCESTOR = "not-an-ancestor" [Severity::Error]
        "An expression reads the output of a step that need not have ended before.",
        "Add that step to `needs`.";
    SECRET_INLINE = "secret-inline" [Severity::Error]
        "A secret or a password is written into the file.",
        "Write a reference to it: `env:NAME` or `file:path`.";
    TOO_LARGE = "too-large" [Severity::Error]
        "A workflow has too many steps or needs.",
        "Split the workflow; the message shows the limit.";
    UNKNOWN_COLUMN = "unknown-column" [Severity::Error]
        "A table or the result of a statement has no such column.",
        "Correct the name, or add the column.";
    UNKNOWN_KEY = "unknown-key" [Severity::Error]
        "There is no such key in this section.",
        "Correct the key; the message shows the nearest one.";
    UNKNOWN_KIND = "unknown-kind" [Severity::Error]
        "There is no such kind of step.",
        "Correct `use`; the reference of the configuration lists the kinds.";
    UNKNOWN_STEP = "unknown-step" [Severity::Error]
        "The workflow has no step with this name.",
        "Correct the name.";
    UNKNOWN_TABLE = "unknown-table" [Severity::Error]
        "The database or the keyspace has no such table.",
        "Correct the name, or create the table.";
    UNREACHABLE = "unreachable" [Severity::Error]
        "A step can never run, or an event can never begin a run, because a condition is never true.",
        "Correct the condition, the needs or the trigger, or remove the step.";
    WRONG_TYPE = "wrong-type" [Severity::Error]
        "A value or a column has another type than it must have.",
        "Write a value of the type, or change the column, as the message says.";
}
