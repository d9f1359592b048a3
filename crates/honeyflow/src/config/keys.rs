//! Every key of the configuration file: its name, what it holds, its default, what it is for.
//!
//! One table feeds reading, the messages about unknown keys, the defaults and `docs/reference/configuration.md`; a
//! default stands here as it would be written in the file and is read by the same code.

/// What a value must look like.
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
    /// By source: which of its shards.
    Pins,
    /// Names and types of an index's fields.
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
    /// As it would be written.
    Default(&'static str),
    /// May be left out; this is what happens then.
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
    /// `[source.NAME]` rather than `[node]`.
    pub named: bool,
    pub doc: &'static str,
    /// Empty for `workflow`: its keys are those of the workflow's definition.
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
        "Folder of the node: indexes, `node.json` (address, process, incarnation), locks.",
    ),
    default(
        "listen",
        Shape::Address,
        "127.0.0.1:7171",
        "Address of the dashboard and the API. Only loopback addresses, until access tokens and TLS exist.",
    ),
    optional(
        "name",
        Shape::Text,
        "the machine's name",
        "What the node is called in lists. A node that comes back under its name gets its shards back; two nodes may share one.",
    ),
    default(
        "roles",
        Shape::Texts,
        "[\"source\", \"queen\"]",
        "What it does for the others: `source`: takes shards and works on their events; `queen`: may be the one that counts. \
         With neither it only serves its address.",
    ),
    default(
        "weight",
        Shape::Count(0, 10_000),
        "100",
        "Its part of the shards, and of limits that are used up, against that of others; 0 = no shards.",
    ),
    optional("zone", Shape::Text, "not told", "Where it stands: shown in lists."),
    optional(
        "pin",
        Shape::Pins,
        "none",
        "Takes these shards first, and no others: `pin = { shop = \"0-15\" }`. Others take them while no node that is \
         pinned to them lives.",
    ),
    default(
        "static-only",
        Shape::Boolean,
        "false",
        "Shards without a node that is pinned to them wait, and it says so.",
    ),
    optional(
        "limit",
        Shape::Text,
        "none",
        "A `[limit.NAME]` that requests to `POST /v1/events` keep to, one permit each; above it they are refused with 429.",
    ),
    default(
        "drain",
        Shape::Duration,
        "5s",
        "How long runs may finish when the node is told to stop. What is left stays in the outbox.",
    ),
];

/// Databases that a hive can live in.
pub const HIVE_SCHEMES: &[&str] = crate::registry::HIVE_SCHEMES;

pub const HIVE: &[Key] = &[
    optional(
        "url",
        Shape::Url,
        "the first source's database",
        "Where nodes meet: who lives, who is queen, how many are engaged, the limits. What protects a source's events always \
         stands in that source's own database.",
    ),
    default("name", Shape::Text, "honeyflow", "Several hives may share a database and never see each other."),
    default(
        "profile",
        Shape::Word(&["normal", "fast"]),
        "normal",
        "`normal`: beats every 2s and lives for 6s; `fast`: 500ms and 1500ms, for quicker take-over and four times the beats.",
    ),
    optional("heartbeat", Shape::Duration, "by `profile`", "How often the node says that it lives."),
    optional(
        "time-to-live",
        Shape::Duration,
        "by `profile`",
        "How long after its last heartbeat others take over. At least three heartbeats.",
    ),
    default(
        "engaged-ttl",
        Shape::Duration,
        "30s",
        "How long a node counts as engaged after its last traffic. At most 30s.",
    ),
    default("count-every", Shape::Duration, "5s", "How often the queen publishes how many nodes there are."),
    default(
        "expected-nodes",
        Shape::Count(1, 100_000),
        "16",
        "By how many nodes limits are divided as long as the store has told none.",
    ),
    optional(
        "store-budget",
        Shape::Count(1, 1_000_000),
        "500; 5000 in Redis",
        "Operations a second that the database bears for one limit, from all nodes together. With many nodes each asks less \
         often, for larger batches.",
    ),
    default(
        "require-replica",
        Shape::Boolean,
        "true",
        "Redis with replicas: a lease counts once one of them has it. Without, a failover of Redis may forget it.",
    ),
    default(
        "one-writer",
        Shape::Boolean,
        "false",
        "MySQL in a cluster of several writers: says that all nodes reach one and the same server. Others are refused.",
    ),
];

