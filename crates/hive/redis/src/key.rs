//! Keys: `{hive:<name>}:<part>`. The hash tag keeps all keys of a hive on one server of a cluster. No script scans for
//! keys.
//!
//! | part | kind | holds |
//! |---|---|---|
//! | `view` | hash | the one row of the hive |
//! | `event` | stream | the events, under `<version>-0` |
//! | `alive`, `ready`, `engaged` | sorted set | node → until when it counts as such; a node in `alive` has a row |
//! | `eligible` | set | nodes that may lead |
//! | `traffic`, `beat`, `heartbeat`, `ttl`, `name`, `warm`, `meta` | hash | node → the rest of its row |
//! | `epoch`, `holder`, `heir`, `since`, `cause` | hash | lease → its row; a lease with an epoch has a row |
//! | `heirs` | sorted set | `<node>/<lease>`: the leases of which a node is the successor |
//! | `limit`, `coming` | hash | limit → the definition in force, and the next one |
//! | `limit:<name>:<key>` | hash | a bucket; it expires a while after it is full |
//! | `ledger:<name>` | sorted set | keys of a limit by how much was issued |
//! | `full` | sorted set | `<key><limit>` → when the bucket is full |
//! | `slots:<node>` | hash | `<key><limit>` → how many slots the node has, and the number of its last request |
//! | `none` | sorted set | `<node><key><limit>` → when a node last reported that it has no slots |

use honeyflow_event::Name;
use honeyflow_hive::contract::limit::Key;

/// The keys of scripts about nodes and leases, in the order of `KEYS`.
pub(crate) const HIVE: &[&str] = &[
    "view",
    "event",
    "alive",
    "ready",
    "engaged",
    "eligible",
    "traffic",
    "beat",
    "heartbeat",
    "ttl",
    "name",
    "warm",
    "meta",
    "epoch",
    "holder",
    "heir",
    "heirs",
    "since",
    "cause",
    "limit",
    "coming",
    "full",
    "none",
];

/// The keys of scripts that use only buckets; these scripts run often.
pub(crate) const LIMIT: &[&str] = &["view", "limit", "coming", "full"];

/// The keys of one hive, derived from its name.
pub(crate) struct Keys {
    prefix: String,
    pub hive: Vec<String>,
    pub limit: Vec<String>,
}

impl Keys {
    pub fn for_hive(hive: &str) -> Keys {
        let prefix = format!("{{hive:{hive}}}");
        let all = |parts: &[&str]| parts.iter().map(|part| format!("{prefix}:{part}")).collect();
        Keys { hive: all(HIVE), limit: all(LIMIT), prefix }
    }

    pub fn bucket(&self, limit: &Name, key: Key) -> String {
        format!("{}:limit:{limit}:{key}", self.prefix)
    }

    pub fn ledger(&self, limit: &Name) -> String {
        format!("{}:ledger:{limit}", self.prefix)
    }
}
