//! Reads `[hive]`, and the keys of `[node]` about the node's part in the hive. Settings that contradict each other are
//! reported at the one that the file contains.

use std::{collections::BTreeMap, path::Path, time::Duration};

use honeyflow_workflow::{Problem, problem::nearest};

use super::{
    SourceConfig, Url,
    keys::{self, HIVE_SCHEMES},
    tree::{Node, Tree},
    values::{Values, wrong_type},
};
use crate::codes;

/// How nodes share the work.
#[derive(Clone, Debug)]
pub struct HiveConfig {
    /// The hive's database; none means the first source's database.
    pub url: Option<Url>,
    pub name: String,
    pub heartbeat: Duration,
    pub time_to_live: Duration,
    pub engaged_ttl: Duration,
    pub count_every: Duration,
    pub expected_nodes: u64,
    pub store_budget: Option<u64>,
    pub require_replica: bool,
    pub one_writer: bool,
}

/// The roles of this node in the hive.
#[derive(Clone, Debug)]
pub struct RoleConfig {
    /// The node takes shards of the sources and processes their events.
    pub source: bool,
    /// The node may become queen.
    pub queen: bool,
    pub weight: u32,
    pub zone: Option<String>,
    /// For each source, the only shards that the node takes (`0-15,20`).
    pub pins: BTreeMap<String, String>,
    pub static_only: bool,
}

const ROLES: [&str; 2] = ["source", "queen"];
const ENGAGED_MAX: Duration = Duration::from_secs(30);
const TIME_TO_LIVE_MAX: Duration = Duration::from_secs(3600);
const HEARTBEAT_MIN: Duration = Duration::from_millis(50);
/// The longest name that every store accepts.
const NAME_BYTES_MAX: usize = 191;

pub fn read(tree: &Node, folder: &Path, problems: &mut Vec<Problem>) -> Option<HiveConfig> {
    let values = Values::read(tree.get("hive"), keys::HIVE, "hive", problems);
    let url = values.text("url").map(|text| Url::read(&text, folder));
    if let Some(url) = &url {
        super::read::check_scheme(url, "hive", HIVE_SCHEMES, &values.at("url"), problems);
    }
    let (heartbeat, time_to_live) = match values.text("profile")?.as_str() {
        "fast" => (Duration::from_millis(500), Duration::from_millis(1500)),
        _ => (Duration::from_secs(2), Duration::from_secs(6)),
    };
    let hive = HiveConfig {
        url,
        name: values.text("name")?,
        heartbeat: values.duration("heartbeat").unwrap_or(heartbeat),
        time_to_live: values.duration("time-to-live").unwrap_or(time_to_live),
        engaged_ttl: values.duration("engaged-ttl")?,
        count_every: values.duration("count-every")?,
        expected_nodes: values.count("expected-nodes")?,
        store_budget: values.count("store-budget"),
        require_replica: values.boolean("require-replica")?,
        one_writer: values.boolean("one-writer")?,
    };
    check_relations(&hive, &values, problems);
    Some(hive)
}

fn check_relations(hive: &HiveConfig, values: &Values<'_>, problems: &mut Vec<Problem>) {
    let HiveConfig { heartbeat, time_to_live, engaged_ttl, count_every, .. } = *hive;
    // Report at the first key that the file contains; the others have their defaults.
    let at = |keys: &[&str]| {
        let written = keys.iter().find(|key| values.node(key).is_some());
        values.at(written.unwrap_or(&"heartbeat"))
    };
    let mut wrong = |keys: &[&str], message: String, help: &str| {
        problems.push(Problem::error(at(keys), codes::problem::WRONG_RELATION, message).help(help));
    };
    if hive.name.len() > NAME_BYTES_MAX {
        wrong(&["name"], format!("the name has {} bytes", hive.name.len()), "use at most 191 bytes");
    }
    if heartbeat < HEARTBEAT_MIN {
        let message = format!("a heartbeat every {heartbeat:?} would overload the store");
        wrong(&["heartbeat"], message, "use at least 50ms");
    }
    if time_to_live < heartbeat * 3 {
        let message = format!(
            "`time-to-live` is {time_to_live:?} with a `heartbeat` of {heartbeat:?}: one lost heartbeat would expire the node"
        );
        wrong(&["time-to-live", "heartbeat"], message, "use a `time-to-live` of at least three heartbeats");
    }
    if time_to_live > TIME_TO_LIVE_MAX {
        let message =
            format!("with a `time-to-live` of {time_to_live:?} other nodes would not take over within an hour");
        wrong(&["time-to-live"], message, "use at most 1h");
    }
    if count_every < heartbeat {
        let message = format!("`count-every` is {count_every:?} with a `heartbeat` of {heartbeat:?}");
        wrong(&["count-every", "heartbeat"], message, "the queen counts at most once per heartbeat");
    }
    if engaged_ttl < heartbeat || engaged_ttl > ENGAGED_MAX {
        let message = format!("`engaged-ttl` is {engaged_ttl:?} with a `heartbeat` of {heartbeat:?}");
        let help =
            "use a value between `heartbeat` and 30s: traffic is reported with a heartbeat and counts for at most 30s";
        wrong(&["engaged-ttl", "heartbeat"], message, help);
    }
}

