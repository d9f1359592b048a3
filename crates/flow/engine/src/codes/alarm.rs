//! Alarms: log lines about a state that an operator should know.

honeyflow_runtime::codes! {
    ();
    BREAKER_CLOSED = "breaker-closed" []
        "A target keeps failing, so its breaker is open and the target gets no work for a while.",
        "Repair the target; its work continues by itself.";
    NO_WORKER = "no-worker" []
        "Runs wait, because the definition version they began with cannot be used on this node.",
        "Start a node that has the kinds of step of that version; `/v1/status` shows why it cannot be used here.";
    SCHEMA_CHANGED = "schema-changed" []
        "The schema of a source's database has changed, so stopped workflows are tried again.",
        "Nothing, unless a workflow stops again.";
    SINK_AHEAD = "sink-ahead" []
        "A sink holds a stamp that is newer than this node's epoch, as after a restore of the database; the node \
         takes a higher epoch.",
        "Run `honeyflow verify` if the database was restored: the sink may hold newer documents.";
    WORKFLOW_STOPPED = "workflow-stopped" []
        "A workflow has stopped because of a fatal failure; its events wait.",
        "Correct the cause that the message names; the workflow is then tried again.";
}
