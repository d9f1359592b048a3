//! Keys: `{hive:<name>}:<part>`, so that a cluster keeps them together and nothing is ever found by scanning.
//!
//! | part | kind | holds |
//! |---|---|---|
//! | `view` | hash | the hive's one row |
//! | `event` | stream | what happened, under `<version>-0` |
//! | `alive`, `ready`, `engaged` | sorted set | node → until when it counts as such; a score in `alive` is a row |
//! | `eligible` | set | nodes that may lead |
//! | `traffic`, `beat`, `heartbeat`, `ttl`, `name`, `warm`, `meta` | hash | node → the rest of its row |
//! | `epoch`, `holder`, `heir`, `since`, `cause` | hash | lease → its row, which is there if it has an epoch |
//! | `heirs` | sorted set | `<node>/<lease>`: what a node is heir of |
//! | `limit`, `coming` | hash | limit → its definition, and the one to come |
//! | `limit:<name>:<key>` | hash | a bucket; it expires a while after it is full |
//! | `ledger:<name>` | sorted set | keys of a limit by what was issued |
//! | `full` | sorted set | `<key><limit>` → when the bucket is full |
//! | `slots:<node>` | hash | `<key><limit>` → how many slots it has, and the number of its last ask |
//! | `none` | sorted set | `<node><key><limit>` → when a node last said that it has no slots |

use honeyflow_event::Name;
use honeyflow_hive::contract::limit::Key;

/// Of scripts about nodes and leases, in the order of their `KEYS`.
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

/// Of scripts about buckets alone, which are called often.
pub(crate) const LIMIT: &[&str] = &["view", "limit", "coming", "full"];

/// All that a hive's name decides.
pub(crate) struct Keys {
    prefix: String,
    pub hive: Vec<String>,
    pub limit: Vec<String>,
}

impl Keys {
    pub fn of(hive: &str) -> Keys {
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
