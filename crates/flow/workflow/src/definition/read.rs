//! Reads a definition from the value that TOML gives. Reports everything that is wrong, not the first thing: a key that
//! cannot be read keeps its default and the reading goes on.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use honeyflow_runtime::Backoff;
use serde_json::{Map, Value};

use super::{Checkpoint, Definition, Edge, Exclusion, History, Need, On, OnFailure, Order, Otherwise, StepDefinition};
use super::{Trigger, Unmatched};
use crate::catalogue::{Catalogue, Kind, Role, Setting, SettingValue};
use crate::{duration, graph, problem::Problem};

const WORKFLOW_KEYS: &[&str] =
    &["on", "step", "exclusion", "order", "priority", "deadline", "on-failure", "unmatched", "history"];
const WORKFLOW_KEYS_LATER: &[&str] = &["next", "max-phases", "on-newer", "on-parked", "settle", "settle-max", "fair-by"];
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

/// The definition called `name`, or all that keeps `value` from being one. The graph is not looked at: [`check`] does.
pub fn read(name: &str, value: &Value, catalogue: &Catalogue) -> Result<Definition, Vec<Problem>> {
    let (definition, mut problems) = read_what_can_be_read(name, value, catalogue);
    problems.sort();
    if problems.is_empty() { Ok(definition) } else { Err(problems) }
}

/// Everything that is wrong with the workflow, in its keys and in its graph, sorted by place.
pub fn check(name: &str, value: &Value, catalogue: &Catalogue) -> Vec<Problem> {
    let (definition, mut problems) = read_what_can_be_read(name, value, catalogue);
    if let Err(of_the_graph) = graph::compile(&definition, 0, catalogue) {
        problems.extend(of_the_graph);
    }
    problems.sort();
    problems.dedup();
    problems
}

fn read_what_can_be_read(name: &str, value: &Value, catalogue: &Catalogue) -> (Definition, Vec<Problem>) {
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
    definition.deadline = table.duration("deadline");
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
    // a run that sleeps for days must not keep other workflows from the key
    definition.exclusion = exclusion.unwrap_or(if waits { Exclusion::Workflow } else { Exclusion::Key });
    (definition, problems)
}

