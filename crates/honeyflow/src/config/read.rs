//! Turns the tree into a [`Config`]. A part that cannot be read is reported and left out, and reading continues, so
//! that all problems are reported at once.

use std::{collections::BTreeMap, path::Path};

use honeyflow_workflow::{Catalogue, Definition, Problem, Severity, problem::nearest};

use super::{
    Columns, Config, EdgeBy, EdgeConfig, EngineConfig, EntityConfig, FanOut, MessageConfig, NodeConfig, SinkConfig,
    SourceConfig, TableConfig, Url, cassandra, cross, existing, fields, hive, keys,
    keys::SECTIONS,
    limit,
    tree::Node,
    values::{Values, wrong_type},
};
use crate::{
    codes,
    registry::{SHARDS_DEFAULT, SOURCE_SCHEMES},
};

pub fn read(file: &Path, tree: &Node, kinds: &Catalogue) -> (Option<Config>, Vec<Problem>) {
    let mut problems = Vec::new();
    let folder = file.parent().unwrap_or(Path::new(""));
    check_sections(tree, &mut problems);
    let node = read_node(tree, folder, &mut problems);
    let engine = read_engine(tree, &mut problems);
    let hive = hive::read(tree, folder, &mut problems);
    let sources =
        named(tree, "source", &mut problems, |name, node, problems| read_source(name, node, folder, problems));
    let (mut entities, messages) = split(named(tree, "entity", &mut problems, read_entity));
    let sinks = named(tree, "sink", &mut problems, |name, node, problems| read_sink(name, node, folder, problems));
    let clusters =
        named(tree, "cassandra", &mut problems, |name, node, problems| cassandra::read(name, node, folder, problems));
    let limits = named(tree, "limit", &mut problems, limit::read);
    let workflows =
        named(tree, "workflow", &mut problems, |name, node, problems| read_workflow(name, node, kinds, problems));
    if let Some(node) = &node {
        hive::check_pins(&node.role, &sources, &mut problems);
    }
    report_columns(&mut entities, &workflows);
    cross::check(tree, &entities, &messages, &sinks, &workflows, &mut problems);
    existing::check(kinds, &entities, &sinks, &workflows, &mut problems);
    let failed = problems.iter().any(|problem| problem.severity == Severity::Error);
    let config = node.zip(engine).zip(hive).filter(|_| !failed).map(|((node, engine), hive)| Config {
        file: file.to_owned(),
        node,
        engine,
        hive,
        sources,
        entities,
        messages,
        sinks,
        clusters,
        workflows,
        limits,
    });
    (config, problems)
}

fn check_sections(tree: &Node, problems: &mut Vec<Problem>) {
    for (name, node) in tree.table().into_iter().flatten() {
        if SECTIONS.iter().any(|section| section.name == name) {
            continue;
        }
        let message = match node.table() {
            Some(_) => format!("there is no section [{name}]"),
            None => format!("`{name}` is outside of any section"),
        };
        let words = || SECTIONS.iter().map(|section| section.name);
        let help = nearest(name, words()).map_or_else(
            || format!("the sections are {}", words().map(|name| format!("[{name}]")).collect::<Vec<_>>().join(", ")),
            |word| format!("did you mean [{word}]?"),
        );
        problems.push(Problem::error(name, codes::problem::UNKNOWN_SECTION, message).help(help));
    }
}

/// Reads all tables `[section.NAME]`. A table that is missing from the result has been reported.
fn named<T>(
    tree: &Node,
    section: &str,
    problems: &mut Vec<Problem>,
    read: impl Fn(&str, &Node, &mut Vec<Problem>) -> Option<T>,
) -> Vec<T> {
    let Some(node) = tree.get(section) else { return Vec::new() };
    let Some(entries) = node.table() else {
        problems.push(wrong_type(section, "a table", node).help(format!("write [{section}.NAME]")));
        return Vec::new();
    };
    let mut all = Vec::new();
    for (name, node) in entries {
        let path = format!("{section}.{name}");
        if node.table().is_none() {
            // For example `[source]` with `url = …`: the name is missing.
            problems.push(
                Problem::error(
                    path,
                    codes::problem::MISSING_NAME,
                    format!("[{section}] needs a name: `{name}` is a key of the {section}"),
                )
                .help(format!("write [{section}.NAME] and put `{name}` below it")),
            );
            continue;
        }
        if !is_name(name) {
            let help = format!("lower-case letters, digits and `_`, a letter first: [{section}.{}]", name_of(name));
            problems.push(
                Problem::error(
                    path,
                    codes::problem::BAD_NAME,
                    format!(
                        "`{name}` cannot be the name of {} {section}",
                        if section == "entity" { "an" } else { "a" }
                    ),
                )
                .help(help),
            );
        }
        all.extend(read(name, node, problems));
    }
    all
}

