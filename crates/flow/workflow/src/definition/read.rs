//! Reads a definition from the value that TOML gives. It reports all problems, not only the first: a key that cannot be
//! read keeps its default, and the reader continues.

mod settings;
mod table;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use honeyflow_event::Changes;
use honeyflow_runtime::Backoff;
use serde_json::{Map, Value};

use super::{Checkpoint, Definition, Edge, Exclusion, History, Need, On, OnFailure, Order, Otherwise, StepDefinition};
use super::{Trigger, Unmatched};
use crate::catalogue::{Catalogue, Role};
use crate::{codes, graph, problem::Problem};
use settings::read_settings;
use table::{Table, one_of, wrong_type};

const WORKFLOW_KEYS: &[&str] =
    &["on", "step", "exclusion", "order", "priority", "deadline", "on-failure", "unmatched", "history"];
const WORKFLOW_KEYS_LATER: &[&str] =
    &["next", "max-phases", "on-newer", "on-parked", "settle", "settle-max", "fair-by"];
const STEP_KEYS: &[&str] = &[
    "use",
    "needs",
    "trigger",
    "when",
    "else",
    "optional",
    "forgives",
    "for-each",
    "parallel",
    "tolerate",
    "input",
    "tries",
    "backoff",
    "timeout",
    "give-up-after",
    "batch",
    "limit",
    "checkpoint",
    "on-missing",
    "labels",
];
const STEP_KEYS_LATER: &[&str] = &["heartbeat", "concurrency"];

/// Returns the definition called `name`, or all problems of `value`. It does not check the graph: [`check`] does.
pub fn read(name: &str, value: &Value, catalogue: &Catalogue) -> Result<Definition, Vec<Problem>> {
    let (definition, mut problems) = read_leniently(name, value, catalogue);
    problems.sort();
    if problems.is_empty() { Ok(definition) } else { Err(problems) }
}

/// Returns all problems of the workflow, in its keys and in its graph, sorted by place.
pub fn check(name: &str, value: &Value, catalogue: &Catalogue) -> Vec<Problem> {
    let (definition, mut problems) = read_leniently(name, value, catalogue);
    if let Err(of_the_graph) = graph::compile(&definition, 0, catalogue) {
        problems.extend(of_the_graph);
    }
    problems.sort();
    problems.dedup();
    problems
}

fn read_leniently(name: &str, value: &Value, catalogue: &Catalogue) -> (Definition, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut definition = Definition::new(name);
    let empty = Map::new();
    let mut table = Table::new(value, format!("workflow.{name}"), &empty, &mut problems);
    table.names(WORKFLOW_KEYS, WORKFLOW_KEYS_LATER, &[]);
    definition.order = table.word("order", Order::WORDS, Order::from_word);
    definition.on_failure = table.word("on-failure", OnFailure::WORDS, OnFailure::from_word);
    definition.unmatched = table.word("unmatched", Unmatched::WORDS, Unmatched::from_word);
    definition.history = table.word("history", History::WORDS, History::from_word);
    definition.priority = table.number("priority", 0, 9).and_then(|priority| u8::try_from(priority).ok());
    definition.deadline = table.duration_above_zero("deadline");
    let exclusion: Option<Exclusion> = table.word_if_any("exclusion", Exclusion::WORDS, Exclusion::from_word);
    for (at, path) in table.list("on") {
        if let Some(on) = read_on(at, path, table.problems) {
            definition.on.push(on);
        }
    }
    if let Some(steps) = table.get("step") {
        let path = table.at("step");
        match steps {
            Value::Object(steps) => {
                for (step, value) in steps {
                    definition.steps.push(read_step(step, value, format!("{path}.{step}"), catalogue, table.problems));
                }
            }
            _ => table.problems.push(wrong_type(path, "a table of steps")),
        }
    }
    definition.steps.sort_by(|a, b| a.name.cmp(&b.name));
    let role = |step: &StepDefinition| catalogue.get(&step.kind).map(|kind| kind.role);
    let waits = definition.steps.iter().any(|step| matches!(role(step), Some(Role::Sleep | Role::Wait)));
    // a run that sleeps for days must not block the key for other workflows
    definition.exclusion = exclusion.unwrap_or(if waits { Exclusion::Workflow } else { Exclusion::Key });
    (definition, problems)
}

fn read_on(value: &Value, path: String, problems: &mut Vec<Problem>) -> Option<On> {
    let empty = Map::new();
    let mut table = Table::new(value, path, &empty, problems);
    table.names(&["source", "entity", "change", "columns", "when", "existing"], &[], &[]);
    let (source, entity) = (table.required_text("source"), table.required_text("entity"));
    let (change, columns) = read_change(&mut table);
    let when = table.text("when").map(str::to_owned);
    let existing = table.boolean("existing");
    Some(On { source: source?.into(), entity: entity?.into(), change, columns, when, existing })
}

