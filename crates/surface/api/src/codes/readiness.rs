//! Reasons that `GET /ready` gives, by the HTTP status of the answer.

honeyflow_runtime::codes! {
    u16;
    DRAINING = "draining" [503]
        "The node is stopping.",
        "Send requests to another node.";
    HIVE_AWAY = "hive-away" [200]
        "The hive's store cannot be used; the node goes on with safe limits.",
        "Check the hive's database; the log shows why.";
    NO_LEASE = "no-lease" [503]
        "The node does not hold the lease of a source, so it does not work on it.",
        "Nothing, if another node works on the source; otherwise look at `honeyflow hive list`.";
    STORE_AWAY = "store-away" [503]
        "The store of a source does not answer.",
        "Check the source's database.";
    WORKFLOW_STOPPED = "workflow-stopped" [200]
        "A workflow has stopped; its events wait.",
        "Look at `/v1/status` for the failure, and correct its cause.";
}
