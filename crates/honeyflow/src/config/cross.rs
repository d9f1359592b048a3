//! Checks across sections: names that must exist, names that must not collide, and sections that nothing uses.
//!
//! Names are looked up in the tree, not among the sections that could be read: a section with a mistake still exists,
//! so one mistake makes one message.

use honeyflow_event::Name;
use honeyflow_workflow::{Definition, Exclusion, Problem, Severity, problem::nearest};

use super::{EntityConfig, MessageConfig, SinkConfig, awaited_names, on, sinks_of, tree::Node};
use crate::codes;

pub fn check(
    tree: &Node,
    entities: &[EntityConfig],
    messages: &[MessageConfig],
    sinks: &[SinkConfig],
    workflows: &[Definition],
    problems: &mut Vec<Problem>,
) {
    for (name, node) in tables(tree, "entity") {
        if let Some(source) = node.get("source").and_then(Node::text) {
            exists(tree, "source", source, format!("entity.{name}.source"), problems);
        }
    }
    let node_limit = tree.get("node").and_then(|node| node.get("limit")).and_then(Node::text);
    if let Some(limit) = node_limit {
        exists(tree, "limit", limit, "node.limit".to_owned(), problems);
    }
    for (name, node) in tables(tree, "workflow") {
        check_workflow(tree, name, node, entities, messages, problems);
    }
    check_entity_names(entities, messages, problems);
    check_same_target(workflows, problems);
    check_same_index(sinks, problems);
    for (name, node) in tables(tree, "sink") {
        let cluster = node.get("url").and_then(Node::text).and_then(|url| url.strip_prefix("cassandra:"));
        if let Some(cluster) = cluster {
            exists(tree, "cassandra", cluster, format!("sink.{name}.url"), problems);
        }
    }
    check_writers(sinks, workflows, problems);
    on::check(messages, workflows, problems);
    warn_of_unused(tree, entities, messages, workflows, problems);
}

fn tables<'a>(tree: &'a Node, section: &str) -> impl Iterator<Item = (&'a str, &'a Node)> {
    tree.get(section).and_then(Node::table).into_iter().flatten().map(|(name, node)| (name.as_str(), node))
}

fn names<'a>(tree: &'a Node, section: &str) -> impl Iterator<Item = &'a str> {
    tables(tree, section).map(|(name, _)| name)
}

/// Whether `[section.name]` exists in the file; reports a problem if not.
fn exists(tree: &Node, section: &str, name: &str, path: String, problems: &mut Vec<Problem>) -> bool {
    if names(tree, section).any(|known| known == name) {
        return true;
    }
    let code = match section {
        "source" => codes::problem::UNKNOWN_SOURCE,
        "entity" => codes::problem::UNKNOWN_ENTITY,
        "sink" => codes::problem::UNKNOWN_SINK,
        "cassandra" => codes::problem::UNKNOWN_CLUSTER,
        _ => codes::problem::UNKNOWN_LIMIT,
    };
    let problem = Problem::error(path, code, format!("there is no [{section}.{name}]"));
    let known = || names(tree, section);
    problems.push(match nearest(name, known()) {
        Some(word) => problem.help(format!("did you mean `{word}`?")),
        None if known().next().is_none() => problem.help(format!("add a section [{section}.{name}]")),
        None => problem
            .help(format!("available: {}", known().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", "))),
    });
    false
}

fn check_workflow(
    tree: &Node,
    name: &str,
    workflow: &Node,
    entities: &[EntityConfig],
    messages: &[MessageConfig],
    problems: &mut Vec<Problem>,
) {
    let path = format!("workflow.{name}");
    let all_on = workflow.get("on").and_then(Node::list).unwrap_or_default();
    for (n, on) in all_on.iter().enumerate() {
        let text = |key| on.get(key).and_then(Node::text);
        let (Some(source), Some(entity)) = (text("source"), text("entity")) else { continue };
        let known = exists(tree, "source", source, format!("{path}.on[{n}].source"), problems);
        let at = format!("{path}.on[{n}].entity");
        if !exists(tree, "entity", entity, at.clone(), problems) || !known {
            continue;
        }
        let rows = entities.iter().map(|entity| (&entity.name, &entity.source));
        let all = rows.chain(messages.iter().map(|message| (&message.name, &message.source)));
        let mut others = all.filter(|(name, owner)| ***name == *entity && ***owner != *source).map(|(_, owner)| owner);
        // A source that does not exist has been reported at the entity that names it.
        if let Some(owner) = others.find(|owner| names(tree, "source").any(|source| *source == ***owner)) {
            let message = format!("the entity `{entity}` belongs to the source `{owner}`, not to `{source}`");
            problems
                .push(Problem::error(at, codes::problem::OTHER_SOURCE, message).help(format!("source = \"{owner}\"")));
        }
    }
    for (step, node) in tables(workflow, "step") {
        for (key, section) in [("into", "sink"), ("limit", "limit")] {
            if let Some(wanted) = node.get(key).and_then(Node::text) {
                exists(tree, section, wanted, format!("{path}.step.{step}.{key}"), problems);
            }
        }
    }
}

