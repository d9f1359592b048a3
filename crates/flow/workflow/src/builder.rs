//! Workflows written in Rust. The builder makes the same value as TOML, and the same reader reads it, so that it gives
//! the same definition and the same errors.
//!
//! ```
//! use honeyflow_workflow::builder::{Workflow, step};
//! # use honeyflow_workflow::{Catalogue, Checkpoint, Kind, Role};
//! # let kind = |name, role| Kind { name, settings: &[], role, checkpoint: Checkpoint::Never, batch_max: 1, timeout: Default::default() };
//! # let catalogue = Catalogue::new(vec![kind("sql.load", Role::Load), kind("search.index", Role::Sink)]);
//! let definition = Workflow::new("book")
//!     .on("shop", "book")
//!     .step("load", step("sql.load"))
//!     .step("index", step("search.index").needs(["load"]))
//!     .build(&catalogue)?;
//! assert_eq!(definition.steps.len(), 2);
//! # Ok::<(), Vec<honeyflow_workflow::Problem>>(())
//! ```

use serde_json::{Map, Value, json};

use crate::definition::{Definition, Edge, Trigger, check, read};
use crate::problem::Problem;
use crate::{catalogue::Catalogue, codes};

#[derive(Clone, Debug)]
pub struct Workflow {
    name: String,
    keys: Map<String, Value>,
    on: Vec<Value>,
    steps: Map<String, Value>,
    duplicates: Vec<String>,
}

/// A step under construction; see [`step`].
#[derive(Clone, Debug)]
pub struct Step(Map<String, Value>);

/// Creates a step of the given kind with the default of all other keys.
pub fn step(kind: &str) -> Step {
    Step(Map::from_iter([("use".to_owned(), kind.into())]))
}

impl Workflow {
    pub fn new(name: &str) -> Workflow {
        let (keys, steps) = (Map::new(), Map::new());
        Workflow { name: name.to_owned(), keys, on: Vec::new(), steps, duplicates: Vec::new() }
    }

    /// Begins a run for events of this entity.
    pub fn on(mut self, source: &str, entity: &str) -> Workflow {
        self.on.push(json!({ "source": source, "entity": entity }));
        self
    }

    /// Sets a key as it would be written in TOML.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Workflow {
        self.keys.insert(key.to_owned(), value.into());
        self
    }

    pub fn step(mut self, name: &str, step: Step) -> Workflow {
        if self.steps.insert(name.to_owned(), step.0.into()).is_some() {
            self.duplicates.push(name.to_owned());
        }
        self
    }

    /// Lets `then` run when `first` has succeeded.
    pub fn on_success(self, first: &str, then: &str) -> Workflow {
        self.edge(first, then, Edge::Success)
    }

    /// Lets `then` run when `first` has ended in any state.
    pub fn on_complete(self, first: &str, then: &str) -> Workflow {
        self.edge(first, then, Edge::Done)
    }

    /// Lets `then` run when `first` has failed.
    pub fn on_failure(self, first: &str, then: &str) -> Workflow {
        self.edge(first, then, Edge::Failure)
    }

    fn edge(mut self, first: &str, then: &str, on: Edge) -> Workflow {
        // `then` may be added later; if it never is, it has no kind, which is reported
        let keys = match self.steps.remove(then) {
            Some(Value::Object(keys)) => keys,
            _ => Map::new(),
        };
        self.steps.insert(then.to_owned(), Step(keys).need(first, on).0.into());
        self
    }

    /// Returns the value that TOML would have given.
    pub fn value(&self) -> Value {
        let mut keys = self.keys.clone();
        if !self.on.is_empty() {
            keys.insert("on".to_owned(), self.on.clone().into());
        }
        keys.insert("step".to_owned(), self.steps.clone().into());
        keys.into()
    }

    pub fn build(&self, catalogue: &Catalogue) -> Result<Definition, Vec<Problem>> {
        let value = self.value();
        let mut problems = check(&self.name, &value, catalogue);
        for step in &self.duplicates {
            let path = format!("workflow.{}.step.{step}", self.name);
            problems.push(Problem::error(
                path,
                codes::problem::DUPLICATE_STEP,
                format!("there are two steps `{step}`"),
            ));
        }
        problems.sort();
        if problems.is_empty() { read(&self.name, &value, catalogue) } else { Err(problems) }
    }
}

impl Step {
    /// Sets a key of every step, or of its kind, as it would be written in TOML.
    pub fn set(mut self, key: &str, value: impl Into<Value>) -> Step {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    /// Lets the step run after these have succeeded (unless the trigger says otherwise).
    pub fn needs<'a>(self, steps: impl IntoIterator<Item = &'a str>) -> Step {
        steps.into_iter().fold(self, |step, need| step.need(need, Edge::Success))
    }

    /// Adds a need with its edge.
    pub fn need(mut self, need: &str, on: Edge) -> Step {
        let entry = match on {
            Edge::Success => Value::from(need),
            on => json!({ "step": need, "on": on.word() }),
        };
        match self.0.get_mut("needs") {
            Some(Value::Array(needs)) => needs.push(entry),
            _ => drop(self.0.insert("needs".to_owned(), json!([entry]))),
        }
        self
    }

    pub fn trigger(self, trigger: Trigger) -> Step {
        self.set("trigger", trigger.word())
    }

    pub fn when(self, expression: &str) -> Step {
        self.set("when", expression)
    }

    pub fn optional(self) -> Step {
        self.set("optional", true)
    }

    pub fn forgives(self) -> Step {
        self.set("forgives", true)
    }
}
