//! All keys of the configuration file: name, type, default and description.
//!
//! These tables are used to read the file, for messages about unknown keys, for the defaults, and for
//! `docs/reference/configuration.md`. A default is given as it would be written in the file, and the same code reads
//! it.

/// The type of a value.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    Text,
    /// SQL with `$keys`.
    Statement,
    /// A folder or file, relative to the configuration file.
    Path,
    /// `127.0.0.1:7171`
    Address,
    /// `scheme:rest`, `env:NAME` or `file:path`.
    Url,
    /// `"5s"`
    Duration,
    /// `"8MiB"`
    Bytes,
    /// `"500/s"`
    Rate,
    /// A whole number within these bounds.
    Count(u64, u64),
    /// One of these words.
    Word(&'static [&'static str]),
    Texts,
    /// `true` or `false`.
    Boolean,
    /// Shards of each source.
    Pins,
    /// The names and types of an index's fields.
    Fields,
    /// Texts by name.
    Names,
    /// `env:NAME` or `file:path`, nothing else.
    Reference,
    /// A list of tables with these keys.
    Tables(&'static [Key]),
}

#[derive(Clone, Copy, Debug)]
pub enum Presence {
    Required,
    /// The default, as it would be written in the file.
    Default(&'static str),
    /// The key may be left out; the text says what applies then.
    Optional(&'static str),
}

#[derive(Clone, Copy, Debug)]
pub struct Key {
    pub name: &'static str,
    pub shape: Shape,
    pub presence: Presence,
    pub doc: &'static str,
}

#[derive(Clone, Copy, Debug)]
pub struct Section {
    pub name: &'static str,
    /// True for `[source.NAME]`, false for `[node]`.
    pub named: bool,
    pub doc: &'static str,
    /// Empty for `workflow`: the workflow crate defines its keys.
    pub keys: &'static [Key],
}

const fn required(name: &'static str, shape: Shape, doc: &'static str) -> Key {
    Key { name, shape, presence: Presence::Required, doc }
}

const fn default(name: &'static str, shape: Shape, written: &'static str, doc: &'static str) -> Key {
    Key { name, shape, presence: Presence::Default(written), doc }
}

const fn optional(name: &'static str, shape: Shape, otherwise: &'static str, doc: &'static str) -> Key {
    Key { name, shape, presence: Presence::Optional(otherwise), doc }
}

pub const NODE: &[Key] = &[
    default(
        "data",
        Shape::Path,
        "data",
        "The node's folder for indexes, locks and `node.json` (address, process, incarnation).",
    ),
    default(
        "listen",
        Shape::Address,
        "127.0.0.1:7171",
        "Address of the dashboard and the API. Only loopback addresses are allowed until access tokens and TLS exist.",
    ),
    optional(
        "name",
        Shape::Text,
        "the machine's name",
        "Name of the node in lists. A node that restarts under the same name gets its shards back. Two nodes may have \
         the same name.",
    ),
    default(
        "roles",
        Shape::Texts,
        "[\"source\", \"queen\"]",
        "Roles of the node. `source`: takes shards and processes their events; `queen`: may become queen. Without a \
         role the node only serves its address.",
    ),
    default(
        "weight",
        Shape::Count(0, 10_000),
        "100",
        "The node's share of the shards, and of exhausted limits, relative to the weight of other nodes. 0: no shards.",
    ),
    optional("zone", Shape::Text, "none", "Location of the node, shown in lists."),
    optional(
        "pin",
        Shape::Pins,
        "none",
        "Shards that the node takes first, and only these: `pin = { shop = \"0-15\" }`. Other nodes take them while \
         no node that is pinned to them is alive.",
    ),
    default(
        "static-only",
        Shape::Boolean,
        "false",
        "Whether shards wait, with a warning, while no node that is pinned to them is alive.",
    ),
    optional(
        "limit",
        Shape::Text,
        "none",
        "The `[limit.NAME]` for requests to `POST /v1/events`, one permit each. Requests above the limit are refused \
         with 429.",
    ),
    default(
        "drain",
        Shape::Duration,
        "5s",
        "How long the node waits for its runs when it is stopped. Unfinished events stay in the outbox.",
    ),
];

/// The URL schemes of databases that can hold a hive.
pub const HIVE_SCHEMES: &[&str] = crate::registry::HIVE_SCHEMES;

pub const HIVE: &[Key] = &[
    optional(
        "url",
        Shape::Url,
        "the first source's database",
        "Database for what nodes share: members, queen, counts and limits. The leases of a source's shards are always \
         in that source's own database.",
    ),
    default(
        "name",
        Shape::Text,
        "honeyflow",
        "Name of the hive. Several hives may share a database; they do not see \
                                               each other.",
    ),
    default(
        "profile",
        Shape::Word(&["normal", "fast"]),
        "normal",
        "`normal`: a heartbeat every 2s and a time-to-live of 6s. `fast`: 500ms and 1500ms, for a quicker take-over \
         at four times the heartbeats.",
    ),
    optional("heartbeat", Shape::Duration, "by `profile`", "Interval between the node's heartbeats."),
    optional(
        "time-to-live",
        Shape::Duration,
        "by `profile`",
        "Time after a node's last heartbeat until other nodes take over. At least three heartbeats.",
    ),
    default(
        "engaged-ttl",
        Shape::Duration,
        "30s",
        "How long a node counts as engaged after its last request. At most 30s.",
    ),
    default("count-every", Shape::Duration, "5s", "How often the queen publishes the number of nodes."),
    default(
        "expected-nodes",
        Shape::Count(1, 100_000),
        "16",
        "Number of nodes by which limits are divided until the store has published a count.",
    ),
    optional(
        "store-budget",
        Shape::Count(1, 1_000_000),
        "500; 5000 in Redis",
        "Operations per second that the database can handle for one limit, from all nodes together. With many nodes, \
         each asks less often for larger batches.",
    ),
    default(
        "require-replica",
        Shape::Boolean,
        "true",
        "For Redis with replicas: a lease counts only once a replica has it. If false, a failover of Redis may lose \
         leases.",
    ),
    default(
        "one-writer",
        Shape::Boolean,
        "false",
        "For MySQL in a cluster with several writers: confirms that all nodes connect to the same server. If false, \
         such a cluster is refused.",
    ),
];

pub const ENGINE: &[Key] = &[
    default(
        "max-runs",
        Shape::Count(1, 1_000_000),
        "20000",
        "Maximum number of runs in memory. At the maximum, \
                                                              sources are not polled.",
    ),
    default(
        "rows-max",
        Shape::Count(1, 10_000_000),
        "50000",
        "Maximum number of outbox rows in memory, waiting or in \
                                                               progress.",
    ),
    default(
        "rows-per-key-max",
        Shape::Count(1, 100_000),
        "256",
        "Maximum number of rows in memory for one key. With more, the key is skipped until its run ends.",
    ),
    default(
        "waiting-runs-max",
        Shape::Count(0, 10_000_000),
        "100000",
        "Number of runs that may wait for a time or an event without counting towards `max-runs`.",
    ),
    default("poll-rows", Shape::Count(1, 100_000), "4000", "Maximum number of rows that one poll reads."),
    default("poll-idle", Shape::Duration, "100ms", "Pause between polls of an idle source."),
    default(
        "parked-per-minute-max",
        Shape::Count(1, 1_000_000),
        "100",
        "Maximum number of events that a workflow parks per minute. Above it the workflow is held back and tries \
         one key at a time.",
    ),
    default("fan-out-page", Shape::Count(1, 100_000), "1000", "Number of keys that a fan-out stores in one page."),
    default(
        "fan-out-pending-max",
        Shape::Count(1, 10_000_000),
        "50000",
        "While this number of fan-out rows is waiting, no further page is stored.",
    ),
];

pub const SOURCE: &[Key] = &[
    required(
        "url",
        Shape::Url,
        "The database: `sqlite:path` or `postgres://user@host/database`; or a reference to its address: `env:NAME` or \
         `file:path`. A password is never written here.",
    ),
    optional(
        "shards",
        Shape::Count(1, 32_768),
        "64; 1 on SQLite",
        "Number of shards into which its events are divided. A power of two, fixed when the source is installed.",
    ),
    default(
        "payload-max",
        Shape::Bytes,
        "1MiB",
        "Maximum size of a payload. A row with a larger payload is parked \
                                                  inside the database, without being read.",
    ),
];

/// Keys of an entity that has messages only.
pub const MESSAGE: &[Key] = &[
    required("source", Shape::Text, "The source whose outbox holds the events."),
    required("kind", Shape::Word(&["row", "message"]), "`message`."),
];

pub const ENTITY: &[Key] = &[
    required("source", Shape::Text, "The source whose database holds the table."),
    default(
        "kind",
        Shape::Word(&["row", "message"]),
        "row",
        "`row`: the rows of a table, each with a document. `message`: events that the application, `event.emit` or the \
         event endpoint write; it has no other key than `source`.",
    ),
    optional("table", Shape::Text, "the entity's name", "The table. Triggers capture its changes."),
    required("key", Shape::Texts, "The columns that identify a row, in order."),
    default("columns", Shape::Texts, "[\"*\"]", "Columns whose changes make an event; `[\"*\"]` means all."),
    default("json", Shape::Texts, "[]", "Columns of the document's result that contain JSON text."),
    required(
        "document",
        Shape::Statement,
        "The statement that reads documents for many keys at once: `$keys` stands for the row set of the keys, in \
         `where id in $keys` or `join $keys k on …`. The result must contain the key columns under their names; every \
         other column is a field.",
    ),
    default(
        "priority",
        Shape::Count(0, 9),
        "4",
        "Priority of its events, from 0 (first) to 9 (last). Fan-out has 7, \
                                                  reindex 8.",
    ),
    default("untracked", Shape::Texts, "[]", "Tables that the document reads, but whose changes need not update it."),
    optional(
        "edge",
        Shape::Tables(EDGE),
        "no change of another table updates the document",
        "Other tables whose changes update the document: `[[entity.NAME.edge]]`.",
    ),
];

pub const EDGE: &[Key] = &[
    required("table", Shape::Text, "A table that the document also reads."),
    default("columns", Shape::Texts, "[\"*\"]", "Columns of this table that the document uses."),
    optional(
        "to",
        Shape::Statement,
        "none: then `key` is needed",
        "Statement that returns keys of the entity for keys of this table (`$keys`). Either `to` or `key` is needed.",
    ),
    optional(
        "key",
        Shape::Texts,
        "none: then `to` is needed",
        "Columns of this table that contain the entity's key; old and new values are captured.",
    ),
    default(
        "fan-out",
        Shape::Word(&["all", "shallow", "none"]),
        "all",
        "Which changes update the document. `all`; `shallow`: only when a row is inserted, deleted or linked to \
         another key; `none`.",
    ),
];

pub const SINK: &[Key] = &[
    required(
        "url",
        Shape::Url,
        "`tantivy:NAME`: an index with this name in the node's data folder. `cassandra:NAME`: a table of the cluster \
         `[cassandra.NAME]`.",
    ),
    default(
        "field",
        Shape::Fields,
        "{}",
        "Type of each searchable field: `title = \"text\"` or `title = { type = \"text\", language = \"en\" }`. Other \
         fields of a document are stored and shown, but not searchable.",
    ),
    default(
        "commit-interval",
        Shape::Duration,
        "100ms",
        "For an index: how long writes may wait to be committed together.",
    ),
    optional(
        "table",
        Shape::Text,
        "required with `cassandra:`",
        "Keyspace and table: `shop.book`. Its primary key consists of the parts of the entity's key, and it has a \
         column `honeyflow_version bigint`. No other program may write to it.",
    ),
    default(
        "column",
        Shape::Names,
        "{}",
        "For a table: columns that take their value from a field of another name: `{ title = \"name\" }`.",
    ),
    optional("document", Shape::Text, "none", "For a table: a column of type text for the whole document as JSON."),
    default(
        "consistency",
        Shape::Word(CONSISTENCIES),
        "local-quorum",
        "For a table: the number of replicas that must confirm a write and answer a read.",
    ),
];

pub const CONSISTENCIES: &[&str] =
    &["one", "two", "three", "quorum", "all", "local-quorum", "each-quorum", "local-one"];

/// Keys of `[cassandra.NAME.cql]`; the pool defines the keys of `[cassandra.NAME]`.
pub const CQL: &[Key] = &[
    optional("user", Shape::Text, "no login", "User name for the login."),
    optional(
        "password",
        Shape::Reference,
        "no login",
        "Reference to the password: `env:NAME` or `file:path`. It is read again for each connection.",
    ),
    default("compression", Shape::Word(&["none", "lz4", "snappy"]), "none", "Compression of the data on the network."),
    default(
        "lowest-version",
        Shape::Count(4, 5),
        "4",
        "Lowest version of the protocol. A server that supports only lower versions is not used.",
    ),
    default(
        "highest-version",
        Shape::Count(4, 5),
        "5",
        "Highest version of the protocol. It is tried first, then the \
                                                         next lower one.",
    ),
    default(
        "max-frame",
        Shape::Bytes,
        "64MiB",
        "Maximum size of an answer, from `64KiB` to `256MiB`. A larger answer closes the connection.",
    ),
    default("tls", Shape::Boolean, "false", "Whether connections use TLS. The server's name is verified."),
    optional("tls-roots", Shape::Path, "the system's certificates", "Trusted root certificates, in PEM format."),
    optional("tls-certificate", Shape::Path, "none", "Client certificate, in PEM format."),
    optional("tls-key", Shape::Path, "none", "Private key of the client certificate, in PEM format."),
    optional("tls-name", Shape::Text, "the address", "Name in the servers' certificates."),
];

pub const LIMIT: &[Key] = &[
    optional(
        "rate",
        Shape::Rate,
        "none: then `concurrent` is needed",
        "Permits per time, for all nodes together: `500/s`, `1000/min`, `100/10s`, `3/h`. `10000/month` is a quota \
         that starts again with each calendar month.",
    ),
    optional(
        "burst",
        Shape::Count(1, 1_000_000_000),
        "the permits of 200ms; for periods of a minute or more, all permits of the period",
        "For a rate: the number of permits that may be used at once. In any t seconds at most `rate` × t + `burst` \
         permits are issued, for all nodes together.",
    ),
    optional(
        "concurrent",
        Shape::Count(1, 1_000_000_000),
        "none: then `rate` is needed",
        "Number of slots for all nodes together, instead of a rate. An item of a step holds its slot until its \
         outcome is known, however it ends; a request to the event endpoint holds it until its answer is sent.",
    ),
    default(
        "mode",
        Shape::Word(&["auto", "exact"]),
        "auto",
        "For a rate. `auto`: nodes take batches of permits from the store, except for small limits; `exact`: nodes \
         ask the store for each permit.",
    ),
    default(
        "on-outage",
        Shape::Word(&["safe", "closed", "open"]),
        "safe",
        "While the store does not answer. `safe`: each engaged node uses only its share; `closed`: nothing passes; \
         `open`: everything passes. For `concurrent`, `safe` and `closed` are the same: a node keeps the slots that \
         it holds, and gets no more.",
    ),
    optional(
        "key",
        Shape::Text,
        "one count for all requests",
        "For the event endpoint: the request header whose values are counted separately, such as `x-client`. Each \
         value has the whole rate, or all slots.",
    ),
    default(
        "max-keys",
        Shape::Count(1, 10_000_000),
        "100000",
        "Maximum number of keys that a node counts separately. \
                                                                Further keys share one count.",
    ),
    default(
        "shadow",
        Shape::Boolean,
        "false",
        "Whether the limit only counts the requests that it would refuse, and \
                                                refuses none.",
    ),
    default(
        "old-headers",
        Shape::Boolean,
        "false",
        "For the event endpoint: whether to send `X-RateLimit-Limit`, `-Remaining` and `-Reset` in addition to \
         `RateLimit` and `RateLimit-Policy`.",
    ),
];

pub const SECTIONS: &[Section] = &[
    Section { name: "node", named: false, doc: "This process.", keys: NODE },
    Section {
        name: "engine",
        named: false,
        doc: "Limits of the work in memory. Every queue is bounded.",
        keys: ENGINE,
    },
    Section { name: "hive", named: false, doc: "How several nodes share the work.", keys: HIVE },
    Section { name: "source", named: true, doc: "Where events come from: the outbox in a SQL database.", keys: SOURCE },
    Section {
        name: "entity",
        named: true,
        doc: "A table whose rows change, and the document that is built from each row.",
        keys: ENTITY,
    },
    Section {
        name: "sink",
        named: true,
        doc: "Where documents are written. Every write carries a version; a sink refuses older versions.",
        keys: SINK,
    },
    Section {
        name: "cassandra",
        named: true,
        doc: "A cluster of Cassandra servers with its connection pool. All sinks of a cluster share the pool.",
        keys: &[],
    },
    Section { name: "workflow", named: true, doc: "What happens when an entity changes: a graph of steps.", keys: &[] },
    Section {
        name: "limit",
        named: true,
        doc: "A limit for all nodes together. Steps (`limit = \"NAME\"`) wait for a permit; the event endpoint \
              (`[node] limit`) refuses. A value set with `honeyflow limit set` lasts until `rate`, `burst` or \
              `concurrent` is changed here.",
        keys: LIMIT,
    },
];

/// Keys of `[workflow.NAME]`, for the reference only: the workflow crate reads them.
pub const WORKFLOW: &[(&str, &str, &str)] = &[
    (
        "on",
        "list of `{ source, entity, change, columns, when, existing }`",
        "Which events start a run. `change` lists what must have happened to the row: `insert`, `update`, `delete`, \
         `related` (another table's row that its document reads); default: all. `columns` narrows updates to those of \
         these columns. `when` is an expression over `$event`. `existing = true`: rows that were there before the \
         workflow start a run, too.",
    ),
    ("step", "table of steps", "`step.NAME = { use = \"…\", … }`: the graph."),
    (
        "exclusion",
        "`key`, `workflow` or `none`",
        "Which runs of one key exclude each other. Default: `key`, or `workflow` if a step sleeps or waits.",
    ),
    (
        "order",
        "`latest`, `strict` or `none`",
        "`latest`: changes of one key are merged; `strict`: they are processed one by one, in order.",
    ),
    ("priority", "0 … 9", "Priority of its runs at dispatch; default: that of the event."),
    (
        "deadline",
        "duration",
        "A run that takes longer, including waits and retries, is parked as `deadline`. The time counts from the \
         start of the run, and across restarts once an output is stored. Default: none.",
    ),
    ("on-failure", "`finish` or `stop`", "Whether branches that do not depend on a failed step continue."),
    ("unmatched", "`ack` or `park`", "What happens to an event for which no `when` is true."),
    ("history", "`none`, `failed`, `sample` or `all`", "Which ended runs are stored for inspection."),
];

/// Keys that every step has.
pub const STEP: &[(&str, &str, &str)] = &[
    ("use", "kind of step", "Required; the kinds are listed below."),
    (
        "needs",
        "list of steps",
        "Steps that this step depends on: names, or `{ step, on }` with `on` = `success`, `done` or `failure`.",
    ),
    (
        "trigger",
        "word",
        "`all-success` (default), `none-failed`, `one-success`, `all-done`, `one-failed`, `all-failed`.",
    ),
    ("when", "expression", "False or null: the step is skipped."),
    ("else", "`delete` or `keep`", "What a sink does if its `when` is false."),
    ("optional", "true or false", "Its failure does not fail the run."),
    ("forgives", "true or false", "Its success cancels the failure of the steps that it needs."),
    (
        "for-each",
        "expression",
        "Expression for a list: the step runs once for each element, with `$item` and `$index`.",
    ),
    ("parallel", "number", "Maximum number of instances of `for-each` at the same time (64)."),
    ("tolerate", "number", "Number of instances of `for-each` that may fail (0)."),
    ("input", "expression", "Input of the step; default: the output of the step that it needs, or the event."),
    ("tries", "number", "Counted attempts until the run is parked (5)."),
    (
        "backoff",
        "`{ base, cap }`",
        "Pause between attempts while the target is down (from `200ms`, doubling up to \
                                    `60s`).",
    ),
    ("timeout", "duration", "Time limit of one attempt; default by kind."),
    ("give-up-after", "duration", "How long to retry a target that is down. Default: for ever."),
    ("batch", "number", "Maximum number of runs in one batch; default by kind."),
    (
        "limit",
        "name",
        "A `[limit.NAME]` from which every attempt of every run takes a permit, or a slot while it lasts. A run \
         without a permit waits; that is not a failure.",
    ),
    (
        "checkpoint",
        "`always` or `never`",
        "Whether its output is stored, so that a repeated run does not execute the step again; default by kind.",
    ),
    ("on-missing", "`run` or `pass`", "Whether the step runs even if the row is gone."),
    ("labels", "table", "Labels that a worker needs to get the step."),
];
