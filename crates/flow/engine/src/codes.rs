//! Failure codes of the engine, the shared ones that it uses, and its alarms.

pub mod alarm;

pub(crate) use honeyflow_evaluate::codes::TOO_SLOW;
pub(crate) use honeyflow_hive::codes::UNREADABLE_ROW;
pub(crate) use honeyflow_runtime::codes::{BAD_KEY, NO_ANSWER, OUTPUT_TOO_LARGE, PANICKED};
pub(crate) use honeyflow_step::codes::BAD_ANSWER;
pub(crate) use honeyflow_store::codes::KEY_TOO_LONG;

honeyflow_runtime::codes! {
    BAD_DURATION = "bad-duration" [Reject]
        "The `for` of a sleeping step is not a duration.",
        "Write a duration such as `30s`.";
    BAD_EVENT = "bad-event" [Reject]
        "A step `event.emit` made an event without a usable entity or key.",
        "Let its `input` give `entity` and `key` for each event, without NUL characters.";
    BAD_EXPRESSION = "bad-expression" [Reject]
        "An expression of the step failed for this item.",
        "Correct the expression or the data; the message shows the place.";
    BAD_FOR_EACH = "bad-for-each" [Reject]
        "The expression `for-each` gave something other than a list.",
        "Let it give a list.";
    CANCELLED = "cancelled" [Reject]
        "An operator cancelled the run.",
        "Retry the parked event if the run is wanted after all.";
    DEADLINE = "deadline" [Reject]
        "The run did not end within the workflow's `deadline`.",
        "Find out which step waited (`honeyflow explain ENTITY KEY`), then retry the parked event.";
    FAILED = "failed" [Reject]
        "The run failed without a failure of a single step.",
        "Read the log of the node; retry the parked event.";
    KILLS_WORKER = "kills-worker" [Reject]
        "Every worker that took this item alone died or hung.",
        "Change the data or the step that kills the worker, then retry the parked event.";
    LEFT = "left" [Retry]
        "This node has left the hive.",
        "Nothing: a running node joins again.";
    PAYLOAD_TOO_LARGE = "payload-too-large" [Reject]
        "The payload of an event is larger than the source allows.",
        "Send less and load the rest with a step, or raise `payload-max`.";
    PLAN_LIMIT = "plan-limit" [Reject]
        "The expression `for-each` gave more items than one run may have.",
        "Split the work, for example into several events.";
    STUCK_EXPRESSIONS = "stuck-expressions" [Fatal]
        "Too many expressions never ended, so the process is started again to free its CPU cores.",
        "Search the log for `too-slow`, and make these expressions cheaper.";
    TOO_MANY_EVENTS = "too-many-events" [Reject]
        "A step `event.emit` was given more events than one step may emit.",
        "Emit fewer events per run.";
    UNMATCHED = "unmatched" [Reject]
        "No workflow accepts the event, and a workflow says `unmatched = \"park\"`.",
        "Correct the event or the `when` of the workflows, then retry or drop the parked event.";
    WAIT_TIMEOUT = "wait-timeout" [Reject]
        "The event for which a step waits did not come in time.",
        "Send the event, then retry the parked event; or set `on-timeout = \"skip\"`.";
}