pub const ENGINE: &[Key] = &[
    default("max-runs", Shape::Count(1, 1_000_000), "20000", "Runs in memory. Above it sources are not polled."),
    default("rows-max", Shape::Count(1, 10_000_000), "50000", "Outbox rows known to the node, waiting or in work."),
    default(
        "rows-per-key-max",
        Shape::Count(1, 100_000),
        "256",
        "Rows remembered for one key; with more, the key is passed over until its run ends.",
    ),
    default(
        "waiting-runs-max",
        Shape::Count(0, 10_000_000),
        "100000",
        "Runs that wait for a time or an event take no room of `max-runs`, up to so many.",
    ),
    default("poll-rows", Shape::Count(1, 100_000), "4000", "Rows read by one poll, at most."),
    default("poll-idle", Shape::Duration, "100ms", "Pause between polls of a source that has been quiet for a while."),
    default(
        "parked-per-minute-max",
        Shape::Count(1, 1_000_000),
        "100",
        "A workflow that would park more is held instead, and probed with one key at a time.",
    ),
    default(
        "fan-out-page",
        Shape::Count(1, 100_000),
        "1000",
        "Documents reached by one change are stored page by page, so many at a time.",
    ),
    default(
        "fan-out-pending-max",
        Shape::Count(1, 10_000_000),
        "50000",
        "While so many rows of fan-outs wait, no further page is stored.",
    ),
];

pub const SOURCE: &[Key] = &[
    required(
        "url",
        Shape::Url,
        "The database: `sqlite:path`, `postgres://user@host/database`; or where its address is kept: `env:NAME`, `file:path`. A password is never written here.",
    ),
    optional(
        "shards",
        Shape::Count(1, 32_768),
        "64; 1 on SQLite",
        "In how many parts nodes share its events. A power of two, fixed when the tables are made.",
    ),
    default("payload-max", Shape::Bytes, "1MiB", "A row with a larger payload is parked inside the database, unread."),
];

pub const ENTITY: &[Key] = &[
    required("source", Shape::Text, "The source whose database holds the table."),
    optional("table", Shape::Text, "the entity's name", "The table. Its changes are captured by triggers."),
    required("key", Shape::Texts, "The columns that name a row, in order."),
    default(
        "columns",
        Shape::Texts,
        "[\"*\"]",
        "Columns whose change matters. A change of others makes no event; `[\"*\"]` is all.",
    ),
    default("json", Shape::Texts, "[]", "Result columns of the document that hold JSON text."),
    required(
        "document",
        Shape::Statement,
        "The statement that reads documents, for many keys at once: `$keys` stands for the row set of the keys, in \
         `where id in $keys` or `join $keys k on …`. The result has the key columns under their names; every other column is a field.",
    ),
    default("priority", Shape::Count(0, 9), "4", "Of its events: 0 first … 9 last. Fan-out has 7, reindex 8."),
    default(
        "untracked",
        Shape::Texts,
        "[]",
        "Tables that the document reads although their changes need not reach it.",
    ),
    optional(
        "edge",
        Shape::Tables(EDGE),
        "no other table's change touches the document",
        "The ways back from other tables to the documents that use them: `[[entity.NAME.edge]]`.",
    ),
];

pub const EDGE: &[Key] = &[
    required("table", Shape::Text, "The table that documents also read."),
    default("columns", Shape::Texts, "[\"*\"]", "Its columns that documents use."),
    optional(
        "to",
        Shape::Statement,
        "`key` is given instead",
        "One of `to` and `key` is needed. From keys of this table (`$keys`) to keys of the entity.",
    ),
    optional(
        "key",
        Shape::Texts,
        "`to` is given instead",
        "Columns of this table that are themselves the entity's key; old and new values are captured.",
    ),
    default(
        "fan-out",
        Shape::Word(&["all", "shallow", "none"]),
        "all",
        "`all`; `shallow`: only when the row comes, goes or is linked elsewhere; `none`.",
    ),
];

