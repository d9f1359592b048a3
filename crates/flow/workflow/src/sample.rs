//! Kinds and helpers to write workflows, for the tests of this crate.

use std::time::Duration;

use serde_json::{Value, json};

use crate::catalogue::{Catalogue, Kind, Role, Setting, SettingValue};
use crate::definition::{Checkpoint, check, read};
use crate::graph::{Graph, compile};

const fn setting(name: &'static str, required: bool, value: SettingValue, doc: &'static str) -> Setting {
    Setting { name, required, value, doc }
}

const LOAD: &[Setting] = &[setting("query", false, SettingValue::Text, "a statement with $keys")];
const TRANSFORM: &[Setting] = &[setting("expression", true, SettingValue::Expression, "what is made of the input")];
const CALL: &[Setting] = &[
    setting("url", true, SettingValue::Template, "where to call"),
    setting("headers", false, SettingValue::Table, "sent with the call"),
    setting("key", false, SettingValue::Secret, "who we are"),
];
const INDEX: &[Setting] = &[setting("into", true, SettingValue::Text, "the name of a sink")];
const SLEEP: &[Setting] = &[setting("for", true, SettingValue::Duration, "how long")];

pub(crate) fn catalogue() -> Catalogue {
    let kind = |name, role, checkpoint, settings| Kind {
        name,
        settings,
        role,
        checkpoint,
        batch_max: 500,
        timeout: Duration::from_secs(60),
    };
    Catalogue::new(vec![
        kind("sql.load", Role::Load, Checkpoint::Never, LOAD),
        kind("transform", Role::Work, Checkpoint::Never, TRANSFORM),
        kind("http.call", Role::Work, Checkpoint::Always, CALL),
        kind("search.index", Role::Sink, Checkpoint::Never, INDEX),
        kind("sleep", Role::Sleep, Checkpoint::Always, SLEEP),
        // kinds without settings, for tests of the graph alone
        kind("work", Role::Work, Checkpoint::Never, &[]),
        kind("sink", Role::Sink, Checkpoint::Never, &[]),
    ])
}

/// Returns the graph of a workflow `book` with these steps.
#[expect(clippy::needless_pass_by_value, reason = "called with json!")]
pub(crate) fn graph(steps: Value) -> Graph {
    let value = json!({ "step": steps });
    let definition = read("book", &value, &catalogue()).unwrap_or_else(|problems| panic!("{problems:#?}"));
    compile(&definition, 1, &catalogue()).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// Returns the problems of a workflow `book` with these keys, one line each.
pub(crate) fn problems_of(value: &Value) -> String {
    let problems = check("book", value, &catalogue());
    problems.iter().map(|problem| format!("{problem}\n")).collect()
}

/// Returns the problems of a workflow `book` with these steps, one line each.
#[expect(clippy::needless_pass_by_value, reason = "called with json!")]
pub(crate) fn problems(steps: Value) -> String {
    problems_of(&json!({ "step": steps }))
}