const NAME_BYTES_MAX: usize = 63;

/// Whether this is a valid name. Names are used in expressions, tables and file names.
pub fn is_name(name: &str) -> bool {
    name.len() <= NAME_BYTES_MAX
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
}

/// Makes a valid name from any text: `order line` → `order_line`.
pub fn name_of(text: &str) -> String {
    let mut name = String::new();
    for character in text.chars().flat_map(char::to_lowercase) {
        match character {
            'ä' => name.push_str("ae"),
            'ö' => name.push_str("oe"),
            'ü' => name.push_str("ue"),
            'ß' => name.push_str("ss"),
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if name.ends_with('_') || name.is_empty() => {}
            _ => name.push('_'),
        }
    }
    name.truncate(NAME_BYTES_MAX - 2);
    let name = name.trim_end_matches('_');
    if name.starts_with(|first: char| first.is_ascii_lowercase()) {
        name.to_owned()
    } else {
        format!("t_{name}").trim_end_matches('_').to_owned()
    }
}

fn read_node(tree: &Node, folder: &Path, problems: &mut Vec<Problem>) -> Option<NodeConfig> {
    let values = Values::read(tree.get("node"), keys::NODE, "node", problems);
    Some(NodeConfig {
        data: folder.join(values.text("data")?),
        listen: values.address("listen")?,
        name: values.text("name"),
        limit: values.text("limit").map(Into::into),
        drain: values.duration("drain")?,
        role: hive::read_role(&values, problems)?,
    })
}

fn read_engine(tree: &Node, problems: &mut Vec<Problem>) -> Option<EngineConfig> {
    let values = Values::read(tree.get("engine"), keys::ENGINE, "engine", problems);
    Some(EngineConfig {
        max_runs: number(values.count("max-runs")?),
        rows_max: number(values.count("rows-max")?),
        rows_per_key_max: number(values.count("rows-per-key-max")?),
        waiting_runs_max: number(values.count("waiting-runs-max")?),
        poll_rows_max: number(values.count("poll-rows")?),
        poll_idle: values.duration("poll-idle")?,
        parked_per_minute_max: number(values.count("parked-per-minute-max")?),
        fan_out_page: number(values.count("fan-out-page")?),
        fan_out_pending_max: number(values.count("fan-out-pending-max")?),
    })
}

/// Converts a number. The bounds in the table of keys guarantee that it fits.
fn number<T: TryFrom<u64>>(count: u64) -> T {
    T::try_from(count).unwrap_or_else(|_| panic!("the bounds of the key let {count} through"))
}

fn read_source(name: &str, node: &Node, folder: &Path, problems: &mut Vec<Problem>) -> Option<SourceConfig> {
    let values = Values::read(Some(node), keys::SOURCE, &format!("source.{name}"), problems);
    let url = Url::read(&values.text("url")?, folder);
    check_scheme(&url, "source", SOURCE_SCHEMES, &values.at("url"), problems);
    let shards = read_shards(&url, &values, problems);
    let shards_written = values.count("shards").is_some();
    Some(SourceConfig {
        name: name.into(),
        url,
        shards,
        shards_written,
        payload_bytes_max: values.count("payload-max")?,
    })
}

/// Reads the number of shards. SQLite has one writer at a time, so several shards are pointless there.
fn read_shards(url: &Url, values: &Values<'_>, problems: &mut Vec<Problem>) -> u16 {
    let sqlite = url.resolve().is_ok_and(|url| url.reveal().starts_with("sqlite:"));
    let Some(shards) = values.count("shards") else { return if sqlite { 1 } else { SHARDS_DEFAULT } };
    if sqlite && shards != 1 {
        let message = format!("a SQLite database has one writer at a time: {shards} shards would gain nothing");
        problems.push(
            Problem::error(values.at("shards"), codes::problem::BAD_VALUE, message).help("remove it, or write 1"),
        );
    } else if !shards.is_power_of_two() {
        let message = format!("{shards} is not a power of two");
        problems.push(
            Problem::error(values.at("shards"), codes::problem::BAD_VALUE, message).help("for example 16, 64 or 256"),
        );
    }
    number(shards)
}

