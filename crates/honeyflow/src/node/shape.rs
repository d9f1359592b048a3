//! The shape of a sink: everything that determines how its documents are built. If the shape changes, the documents in
//! the index are outdated, and the next generation is built.

use std::collections::{BTreeMap, BTreeSet};

use honeyflow_event::{Name, document};
use honeyflow_workflow::{Definition, StepDefinition};
use serde_json::{Value, json};

use crate::config::{Config, EntityConfig, sinks_of};

/// A feed of a sink: rows of this entity, through this workflow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feed {
    pub source: Name,
    pub entity: Name,
    pub workflow: Name,
}

/// All feeds of a sink. None if one of them starts from messages, because messages cannot be read again.
pub fn feeds(config: &Config, sink: &str) -> Option<Vec<Feed>> {
    let mut feeds = Vec::new();
    for workflow in config.workflows.iter().filter(|workflow| leads_into(workflow, sink)) {
        if !workflow.steps.iter().any(|step| &*step.kind == "sql.load") {
            return None;
        }
        for on in &workflow.on {
            config.entity(&on.entity)?;
            let (source, entity) = (on.source.clone(), on.entity.clone());
            feeds.push(Feed { source, entity, workflow: workflow.name.clone() });
        }
    }
    Some(feeds)
}

/// One line per feed; lines are equal if the same rows give the same documents. Settings for retries are not part of
/// it.
pub fn lines(config: &Config, sink: &str) -> BTreeSet<String> {
    let feeds = feeds(config, sink).unwrap_or_default();
    let line = |feed: &Feed| {
        let workflow = config.workflows.iter().find(|workflow| workflow.name == feed.workflow)?;
        let made_by = json!([document_of(config.entity(&feed.entity)?), steps_into(workflow, sink)]);
        Some(format!("{} {} {:016x}", feed.workflow, feed.entity, document::hash(&made_by)))
    };
    feeds.iter().filter_map(line).collect()
}

fn leads_into(workflow: &Definition, sink: &str) -> bool {
    sinks_of(workflow).any(|(_, into)| into == sink)
}

fn document_of(entity: &EntityConfig) -> Value {
    json!([entity.table, entity.key, entity.json, entity.document])
}

/// The steps that write into the sink, and all steps that these depend on.
fn steps_into(workflow: &Definition, sink: &str) -> Value {
    let find = |name: &Name| workflow.steps.iter().find(|step| step.name == *name);
    let mut open: Vec<&StepDefinition> =
        sinks_of(workflow).filter(|(_, into)| *into == sink).filter_map(|(name, _)| find(name)).collect();
    let mut seen: BTreeMap<&str, Value> = BTreeMap::new();
    while let Some(step) = open.pop() {
        if seen.insert(&step.name, as_value(step)).is_none() {
            open.extend(step.needs.iter().filter_map(|need| find(&need.step)));
        }
    }
    json!(seen)
}

fn as_value(step: &StepDefinition) -> Value {
    let needs: Vec<_> = step.needs.iter().map(|need| (&need.step, need.on.word())).collect();
    json!([
        step.kind,
        needs,
        step.trigger.word(),
        step.when,
        step.otherwise.word(),
        (step.optional, step.forgives, step.tolerate, step.on_missing_run),
        step.for_each,
        step.input,
        step.settings
    ])
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{config, registry};

    const FILE: &str = r#"
        [source.shop]
        url = "sqlite:shop.db"
        [entity.book]
        source = "shop"
        key = ["id"]
        document = "select id, title from book where id in $keys"
        [sink.book]
        url = "tantivy:book"
        field = { title = "text" }
        [workflow.book]
        on = [{ source = "shop", entity = "book" }]
        step.load = { use = "sql.load", tries = 3 }
        step.shape = { use = "transform", needs = ["load"], expression = "." }
        step.index = { use = "search.index", needs = ["shape"], into = "book" }
        [workflow.aside]
        on = [{ source = "shop", entity = "book" }]
        step.load = { use = "sql.load" }
        [entity.message]
        source = "shop"
        table = "book"
        key = ["id"]
        document = "select id from book where id in $keys"
        [sink.note]
        url = "tantivy:note"
        field = { text = "text" }
        [workflow.note]
        on = [{ source = "shop", entity = "message" }]
        step.index = { use = "search.index", input = "$event.payload", into = "note" }
    "#;

    fn read(text: &str) -> Config {
        let loaded = config::parse(Path::new("honeyflow.toml"), text.to_owned(), &registry::kinds());
        let Ok(loaded) = loaded else { panic!("no TOML") };
        let problems = format!("{:?}", loaded.problems);
        loaded.config.expect(&problems)
    }

    #[test]
    fn ob_78_a_shape_changes_only_with_what_determines_documents() {
        let before = lines(&read(FILE), "book");
        assert_eq!(before.len(), 1);
        let change = |from: &str, to: &str| {
            let changed = FILE.replace(from, to);
            assert_ne!(changed, FILE);
            lines(&read(&changed), "book")
        };
        assert_ne!(change("select id, title from", "select id, upper(title) as title from"), before);
        assert_ne!(change("expression = \".\"", "expression = \".a\""), before);
        assert_ne!(change("needs = [\"shape\"]", "needs = [\"load\"]"), before);
        assert_eq!(change("tries = 3", "tries = 4"), before, "how often it is tried changes no document");
        assert_eq!(change("title = \"text\"", "title = \"keyword\""), before, "an index knows its fields itself");
        let aside = "[workflow.aside]\n        priority = 2";
        assert_eq!(change("[workflow.aside]", aside), before, "this workflow does not write into the sink");
    }

    #[test]
    fn documents_built_from_messages_cannot_be_rebuilt() {
        let config = read(FILE);
        assert_eq!(feeds(&config, "note"), None);
        assert!(lines(&config, "note").is_empty());
        assert_eq!(feeds(&config, "book").map(|feeds| feeds.len()), Some(1));
    }
}