/// Reports an entity with the name of another table. An event may name a table or an entity, so a name must not mean
/// both.
fn check_entity_names(entities: &[EntityConfig], messages: &[MessageConfig], problems: &mut Vec<Problem>) {
    let rows = entities.iter().map(|entity| (&entity.name, &entity.source, Some(&entity.table)));
    let messages = messages.iter().map(|message| (&message.name, &message.source, None));
    for (name, source, own) in rows.chain(messages) {
        if own.is_some_and(|table| table.eq_ignore_ascii_case(name)) {
            continue;
        }
        let captures = |other: &&EntityConfig| {
            let mut tables = std::iter::once(&other.table).chain(other.edges.iter().map(|edge| &edge.table));
            other.source == *source && tables.any(|table| table.eq_ignore_ascii_case(name))
        };
        let Some(other) = entities.iter().find(captures) else { continue };
        let what = match own {
            Some(table) => format!("uses the table `{table}`, but has the name of another captured table"),
            None => "has messages only, but the name of a captured table".to_owned(),
        };
        let message = format!("the entity `{name}` {what} (of the entity `{}`)", other.name);
        let help = format!("an event for `{name}` could mean both: give the entity another name");
        problems.push(Problem::error(format!("entity.{name}"), codes::problem::AMBIGUOUS_NAME, message).help(help));
    }
}

/// Reports workflows that write into the same sink: keys of two entities could be equal, and two runs of one key could
/// write at the same time.
fn check_same_target(workflows: &[Definition], problems: &mut Vec<Problem>) {
    struct Writer<'a> {
        workflow: &'a Definition,
        step: &'a Name,
        into: &'a str,
    }
    let writers: Vec<Writer<'_>> = workflows
        .iter()
        .flat_map(|workflow| sinks_of(workflow).map(move |(step, into)| Writer { workflow, step, into }))
        .collect();
    for (n, writer) in writers.iter().enumerate() {
        let path = format!("workflow.{}.step.{}.into", writer.workflow.name, writer.step);
        if entities_of(writer.workflow).len() > 1 {
            let message = format!(
                "documents of several entities would share the sink `{}`, and their keys may be equal",
                writer.into
            );
            problems.push(
                Problem::error(path, codes::problem::SAME_TARGET, message)
                    .help("use a workflow and a sink for each entity"),
            );
            continue;
        }
        for earlier in writers[..n]
            .iter()
            .filter(|earlier| earlier.into == writer.into && earlier.workflow.name != writer.workflow.name)
        {
            let place = format!("`{}` of [workflow.{}]", earlier.step, earlier.workflow.name);
            if entities_of(earlier.workflow) != entities_of(writer.workflow) {
                let message = format!(
                    "{place} writes documents of another entity into `{}`, and their keys may be equal",
                    writer.into
                );
                problems.push(
                    Problem::error(&*path, codes::problem::SAME_TARGET, message).help("use a sink for each entity"),
                );
            } else if [earlier, writer].iter().any(|one| one.workflow.exclusion != Exclusion::Key) {
                let message =
                    format!("{place} also writes `{}`, and runs of both may be open for one key at once", writer.into);
                problems.push(
                    Problem::error(&*path, codes::problem::SAME_TARGET, message)
                        .help("set exclusion = \"key\" in both workflows, or use a sink for each"),
                );
            }
        }
    }
}

fn entities_of(workflow: &Definition) -> Vec<&Name> {
    let mut names: Vec<&Name> = workflow.on.iter().map(|on| &on.entity).collect();
    names.sort();
    names.dedup();
    names
}

/// Reports sinks with the same address: an index or table has one writer.
fn check_same_index(sinks: &[SinkConfig], problems: &mut Vec<Problem>) {
    let place = |sink: &SinkConfig| sink.table.as_ref().map(|table| (table.keyspace.clone(), table.table.clone()));
    for (n, sink) in sinks.iter().enumerate() {
        let same = |other: &&SinkConfig| other.url == sink.url && place(other) == place(sink);
        if let Some(other) = sinks[..n].iter().find(same) {
            let message = format!("[sink.{}] has the same address: an index or table has one writer", other.name);
            let key = if sink.table.is_some() { "table" } else { "url" };
            problems.push(
                Problem::error(format!("sink.{}.{key}", sink.name), codes::problem::SAME_TARGET, message)
                    .help("give each sink its own index or table"),
            );
        }
    }
}