pub fn check_scheme(url: &Url, noun: &str, known: &[&'static str], path: &str, problems: &mut Vec<Problem>) {
    let Url::Written(text) = url else { return };
    let scheme = text.split(':').next().unwrap_or_default();
    if known.contains(&scheme) {
        return;
    }
    let problem =
        Problem::error(path, codes::problem::UNKNOWN_URL, format!("this build has no {noun} for `{scheme}:`"));
    let all = known.iter().map(|scheme| format!("`{scheme}:`")).collect::<Vec<_>>().join(", ");
    problems.push(match nearest(scheme, known.iter().copied()) {
        Some(word) => problem.help(format!("did you mean `{word}:`?")),
        None => problem.help(format!("it has {all}")),
    });
}

enum Entity {
    Rows(Box<EntityConfig>),
    Messages(MessageConfig),
}

fn split(all: Vec<Entity>) -> (Vec<EntityConfig>, Vec<MessageConfig>) {
    let (mut entities, mut messages) = (Vec::new(), Vec::new());
    for entity in all {
        match entity {
            Entity::Rows(entity) => entities.push(*entity),
            Entity::Messages(message) => messages.push(message),
        }
    }
    (entities, messages)
}

/// Tells each entity which of its columns the workflows name.
fn report_columns(entities: &mut [EntityConfig], workflows: &[Definition]) {
    for on in workflows.iter().flat_map(|workflow| &workflow.on) {
        let Some(entity) = entities.iter_mut().find(|entity| entity.name == on.entity) else { continue };
        for column in &on.columns {
            if !entity.reported.iter().any(|known| known.eq_ignore_ascii_case(column)) {
                entity.reported.push(column.clone());
            }
        }
    }
}

fn read_entity(name: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<Entity> {
    match node.get("kind").and_then(Node::text) {
        Some("message") => read_messages(name, node, problems).map(Entity::Messages),
        _ => read_rows(name, node, problems).map(|entity| Entity::Rows(Box::new(entity))),
    }
}

fn read_messages(name: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<MessageConfig> {
    let before = problems.len();
    let values = Values::read(Some(node), keys::MESSAGE, &format!("entity.{name}"), problems);
    for problem in &mut problems[before..] {
        let Some(key) = keys::ENTITY.iter().find(|key| problem.path == values.at(key.name)) else { continue };
        if problem.code == codes::problem::UNKNOWN_KEY {
            let message = format!("`{}` is a key of an entity with rows, and this one has messages only", key.name);
            *problem = Problem::error(&*problem.path, codes::problem::MISPLACED_KEY, message)
                .help("remove it, or remove kind = \"message\"");
        }
    }
    Some(MessageConfig { name: name.into(), source: values.text("source")?.into() })
}

fn read_rows(name: &str, node: &Node, problems: &mut Vec<Problem>) -> Option<EntityConfig> {
    let values = Values::read(Some(node), keys::ENTITY, &format!("entity.{name}"), problems);
    let edges = read_edges(&values, problems);
    let key = values.texts("key");
    if key.as_ref().is_some_and(Vec::is_empty) {
        problems.push(Problem::error(values.at("key"), codes::problem::EMPTY, "a key has at least one column"));
    }
    let document = values.text("document");
    if let Some(document) = &document {
        check_keys(document, values.at("document"), "where id in $keys", problems);
    }
    Some(EntityConfig {
        name: name.into(),
        source: values.text("source")?.into(),
        table: values.text("table").unwrap_or_else(|| name.to_owned()),
        key: key?,
        columns: columns(values.texts("columns")?),
        reported: Vec::new(),
        json: values.texts("json")?,
        document: document?,
        priority: number(values.count("priority")?),
        untracked: values.texts("untracked")?,
        edges,
    })
}

fn check_keys(statement: &str, path: String, example: &str, problems: &mut Vec<Problem>) {
    let scan = honeyflow_store::keys::scan(statement);
    if scan.places.is_empty() {
        let message = "the statement does not contain `$keys`: it would read the whole table for every batch";
        let help = format!("`$keys` stands for the keys of the batch: … {example}");
        problems.push(Problem::error(path, codes::problem::NO_KEYS, message).help(help));
    } else if scan.more {
        problems.push(
            Problem::error(path, codes::problem::TWO_STATEMENTS, "this is more than one statement")
                .help("write one statement, without `;`"),
        );
    }
}

fn columns(names: Vec<String>) -> Columns {
    if names.iter().any(|name| name == "*") { Columns::All } else { Columns::Some(names) }
}

fn read_edges(values: &Values<'_>, problems: &mut Vec<Problem>) -> Vec<EdgeConfig> {
    let nodes = values.node("edge").and_then(Node::list).unwrap_or_default();
    let edges = nodes.iter().enumerate().filter_map(|(n, node)| {
        let path = format!("{}[{n}]", values.at("edge"));
        read_edge(&Values::read(Some(node), keys::EDGE, &path, problems), &path, problems)
    });
    edges.collect()
}

fn read_edge(values: &Values<'_>, path: &str, problems: &mut Vec<Problem>) -> Option<EdgeConfig> {
    let given = |key| values.node(key).is_some();
    let help = "`to` is a statement that returns keys of the entity for keys of the table; `key` names columns that contain the entity's key";
    if given("to") == given("key") {
        let message = if given("to") { "an edge has `to` or `key`, not both" } else { "an edge needs `to` or `key`" };
        problems.push(Problem::error(path, codes::problem::BAD_EDGE, message).help(help));
        return None;
    }
    let by = match values.text("to") {
        Some(to) => {
            check_keys(&to, values.at("to"), "where author_id in $keys", problems);
            EdgeBy::Statement(to)
        }
        None => EdgeBy::Key(values.texts("key")?),
    };
    let fan_out = match values.text("fan-out")?.as_str() {
        "shallow" => FanOut::Shallow,
        "none" => FanOut::None,
        _ => FanOut::All,
    };
    Some(EdgeConfig { table: values.text("table")?, columns: columns(values.texts("columns")?), by, fan_out })
}

fn read_sink(name: &str, node: &Node, folder: &Path, problems: &mut Vec<Problem>) -> Option<SinkConfig> {
    let path = format!("sink.{name}");
    let values = Values::read(Some(node), keys::SINK, &path, problems);
    let fields = fields::read(values.node("field"), &values.at("field"), problems);
    let url = Url::read(&values.text("url")?, folder);
    check_scheme(&url, "sink", &["tantivy", "cassandra"], &values.at("url"), problems);
    let cluster = match &url {
        Url::Written(text) => text.strip_prefix("cassandra:"),
        Url::Env(_) | Url::File(_) => None,
    };
    misplaced(&values, cluster.is_some(), problems);
    let table = match cluster {
        Some(cluster) => Some(read_table(cluster, &values, problems)?),
        None => None,
    };
    if let Url::Written(text) = &url
        && let Some(index) = text.strip_prefix("tantivy:")
        && !is_index_name(index)
    {
        // The name becomes a folder; it must not lead out of the data folder.
        let problem = Problem::error(
            values.at("url"),
            codes::problem::BAD_URL,
            format!("`{index}` cannot be the name of an index"),
        );
        problems
            .push(problem.help("letters, digits, `_` and `-`; the index is in the node's data folder: tantivy:books"));
    }
    Some(SinkConfig { name: name.into(), url, fields, commit_interval: values.duration("commit-interval")?, table })
}

/// Reports keys that this kind of sink does not have.
fn misplaced(values: &Values<'_>, is_table: bool, problems: &mut Vec<Problem>) {
    let (others, what) = if is_table {
        (&["field", "commit-interval"][..], "an index, and this is a table")
    } else {
        (&["table", "column", "document", "consistency"][..], "a table, and this is an index")
    };
    for key in others.iter().filter(|key| values.node(key).is_some()) {
        let message = format!("`{key}` is a key of {what}");
        problems.push(Problem::error(values.at(key), codes::problem::MISPLACED_KEY, message).help("remove it"));
    }
}

fn read_table(cluster: &str, values: &Values<'_>, problems: &mut Vec<Problem>) -> Option<TableConfig> {
    let example = "for example table = \"shop.book\"";
    let Some(written) = values.text("table") else {
        // A table that cannot be read has been reported.
        if values.node("table").is_none() {
            let problem = Problem::error(
                values.at("url"),
                codes::problem::MISSING_KEY,
                "a sink in a cluster needs the key `table`",
            );
            problems.push(problem.help(example));
        }
        return None;
    };
    let Some((keyspace, table)) =
        written.split_once('.').filter(|(keyspace, table)| !keyspace.is_empty() && !table.is_empty())
    else {
        let message = format!("`{written}` does not name keyspace and table");
        problems.push(Problem::error(values.at("table"), codes::problem::BAD_VALUE, message).help(example));
        return None;
    };
    let mut columns = BTreeMap::new();
    for (column, node) in values.node("column").and_then(Node::table).into_iter().flatten() {
        match node.text() {
            Some(field) => drop(columns.insert(column.clone(), field.to_owned())),
            None => {
                problems.push(wrong_type(&format!("{}.{column}", values.at("column")), "the name of a field", node));
            }
        }
    }
    Some(TableConfig {
        cluster: cluster.into(),
        keyspace: keyspace.to_owned(),
        table: table.to_owned(),
        columns,
        document: values.text("document"),
        consistency: values.text("consistency")?,
    })
}

fn is_index_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

fn read_workflow(name: &str, node: &Node, kinds: &Catalogue, problems: &mut Vec<Problem>) -> Option<Definition> {
    let value = node.json();
    problems.extend(honeyflow_workflow::check(name, &value, kinds));
    honeyflow_workflow::read(name, &value, kinds).ok()
}
