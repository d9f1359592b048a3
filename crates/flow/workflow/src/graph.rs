//! A compiled definition: steps by number, needs and dependents in flat arrays, triggers reduced to three.
//!
//! A graph has no cycles and every name in it exists: [`compile`] refuses any other definition.

mod compile;
mod order;
mod reach;
mod reads;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, ops::Range, sync::Arc, time::Duration};

use honeyflow_event::{Changes, Name, view::column_names};
use honeyflow_runtime::Backoff;
use serde_json::{Map, Value};

use crate::catalogue::Role;
use crate::definition::{Checkpoint, Definition, Edge, Otherwise};
use crate::expression::Expression;

pub use compile::compile;

/// The number of a step within its graph.
pub type StepId = u16;

/// The three triggers that remain after [`compile`] has expressed the others as edges.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Rule {
    AllSuccess,
    NoneFailed,
    OneSuccess,
}

#[derive(Clone, Debug)]
pub struct Graph {
    pub name: Name,
    pub version: u32,
    /// The hash of the definition's content: equal content has an equal hash.
    pub hash: u64,
    pub steps: Vec<Step>,
    pub on: Vec<CompiledOn>,
    pub definition: Arc<Definition>,
    by_name: HashMap<Name, StepId>,
    needs: Vec<(StepId, Edge)>,
    dependents: Vec<StepId>,
    /// Needs before what needs them.
    order: Vec<StepId>,
}

/// Which events begin a run, with the condition over `$event`.
#[derive(Clone, Debug)]
pub struct CompiledOn {
    pub source: Name,
    pub entity: Name,
    pub change: Changes,
    pub columns: Vec<String>,
    pub when: Option<Expression>,
}

impl CompiledOn {
    /// Whether a row with this change and these changed columns (a JSON list) begins a run. A row of which that is not
    /// known begins one only if this names neither.
    pub fn accepts(&self, change: Changes, columns: Option<&str>) -> bool {
        if self.change.is_unknown() {
            return true;
        }
        if self.depends_on_columns(change) {
            let named = |column: &String| self.columns.iter().any(|named| named.eq_ignore_ascii_case(column));
            return columns.is_some_and(|text| column_names(text).iter().any(named));
        }
        change.intersects(self.change)
    }

    /// Whether the row does not say what this asks for.
    pub fn lacks_facts(&self, change: Changes, columns: Option<&str>) -> bool {
        let lacks_columns = columns.is_none() && self.depends_on_columns(change);
        !self.change.is_unknown() && (change.is_unknown() || lacks_columns)
    }

    fn depends_on_columns(&self, change: Changes) -> bool {
        let is_update_only = !change.intersects(self.change.without(Changes::UPDATE));
        is_update_only && change.intersects(self.change) && !self.columns.is_empty()
    }
}

#[derive(Clone, Debug)]
pub struct Step {
    pub name: Name,
    pub kind: Name,
    pub role: Role,
    pub rule: Rule,
    pub batch_max: u32,
    pub timeout: Duration,
    pub tries: u32,
    pub backoff: Option<Backoff>,
    pub give_up_after: Option<Duration>,
    pub when: Option<Expression>,
    pub for_each: Option<Expression>,
    pub input: Option<Expression>,
    /// The settings of its kind that are expressions.
    pub expressions: Vec<(Name, Expression)>,
    pub optional: bool,
    pub forgives: bool,
    pub on_missing_run: bool,
    pub otherwise: Otherwise,
    pub checkpoint: Checkpoint,
    pub parallel: u32,
    pub tolerate: u32,
    pub limit: Option<Name>,
    pub settings: Arc<Map<String, Value>>,
    /// The values beside the input that its own expressions read.
    pub sees: ContextReads,
    /// Whether a later step or an expression reads its output; if not, the engine does not store it.
    pub output_read: bool,
    needs: Range<u32>,
    dependents: Range<u32>,
    masks: Masks,
}

/// The values that the expressions in a step's settings read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ContextReads {
    pub event: bool,
    pub run: bool,
    pub item: bool,
    /// The steps whose outputs they read.
    pub steps: Vec<StepId>,
}

/// The needs of a step by kind of edge, one bit for each; used by graphs of at most 64 steps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Masks {
    pub(crate) success: u64,
    pub(crate) done: u64,
    pub(crate) failure: u64,
    /// The needs in `success` whose failure counts as success.
    pub(crate) optional: u64,
}

impl Graph {
    /// The most steps of a run whose states fit into one word each.
    pub(crate) const INLINE_STEPS_MAX: usize = 64;

    pub fn step(&self, name: &str) -> Option<StepId> {
        self.by_name.get(name).copied()
    }

    pub fn ids(&self) -> Range<StepId> {
        0..StepId::try_from(self.steps.len()).unwrap_or(StepId::MAX)
    }

    /// Returns the steps without needs.
    pub fn roots(&self) -> impl Iterator<Item = StepId> + '_ {
        self.ids().filter(|step| self.needs(*step).is_empty())
    }

    pub fn needs(&self, step: StepId) -> &[(StepId, Edge)] {
        let range = &self.steps[usize::from(step)].needs;
        &self.needs[range.start as usize..range.end as usize]
    }

    pub fn dependents(&self, step: StepId) -> &[StepId] {
        let range = &self.steps[usize::from(step)].dependents;
        &self.dependents[range.start as usize..range.end as usize]
    }

    /// Needs before what needs them.
    pub fn topological(&self) -> &[StepId] {
        &self.order
    }

    pub(crate) fn masks(&self, step: StepId) -> Masks {
        self.steps[usize::from(step)].masks
    }
}

impl std::ops::Index<StepId> for Graph {
    type Output = Step;

    fn index(&self, step: StepId) -> &Step {
        &self.steps[usize::from(step)]
    }
}
