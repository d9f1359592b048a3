//! Writes a definition as the value that TOML would contain. A key that equals its default is left out; reading the
//! value gives the same definition again.

use serde_json::{Map, Value, json};

use super::{Definition, Edge, On, PARALLEL_DEFAULT, StepDefinition, TRIES_DEFAULT};
use crate::duration;

pub fn write(definition: &Definition) -> Value {
    let mut keys = Keys(Map::new());
    keys.put("on", !definition.on.is_empty(), || definition.on.iter().map(write_on).collect::<Vec<_>>().into());
    // always written: its default depends on the kinds of the steps
    keys.put("exclusion", true, || definition.exclusion.word().into());
    keys.word("order", definition.order, super::Order::word);
    keys.word("on-failure", definition.on_failure, super::OnFailure::word);
    keys.word("unmatched", definition.unmatched, super::Unmatched::word);
    keys.word("history", definition.history, super::History::word);
    keys.some("priority", definition.priority, Value::from);
    keys.some("deadline", definition.deadline, |deadline| duration::text(deadline).into());
    let steps: Map<String, Value> =
        definition.steps.iter().map(|step| (step.name.to_string(), write_step(step))).collect();
    keys.put("step", !steps.is_empty(), || steps.into());
    keys.0.into()
}

/// Returns a definition as one canonical text: definitions are equal if their texts are. A version stands for this
/// text. Events (`on`) are part of it, since steps read what they name. Documents and edges of entities are not: every
/// version uses them as they are configured now.
pub fn text(definition: &Definition) -> String {
    canonical(&write(definition)).to_string()
}

fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| name.as_bytes());
            sorted.into_iter().map(|(name, field)| (name.clone(), canonical(field))).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(canonical).collect::<Vec<_>>().into(),
        Value::Number(number) if number.is_f64() => {
            let canonical = number.as_f64().and_then(honeyflow_event::document::canonical_number);
            canonical.unwrap_or_else(|| number.clone()).into()
        }
        other => other.clone(),
    }
}

fn write_on(on: &On) -> Value {
    let mut keys = Keys(Map::new());
    keys.put("source", true, || (&*on.source).into());
    keys.put("entity", true, || (&*on.entity).into());
    keys.put("change", !on.change.is_unknown(), || on.change.words().collect::<Vec<_>>().into());
    keys.put("columns", !on.columns.is_empty(), || on.columns.clone().into());
    keys.some("when", on.when.as_deref(), Value::from);
    keys.some("existing", on.existing, Value::from);
    keys.0.into()
}

fn write_step(step: &StepDefinition) -> Value {
    let mut keys = Keys(step.settings.clone());
    keys.put("use", true, || (&*step.kind).into());
    keys.put("needs", !step.needs.is_empty(), || {
        let needs = step.needs.iter().map(|need| match need.on {
            Edge::Success => Value::from(&*need.step),
            on => json!({ "step": &*need.step, "on": on.word() }),
        });
        needs.collect::<Vec<_>>().into()
    });
    keys.word("trigger", step.trigger, super::Trigger::word);
    keys.some("when", step.when.as_deref(), Value::from);
    keys.word("else", step.otherwise, super::Otherwise::word);
    keys.put("optional", step.optional, || true.into());
    keys.put("forgives", step.forgives, || true.into());
    keys.some("for-each", step.for_each.as_deref(), Value::from);
    keys.put("parallel", step.parallel != PARALLEL_DEFAULT, || step.parallel.into());
    keys.put("tolerate", step.tolerate != 0, || step.tolerate.into());
    keys.some("input", step.input.as_deref(), Value::from);
    keys.put("tries", step.tries != TRIES_DEFAULT, || step.tries.into());
    keys.some(
        "backoff",
        step.backoff,
        |backoff| json!({ "base": duration::text(backoff.base), "cap": duration::text(backoff.cap) }),
    );
    keys.some("timeout", step.timeout, |timeout| duration::text(timeout).into());
    keys.some("give-up-after", step.give_up_after, |after| duration::text(after).into());
    keys.some("batch", step.batch, Value::from);
    keys.some("checkpoint", step.checkpoint, |checkpoint| checkpoint.word().into());
    keys.put("on-missing", step.on_missing_run, || "run".into());
    keys.some("limit", step.limit.as_deref(), Value::from);
    keys.put("labels", !step.labels.is_empty(), || json!(step.labels));
    keys.0.into()
}

struct Keys(Map<String, Value>);

impl Keys {
    fn put(&mut self, key: &str, written: bool, value: impl FnOnce() -> Value) {
        if written {
            self.0.insert(key.to_owned(), value());
        }
    }

    fn some<T>(&mut self, key: &str, value: Option<T>, write: impl FnOnce(T) -> Value) {
        if let Some(value) = value {
            self.0.insert(key.to_owned(), write(value));
        }
    }

    fn word<T: Default + PartialEq>(&mut self, key: &str, value: T, word: fn(T) -> &'static str) {
        self.put(key, value != T::default(), || word(value).into());
    }
}
