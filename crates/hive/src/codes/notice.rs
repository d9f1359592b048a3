//! Notices: log lines of a member about its hive.

honeyflow_runtime::codes! {
    ();
    BURIED = "buried" []
        "The queen removed an expired node; other nodes take over its leases.",
        "Nothing, if the node was stopped; otherwise look at that node's log.";
    CLOCK_STEP = "clock-step" []
        "The clock of the hive's database jumped, so no node is removed for a while.",
        "Check the time synchronisation of that server.";
    NOT_HANDED_OVER = "not-handed-over" []
        "A requested transfer of a lease did not happen, because no other node can take the lease.",
        "Start another node that may take it, then ask again.";
    PINNED_TWICE = "pinned-twice" []
        "This node and another one are pinned to the same shard.",
        "Give each node its own pins.";
    SHARDS_WAIT = "shards-wait" []
        "Shards wait, because no node that is pinned to them is alive.",
        "Start such a node, or set `static-only = false`.";
    STORE_WENT_BACK = "store-went-back" []
        "The hive's store shows an older state than before, as after a restore, so no node takes a lease.",
        "Make sure that this state is the right one, then run `honeyflow hive accept-restore`.";
}