pub fn read_role(values: &Values<'_>, problems: &mut Vec<Problem>) -> Option<RoleConfig> {
    let roles = values.texts("roles")?;
    for (n, role) in roles.iter().enumerate().filter(|(_, role)| !ROLES.contains(&role.as_str())) {
        let problem = Problem::error(
            format!("{}[{n}]", values.at("roles")),
            codes::problem::BAD_VALUE,
            format!("there is no role `{role}`"),
        );
        problems.push(problem.help(match nearest(role, ROLES) {
            Some(word) => format!("did you mean `{word}`?"),
            None => "the roles are `source` and `queen`".to_owned(),
        }));
    }
    if let Some(name) = values.text("name").filter(|name| name.len() > NAME_BYTES_MAX) {
        let message = format!("the name has {} bytes", name.len());
        problems
            .push(Problem::error(values.at("name"), codes::problem::BAD_VALUE, message).help("use at most 191 bytes"));
    }
    Some(RoleConfig {
        source: roles.iter().any(|role| role == "source"),
        queen: roles.iter().any(|role| role == "queen"),
        weight: u32::try_from(values.count("weight")?).ok()?,
        zone: values.text("zone"),
        pins: read_pins(values, problems),
        static_only: values.boolean("static-only")?,
    })
}

fn read_pins(values: &Values<'_>, problems: &mut Vec<Problem>) -> BTreeMap<String, String> {
    let mut pins = BTreeMap::new();
    for (source, node) in values.node("pin").and_then(Node::table).into_iter().flatten() {
        let path = format!("{}.{source}", values.at("pin"));
        let Tree::Text(text) = &node.value else {
            problems.push(wrong_type(&path, "a text such as \"0-15,20\"", node));
            continue;
        };
        match ranges(text) {
            Ok(_) => drop(pins.insert(source.clone(), text.clone())),
            Err(message) => {
                problems.push(Problem::error(path, codes::problem::BAD_VALUE, message).help("for example \"0-15,20\""));
            }
        }
    }
    pins
}

/// Parses shard ranges; returns the first and the last shard of each.
fn ranges(text: &str) -> Result<Vec<(u32, u32)>, String> {
    let one = |part: &str| -> Option<(u32, u32)> {
        let (first, last) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
        Some((first.trim().parse().ok()?, last.trim().parse().ok()?))
    };
    text.split(',')
        .map(|part| match one(part) {
            None => Err(format!("`{}` is neither a shard nor a range of shards", part.trim())),
            Some((first, last)) if first > last => Err(format!("the range {first}-{last} runs backwards")),
            Some(range) => Ok(range),
        })
        .collect()
}

/// Checks that pins name existing sources and shards.
pub fn check_pins(role: &RoleConfig, sources: &[SourceConfig], problems: &mut Vec<Problem>) {
    for (name, text) in &role.pins {
        let path = format!("node.pin.{name}");
        let Some(source) = sources.iter().find(|source| *source.name == **name) else {
            let known: Vec<&str> = sources.iter().map(|source| &*source.name).collect();
            let problem = Problem::error(path, codes::problem::UNKNOWN_SOURCE, format!("there is no [source.{name}]"));
            problems.push(problem.nearest(name, known));
            continue;
        };
        let last = ranges(text).unwrap_or_default().into_iter().map(|(_, last)| last).max().unwrap_or(0);
        if last >= u32::from(source.shards) {
            let message = format!("there is no shard {last}: the source `{name}` has {}, from 0", source.shards);
            problems.push(Problem::error(path, codes::problem::OUT_OF_RANGE, message));
        }
    }
}
