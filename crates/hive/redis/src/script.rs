//! The scripts, one per request. Each consists of the names of its keys, the shared parts it uses, and its body.
//!
//! Scripts are called by their hash. If the server does not know a script yet, the hive sends the text once.

use std::sync::LazyLock;

use crate::key;

pub(crate) struct Script {
    /// What the script does, for messages: a verb and an object.
    pub doing: &'static str,
    pub hash: String,
    pub text: String,
}

const TIME: &str = include_str!("script/part/time.lua");
const VIEW: &str = include_str!("script/part/view.lua");
const SLOTS: &str = include_str!("script/part/slots.lua");
const NODE: &str = include_str!("script/part/node.lua");
const LEASE: &str = include_str!("script/part/lease.lua");
const STATUS: &str = include_str!("script/part/status.lua");
const WHOLE: &str = include_str!("script/part/whole.lua");
const BUCKET: &str = include_str!("script/part/bucket.lua");

/// Each part uses the parts before it.
const HIVE: &[&str] = &[TIME, VIEW];
const NODES: &[&str] = &[TIME, VIEW, SLOTS, NODE];
const LEASES: &[&str] = &[TIME, VIEW, SLOTS, NODE, LEASE];
const BEATS: &[&str] = &[TIME, VIEW, SLOTS, NODE, STATUS];
const EVERYTHING: &[&str] = &[TIME, VIEW, SLOTS, NODE, LEASE, WHOLE];
const SHARES: &[&str] = &[TIME, VIEW, SLOTS, NODE, BUCKET];
const BUCKETS: &[&str] = &[TIME, BUCKET];

impl Script {
    fn new(doing: &'static str, keys: &[&str], parts: &[&str], body: &str) -> Script {
        let mut text = format!("local fixed = {}\n", keys.len());
        for (n, key) in keys.iter().enumerate() {
            text += &format!("local k_{key} = KEYS[{}]\n", n + 1);
        }
        // The prefix is the text before `:view`.
        text += "local prefix = string.sub(k_view, 1, -6)\n";
        for part in parts.iter().chain([&body]) {
            text += part;
        }
        Script { doing, hash: redis::Script::new(&text).get_hash().to_owned(), text }
    }
}

macro_rules! scripts {
    ($($name:ident: $doing:literal, $keys:ident, $parts:ident;)*) => {
        pub(crate) struct Scripts { $(pub $name: Script,)* }

        static SCRIPTS: LazyLock<Scripts> = LazyLock::new(|| Scripts {
            $($name: Script::new(
                $doing, key::$keys, $parts, include_str!(concat!("script/", stringify!($name), ".lua")),
            ),)*
        });
    };
}

scripts! {
    join: "join the hive", HIVE, BEATS;
    beat: "beat", HIVE, BEATS;
    leave: "leave the hive", HIVE, NODES;
    bury: "remove expired nodes", HIVE, NODES;
    mend: "repair stored times", HIVE, NODES;
    tally: "count the nodes", HIVE, NODES;
    look: "read leases", HIVE, LEASES;
    take: "take a lease", HIVE, LEASES;
    hand_over: "hand over a lease", HIVE, LEASES;
    release: "release a lease", HIVE, LEASES;
    set_heir: "name a successor", HIVE, LEASES;
    count: "count the nodes", HIVE, LEASES;
    missed: "record a missed chore", HIVE, LEASES;
    sweep: "sweep the hive", HIVE, LEASES;
    view: "read the view", HIVE, EVERYTHING;
    events: "read events", HIVE, EVERYTHING;
    history: "read events", HIVE, HIVE;
    new_lineage: "record the lineage", HIVE, HIVE;
    behind: "record the lineage", HIVE, HIVE;
    accept_restore: "accept a restore", HIVE, HIVE;
    draw: "draw from a limit", LIMIT, BUCKETS;
    exact: "ask a limit", LIMIT, BUCKETS;
    refund: "give back to a limit", LIMIT, BUCKETS;
    slots: "ask for slots", HIVE, SHARES;
    set_limit: "define a limit", HIVE, HIVE;
    limits: "read the limits", LIMIT, BUCKETS;
    ledger: "read a limit's ledger", LIMIT, BUCKETS;
}

pub(crate) fn scripts() -> &'static Scripts {
    &SCRIPTS
}