fn read_on(value: &Value, path: String, problems: &mut Vec<Problem>) -> Option<On> {
    let empty = Map::new();
    let mut table = Table::new(value, path, &empty, problems);
    table.names(&["source", "entity", "when"], &[], &[]);
    let (source, entity) = (table.required_text("source"), table.required_text("entity"));
    let when = table.text("when").map(str::to_owned);
    Some(On { source: source?.into(), entity: entity?.into(), when })
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
            let problem = Problem::error(table.at("trigger"), "bad-trigger", message);
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

/// The keys that are not those of every step. Of a kind that does not exist nothing is known: that is reported once,
/// with the graph, and its keys are kept.
fn read_settings(table: &mut Table<'_, '_>, kind: Option<&Kind>, settings: &mut Map<String, Value>) {
    if let Some(kind) = kind {
        let names: Vec<&str> = kind.settings.iter().map(|setting| setting.name).collect();
        table.names(STEP_KEYS, STEP_KEYS_LATER, &names);
        for setting in kind.settings.iter().filter(|setting| setting.required) {
            if table.get(setting.name).is_none() {
                let message = format!("`{}` needs the key `{}`", kind.name, setting.name);
                table.problems.push(Problem::error(&*table.path, "missing-key", message).help(setting.doc));
            }
        }
    }
    for (key, value) in table.fields.iter().filter(|(key, _)| !STEP_KEYS.contains(&key.as_str())) {
        match kind.map(|kind| kind.settings.iter().find(|setting| setting.name == key)) {
            // an unknown key, reported above
            Some(None) => continue,
            Some(Some(setting)) => check_setting(table.at(key), setting, value, table.problems),
            None => {}
        }
        find_secrets(&table.at(key), key, value, table.problems);
        settings.insert(key.clone(), value.clone());
    }
}

fn check_setting(path: String, setting: &Setting, value: &Value, problems: &mut Vec<Problem>) {
    let (fits, expected) = match setting.value {
        SettingValue::Text => (value.is_string(), "a text"),
        SettingValue::Expression => (value.is_string(), "an expression"),
        SettingValue::Duration => {
            (value.as_str().is_some_and(|text| duration::parse(text).is_some()), "a duration such as \"5s\"")
        }
        SettingValue::Number => (value.is_u64(), "a whole number"),
        SettingValue::Boolean => (value.is_boolean(), "true or false"),
        SettingValue::List => (value.is_array(), "a list"),
        SettingValue::Table => (value.is_object(), "a table"),
        SettingValue::Secret => (value.is_string(), "a reference such as \"env:NAME\" or \"file:path\""),
        SettingValue::Any => (true, ""),
    };
    if !fits {
        problems.push(wrong_type(path, expected).help(setting.doc));
    } else if setting.value == SettingValue::Secret && !is_reference(value) {
        problems.push(secret_inline(path));
    }
}

/// Passwords have no place in a definition, which is stored, compared and shown. Looked for by the names that people
/// give them, and in addresses.
fn find_secrets(path: &str, key: &str, value: &Value, problems: &mut Vec<Problem>) {
    const NAMES: &[&str] = &["password", "passwd", "secret", "token", "authorization", "api-key", "apikey"];
    match value {
        Value::String(text) => {
            let key = key.to_ascii_lowercase().replace('_', "-");
            let named = NAMES.iter().any(|name| key.contains(name)) && !text.is_empty() && !is_reference(value);
            if (named || has_password(text)) && !problems.iter().any(|problem| problem.path == path) {
                problems.push(secret_inline(path.to_owned()));
            }
        }
        Value::Array(items) => {
            for (n, item) in items.iter().enumerate() {
                find_secrets(&format!("{path}[{n}]"), key, item, problems);
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                find_secrets(&format!("{path}.{field}"), field, value, problems);
            }
        }
        _ => {}
    }
}

/// `scheme://user:password@host`
fn has_password(text: &str) -> bool {
    let Some((_, rest)) = text.split_once("://") else { return false };
    let authority = rest.split(['/', '?', '#', ' ']).next().unwrap_or_default();
    authority.rsplit_once('@').and_then(|(user, _)| user.split_once(':')).is_some_and(|(_, password)| !password.is_empty())
}

fn is_reference(value: &Value) -> bool {
    value.as_str().is_some_and(|text| text.starts_with("env:") || text.starts_with("file:"))
}

fn secret_inline(path: String) -> Problem {
    Problem::error(path, "secret-inline", "a secret is written out here")
        .help("name where it is kept: \"env:NAME\" or \"file:path\"")
}

fn wrong_type(path: String, expected: &str) -> Problem {
    Problem::error(path, "bad-value", format!("expected {expected}"))
}

fn one_of(problem: Problem, written: &str, words: &[&str]) -> Problem {
    match problem.nearest(written, words.iter().copied()) {
        problem @ Problem { help: Some(_), .. } => problem,
        problem => problem.help(format!("one of: {}", words.join(", "))),
    }
}

/// A table of the configuration, where it stands, and where to complain.
struct Table<'v, 'p> {
    fields: &'v Map<String, Value>,
    path: String,
    problems: &'p mut Vec<Problem>,
}

impl<'v, 'p> Table<'v, 'p> {
    fn new(value: &'v Value, path: String, empty: &'v Map<String, Value>, problems: &'p mut Vec<Problem>) -> Self {
        let fields = value.as_object().unwrap_or_else(|| {
            problems.push(wrong_type(path.clone(), "a table"));
            empty
        });
        Table { fields, path, problems }
    }

    fn at(&self, key: &str) -> String {
        format!("{}.{key}", self.path)
    }

    fn get(&self, key: &str) -> Option<&'v Value> {
        self.fields.get(key)
    }

    /// Complains about every key that is none of these.
    fn names(&mut self, keys: &[&str], later: &[&str], more: &[&str]) {
        for key in self.fields.keys().map(String::as_str) {
            if keys.contains(&key) || more.contains(&key) {
                continue;
            }
            let problem = if later.contains(&key) {
                Problem::error(self.at(key), "unknown-key", format!("`{key}` is planned but not built yet"))
            } else {
                Problem::error(self.at(key), "unknown-key", format!("there is no key `{key}` here"))
                    .nearest(key, keys.iter().chain(more).copied())
            };
            self.problems.push(problem);
        }
    }

    fn take<T>(&mut self, key: &str, expected: &str, read: impl FnOnce(&'v Value) -> Option<T>) -> Option<T> {
        let value = self.get(key)?;
        let read = read(value);
        if read.is_none() {
            self.problems.push(wrong_type(self.at(key), expected));
        }
        read
    }

    fn text(&mut self, key: &str) -> Option<&'v str> {
        self.take(key, "a text", Value::as_str)
    }

    fn required_text(&mut self, key: &str) -> Option<&'v str> {
        if self.get(key).is_none() {
            self.problems.push(Problem::error(&*self.path, "missing-key", format!("the key `{key}` is missing")));
        }
        self.text(key)
    }

    fn boolean(&mut self, key: &str) -> Option<bool> {
        self.take(key, "true or false", Value::as_bool)
    }

    fn number(&mut self, key: &str, min: u32, max: u32) -> Option<u32> {
        self.take(key, &format!("a whole number from {min} to {max}"), |value| {
            value.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|number| (min..=max).contains(number))
        })
    }

    fn duration(&mut self, key: &str) -> Option<Duration> {
        self.take(key, "a duration such as \"200ms\", \"5s\" or \"2h\"", |value| value.as_str().and_then(duration::parse))
    }

    fn word<T: Default>(&mut self, key: &str, words: &[&str], from_word: impl FnOnce(&str) -> Option<T>) -> T {
        self.word_if_any(key, words, from_word).unwrap_or_default()
    }

    fn word_if_any<T>(&mut self, key: &str, words: &[&str], from_word: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let word = self.text(key)?;
        let read = from_word(word);
        if read.is_none() {
            let problem = Problem::error(self.at(key), "bad-value", format!("`{key}` cannot be `{word}`"));
            self.problems.push(one_of(problem, word, words));
        }
        read
    }

    /// The items of a list with their places.
    fn list(&mut self, key: &str) -> Vec<(&'v Value, String)> {
        let items = self.take(key, "a list", Value::as_array);
        let path = self.at(key);
        items.into_iter().flatten().enumerate().map(|(n, item)| (item, format!("{path}[{n}]"))).collect()
    }
}