pub const SINK: &[Key] = &[
    required(
        "url",
        Shape::Url,
        "`tantivy:NAME`: an index of that name under the node's data folder. `cassandra:NAME`: a table of the cluster \
         `[cassandra.NAME]`.",
    ),
    default(
        "field",
        Shape::Fields,
        "{}",
        "Type of each field that is searched: `title = \"text\"` or `title = { type = \"text\", language = \"en\" }`. \
         Other fields of a document are kept and shown, not searched.",
    ),
    default(
        "commit-interval",
        Shape::Duration,
        "100ms",
        "Of an index: how long writes may wait to be committed together.",
    ),
    optional(
        "table",
        Shape::Text,
        "required with `cassandra:`",
        "Keyspace and table: `shop.book`. Its primary key is made of the parts of the entity's key, and it has a column \
         `honeyflow_version bigint`. Nobody else writes to it.",
    ),
    default(
        "column",
        Shape::Names,
        "{}",
        "Of a table: the field that a column holds, where that is not the field of its own name: `{ title = \"name\" }`.",
    ),
    optional(
        "document",
        Shape::Text,
        "none",
        "Of a table: the column, of type text, that holds the whole document as JSON.",
    ),
    default(
        "consistency",
        Shape::Word(CONSISTENCIES),
        "local-quorum",
        "Of a table: how many replicas must have a write, and are asked in a read.",
    ),
];

pub const CONSISTENCIES: &[&str] =
    &["one", "two", "three", "quorum", "all", "local-quorum", "each-quorum", "local-one"];

/// Below `[cassandra.NAME.cql]`; the keys of `[cassandra.NAME]` are the pool's.
pub const CQL: &[Key] = &[
    optional("user", Shape::Text, "no login", "Who we are."),
    optional(
        "password",
        Shape::Reference,
        "no login",
        "Where the password is kept: `env:NAME` or `file:path`. Read anew for each connection.",
    ),
    default("compression", Shape::Word(&["none", "lz4", "snappy"]), "none", "Of what goes over the wire."),
    default(
        "lowest-version",
        Shape::Count(4, 5),
        "4",
        "Of the protocol; a server that speaks none so high is not used.",
    ),
    default("highest-version", Shape::Count(4, 5), "5", "Of the protocol; tried first, then the one below."),
    default(
        "max-frame",
        Shape::Bytes,
        "64MiB",
        "The longest answer that is taken, `64KiB` to `256MiB`; a longer one ends its connection.",
    ),
    default("tls", Shape::Boolean, "false", "Whether connections are by TLS; the server's name is verified."),
    optional("tls-roots", Shape::Path, "those of the system", "Whom to believe, in PEM."),
    optional("tls-certificate", Shape::Path, "none", "Our own certificate, in PEM."),
    optional("tls-key", Shape::Path, "none", "Its key, in PEM."),
    optional("tls-name", Shape::Text, "the address", "The name that the servers' certificates bear."),
];

pub const LIMIT: &[Key] = &[
    optional(
        "rate",
        Shape::Rate,
        "none: then `concurrent` is needed",
        "So many per time, over all nodes: `500/s`, `1000/min`, `100/10s`, `3/h`; `10000/month` is full again with each month.",
    ),
    optional(
        "burst",
        Shape::Count(1, 1_000_000_000),
        "a fifth of a second's worth; the whole count from a minute on",
        "Of a rate, so many may come at once. In any time of t seconds at most `rate` × t + `burst` pass, over all nodes.",
    ),
    optional(
        "concurrent",
        Shape::Count(1, 1_000_000_000),
        "none: then `rate` is needed",
        "So many at once, over all nodes, instead of a rate. A step's item holds its place until its outcome is known, \
         however it ends; a request at the door until its answer is sent.",
    ),
    default(
        "mode",
        Shape::Word(&["auto", "exact"]),
        "auto",
        "Of a rate. `auto`: nodes draw batches from the store, small limits ask it each time; `exact`: it is asked \
         each time.",
    ),
    default(
        "on-outage",
        Shape::Word(&["safe", "closed", "open"]),
        "safe",
        "While the store does not answer: `safe`: each engaged node keeps to its share; `closed`: nothing passes; `open`: \
         everything does. Of `concurrent`, `safe` and `closed` are the same: a node has the places that it holds, \
         and no more.",
    ),
    optional(
        "key",
        Shape::Text,
        "one for all requests",
        "At the door: the request header by whose value is counted, `x-client` for one. Each value has the whole rate, \
         or so many places.",
    ),
    default("max-keys", Shape::Count(1, 10_000_000), "100000", "Keys that a node remembers; further ones share one."),
    default("shadow", Shape::Boolean, "false", "Counts what it would refuse, and refuses nothing."),
    default(
        "old-headers",
        Shape::Boolean,
        "false",
        "At the door: `X-RateLimit-Limit`, `-Remaining` and `-Reset` beside `RateLimit` and `RateLimit-Policy`.",
    ),
];