/// Reads `change` and `columns`; `columns` alone means updates of these columns.
fn read_change(table: &mut Table<'_, '_>) -> (Changes, Vec<String>) {
    let mut change = Changes::UNKNOWN;
    for (value, path) in table.list("change") {
        let word = value.as_str().unwrap_or_default();
        match Changes::from_word(word) {
            Some(known) => change = change.union(known),
            None => {
                let message = format!("`change` cannot contain `{word}`");
                let problem = Problem::error(path, codes::problem::BAD_VALUE, message);
                table.problems.push(one_of(problem, word, Changes::WORDS));
            }
        }
    }
    let mut columns = Vec::new();
    for (value, path) in table.list("columns") {
        match value.as_str() {
            Some(column) => columns.push(column.to_owned()),
            None => table.problems.push(wrong_type(path, "the name of a column")),
        }
    }
    if !columns.is_empty() && change.is_unknown() {
        change = Changes::UPDATE;
    }
    if !columns.is_empty() && !change.intersects(Changes::UPDATE) {
        let message = "`columns` narrows updates, and `change` has no `update`";
        let help = "add \"update\" to `change`, or remove `columns`";
        let problem = Problem::error(table.at("columns"), codes::problem::BAD_CHANGE, message);
        table.problems.push(problem.help(help));
    }
    (change, columns)
}

fn read_step(
    name: &str,
    value: &Value,
    path: String,
    catalogue: &Catalogue,
    problems: &mut Vec<Problem>,
) -> StepDefinition {
    let empty = Map::new();
    let mut table = Table::new(value, path, &empty, problems);
    let kind_name = table.required_text("use").unwrap_or_default();
    let kind = catalogue.get(kind_name);
    let mut step = StepDefinition::new(name, kind_name);
    step.needs = read_needs(&mut table);
    step.trigger = match table.text("trigger") {
        None => Trigger::default(),
        Some(word) => Trigger::from_word(word).unwrap_or_else(|| {
            let message = format!("there is no trigger `{word}`");
            let problem = Problem::error(table.at("trigger"), codes::problem::BAD_TRIGGER, message);
            table.problems.push(one_of(problem, word, Trigger::WORDS));
            Trigger::default()
        }),
    };
    step.when = table.text("when").map(str::to_owned);
    step.otherwise = table.word("else", Otherwise::WORDS, Otherwise::from_word);
    step.optional = table.boolean("optional").unwrap_or(false);
    step.forgives = table.boolean("forgives").unwrap_or(false);
    step.for_each = table.text("for-each").map(str::to_owned);
    step.parallel = table.number("parallel", 1, 10_000).unwrap_or(step.parallel);
    step.tolerate = table.number("tolerate", 0, u32::MAX).unwrap_or(step.tolerate);
    step.input = table.text("input").map(str::to_owned);
    step.tries = table.number("tries", 1, 1000).unwrap_or(step.tries);
    step.backoff = read_backoff(&mut table);
    step.timeout = table.duration("timeout");
    step.give_up_after = table.duration("give-up-after");
    step.batch = table.number("batch", 1, 10_000);
    step.checkpoint = table.word_if_any("checkpoint", Checkpoint::WORDS, Checkpoint::from_word);
    step.on_missing_run =
        table.word("on-missing", &["run", "pass"], |word| matches!(word, "run" | "pass").then_some(word == "run"));
    step.limit = table.text("limit").map(Arc::from);
    step.labels = read_labels(&mut table);
    read_settings(&mut table, kind, &mut step.settings);
    step
}

fn read_needs(table: &mut Table<'_, '_>) -> Vec<Need> {
    let mut needs = Vec::new();
    for (value, path) in table.list("needs") {
        match value {
            Value::String(step) => needs.push(Need { step: step.as_str().into(), on: Edge::Success }),
            Value::Object(_) => {
                let empty = Map::new();
                let mut need = Table::new(value, path, &empty, table.problems);
                need.names(&["step", "on"], &[], &[]);
                let on = need.word("on", Edge::WORDS, Edge::from_word);
                if let Some(step) = need.required_text("step") {
                    needs.push(Need { step: step.into(), on });
                }
            }
            _ => table.problems.push(wrong_type(path, "the name of a step, or { step, on }")),
        }
    }
    needs
}

fn read_backoff(table: &mut Table<'_, '_>) -> Option<Backoff> {
    let value = table.get("backoff")?;
    let empty = Map::new();
    let mut backoff = Table::new(value, table.at("backoff"), &empty, table.problems);
    backoff.names(&["base", "cap"], &[], &[]);
    let base = backoff.duration("base").unwrap_or(Duration::from_millis(200));
    let cap = backoff.duration("cap").unwrap_or(Duration::from_secs(60));
    Some(Backoff::new(base, cap))
}

fn read_labels(table: &mut Table<'_, '_>) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    match table.get("labels") {
        None => {}
        Some(Value::Object(given)) => {
            for (label, value) in given {
                match value.as_str() {
                    Some(text) => drop(labels.insert(label.clone(), text.to_owned())),
                    None => table.problems.push(wrong_type(format!("{}.{label}", table.at("labels")), "a text")),
                }
            }
        }
        Some(_) => table.problems.push(wrong_type(table.at("labels"), "a table of texts")),
    }
    labels
}