/// Reports steps that do not fit their sink: `search.index` writes indexes, `cassandra.write` writes tables.
fn check_writers(sinks: &[SinkConfig], workflows: &[Definition], problems: &mut Vec<Problem>) {
    for workflow in workflows {
        for (name, into) in sinks_of(workflow) {
            let step = workflow.steps.iter().find(|step| step.name == *name);
            let sink = sinks.iter().find(|sink| &*sink.name == into);
            let Some((step, sink)) = step.zip(sink) else { continue };
            let (what, kind) = match sink.table {
                Some(_) => ("a table", "cassandra.write"),
                None => ("an index", "search.index"),
            };
            if *step.kind != *kind {
                let message = format!("[sink.{into}] is {what}, and `{}` cannot write to it", step.kind);
                let path = format!("workflow.{}.step.{name}.use", workflow.name);
                problems
                    .push(Problem::error(path, codes::problem::WRONG_KIND, message).help(format!("use = \"{kind}\"")));
            }
        }
    }
}

fn warn_of_unused(
    tree: &Node,
    entities: &[EntityConfig],
    messages: &[MessageConfig],
    workflows: &[Definition],
    problems: &mut Vec<Problem>,
) {
    // A misspelt name is reported where it is used; the section that it means is not reported as unused as well.
    if problems.iter().any(|problem| problem.severity == Severity::Error) {
        return;
    }
    for name in names(tree, "entity") {
        let begins = |workflow: &Definition| workflow.on.iter().any(|on| &*on.entity == name);
        let waits = |workflow: &Definition| awaited_names(workflow).any(|awaited| awaited == name);
        if !workflows.iter().any(|workflow| begins(workflow) || waits(workflow)) {
            let help = format!("[workflow.{name}] with on = [{{ source = \"…\", entity = \"{name}\" }}]");
            problems.push(warning(
                format!("entity.{name}"),
                codes::problem::UNUSED,
                "no workflow starts with this entity",
                &help,
            ));
        }
    }
    for name in names(tree, "sink") {
        if !workflows.iter().any(|workflow| sinks_of(workflow).any(|(_, into)| into == name)) {
            let is_table = |url: &str| url.starts_with("cassandra:");
            let url = tree.get("sink").and_then(|sinks| sinks.get(name)?.get("url")?.text());
            let (step, kind) =
                if url.is_some_and(is_table) { ("write", "cassandra.write") } else { ("index", "search.index") };
            let help = format!("step.{step} = {{ use = \"{kind}\", needs = [\"load\"], into = \"{name}\" }}");
            problems.push(warning(
                format!("sink.{name}"),
                codes::problem::UNUSED,
                "no step writes into this sink",
                &help,
            ));
        }
    }
    for name in names(tree, "cassandra") {
        let url = format!("cassandra:{name}");
        if !tables(tree, "sink").any(|(_, sink)| sink.get("url").and_then(Node::text) == Some(&url)) {
            let help = format!("[sink.NAME] with url = \"{url}\" and table = \"keyspace.table\"");
            problems.push(warning(
                format!("cassandra.{name}"),
                codes::problem::UNUSED,
                "no sink uses this cluster",
                &help,
            ));
        }
    }
    for name in names(tree, "limit") {
        let mut steps = workflows.iter().flat_map(|workflow| &workflow.steps);
        let is_node_limit = tree.get("node").and_then(|node| node.get("limit")).and_then(Node::text) == Some(name);
        if !is_node_limit && !steps.any(|step| step.limit.as_deref() == Some(name)) {
            let help = format!("set limit = \"{name}\" in a step, or under [node] for the event endpoint");
            problems.push(warning(
                format!("limit.{name}"),
                codes::problem::UNUSED,
                "no step uses this limit, nor does [node]",
                &help,
            ));
        }
    }
    for name in names(tree, "source") {
        let has_messages = || messages.iter().any(|message| &*message.source == name);
        if !entities.iter().any(|entity| &*entity.source == name) && !has_messages() {
            problems.push(warning(
                format!("source.{name}"),
                codes::problem::UNUSED,
                "no entity belongs to this source",
                "add an [entity.NAME] with this source",
            ));
        }
    }
}

pub fn warning(path: impl Into<String>, code: &'static str, message: &str, help: &str) -> Problem {
    Problem { severity: Severity::Warning, ..Problem::error(path, code, message).help(help) }
}