pub const SECTIONS: &[Section] = &[
    Section { name: "node", named: false, doc: "This process.", keys: NODE },
    Section {
        name: "engine",
        named: false,
        doc: "Bounds of what is worked on at once. Every queue has one.",
        keys: ENGINE,
    },
    Section { name: "hive", named: false, doc: "How several nodes share the work.", keys: HIVE },
    Section { name: "source", named: true, doc: "Where events come from: the outbox in a SQL database.", keys: SOURCE },
    Section {
        name: "entity",
        named: true,
        doc: "What changes in the database, and the document that is made of it.",
        keys: ENTITY,
    },
    Section {
        name: "sink",
        named: true,
        doc: "Where documents go. Writes carry versions; older ones are refused.",
        keys: SINK,
    },
    Section {
        name: "cassandra",
        named: true,
        doc: "A cluster of Cassandra servers, reached through a pool. All sinks of a cluster share its pool.",
        keys: &[],
    },
    Section { name: "workflow", named: true, doc: "What is done when an entity changes: a graph of steps.", keys: &[] },
    Section {
        name: "limit",
        named: true,
        doc: "Limits that hold for all nodes together. Steps (`limit = \"NAME\"`) wait for them, the door (`[node] limit`) refuses. \
              What somebody sets with `honeyflow limit set` lasts until `rate`, `burst` or `concurrent` is changed here.",
        keys: LIMIT,
    },
];

/// Keys of `[workflow.NAME]`; read by the workflow itself, told here for people.
pub const WORKFLOW: &[(&str, &str, &str)] = &[
    ("on", "list of `{ source, entity, when }`", "Which events begin a run; `when` is an expression over `$event`."),
    ("step", "table of steps", "`step.NAME = { use = \"…\", … }`: the graph."),
    (
        "exclusion",
        "`key`, `workflow` or `none`",
        "Which runs of one key may not be open together. `key`, or `workflow` where a step sleeps or waits.",
    ),
    (
        "order",
        "`latest`, `strict` or `none`",
        "`latest`: changes of one key merge; `strict`: one by one, as they came.",
    ),
    ("priority", "0 … 9", "Of its runs at dispatch; default: that of the event."),
    (
        "deadline",
        "duration",
        "A run that takes longer, waits and retries included, is parked as `deadline`. It counts from where the run began, over restarts once an output is stored. None by default.",
    ),
    ("on-failure", "`finish` or `stop`", "Whether branches that do not depend on a failed step go on."),
    ("unmatched", "`ack` or `park`", "What becomes of an event that no `when` lets in."),
    ("history", "`none`, `failed`, `sample` or `all`", "Which ended runs are kept to be looked at."),
];

/// Keys that every step has.
pub const STEP: &[(&str, &str, &str)] = &[
    ("use", "kind of step", "Required; the kinds are listed below."),
    (
        "needs",
        "list of steps",
        "Steps that come before: names, or `{ step, on }` with `on` = `success`, `done` or `failure`.",
    ),
    (
        "trigger",
        "word",
        "`all-success` (default), `none-failed`, `one-success`, `all-done`, `one-failed`, `all-failed`.",
    ),
    ("when", "expression", "False or null: the step is skipped."),
    ("else", "`delete` or `keep`", "What a sink does when its `when` is false."),
    ("optional", "true or false", "Its failure does not fail the run."),
    ("forgives", "true or false", "Its success forgives the failure of the steps it needs."),
    ("for-each", "expression", "A list: one instance of the step for each element, `$item` and `$index`."),
    ("parallel", "number", "Instances at once (64)."),
    ("tolerate", "number", "Instances that may fail (0)."),
    ("input", "expression", "What it works on; default: the output of what it needs, or the event."),
    ("tries", "number", "Rejections until the run is parked (5)."),
    ("backoff", "`{ base, cap }`", "Pause between tries while the target is down (`200ms` doubling to `60s`)."),
    ("timeout", "duration", "Of one attempt; default by kind."),
    ("give-up-after", "duration", "How long to retry a target that is down. Without end by default."),
    ("batch", "number", "Runs in one batch; default by kind."),
    (
        "limit",
        "name",
        "A `[limit.NAME]` of which every attempt of every run takes a permit, or holds a place while it lasts. \
         Whoever has none waits; that is no failure.",
    ),
    (
        "checkpoint",
        "`always` or `never`",
        "Whether its output is stored, so that it is not computed again; default by kind.",
    ),
    ("on-missing", "`run` or `pass`", "Whether it runs although the row is gone."),
    ("labels", "table", "What a worker must offer to be given the step."),
];
