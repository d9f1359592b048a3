//! The last part of compiling, for a definition without problems: replaces names by numbers and lists by flat arrays.

use std::{ops::Range, sync::Arc};

use super::{Compiler, Parts};
use crate::catalogue::Kind;
use crate::definition::{Definition, Edge, StepDefinition};
use crate::expression::Expression;
use crate::graph::{CompiledOn, ContextReads, Graph, Masks, Step, StepId, reads::Ancestors};

impl Compiler<'_> {
    pub(super) fn build(&mut self, version: u32, on: Vec<CompiledOn>, order: &[usize], output_read: &[bool]) -> Graph {
        let definition = self.definition;
        let mut dependents_of = vec![Vec::new(); definition.steps.len()];
        for (step, needs) in self.needs.iter().enumerate() {
            for (need, _) in needs {
                dependents_of[*need].push(id(step));
            }
        }
        let (mut needs, mut dependents, mut steps) = (Vec::new(), Vec::new(), Vec::new());
        for (n, (step, parts)) in definition.steps.iter().zip(std::mem::take(&mut self.parts)).enumerate() {
            let Some(kind) = self.catalogue.get(&step.kind) else { continue };
            let of_step = append(&mut needs, self.needs[n].iter().map(|(need, edge)| (id(*need), *edge)));
            let after_step = append(&mut dependents, dependents_of[n].iter().copied());
            let masks = masks(&self.needs[n], definition);
            let sees = self.sees(n, &parts, order);
            let built = build_step(step, kind, parts, of_step, after_step, masks, output_read[n]);
            steps.push(Step { sees, ..built });
        }
        Graph {
            name: definition.name.clone(),
            version,
            hash: definition.hash(),
            steps,
            on,
            definition: Arc::new(definition.clone()),
            by_name: self.by_name.drain().map(|(name, step)| (name, id(step))).collect(),
            needs,
            dependents,
            order: order.iter().map(|step| id(*step)).collect(),
        }
    }
}

impl Compiler<'_> {
    fn sees(&self, step: usize, parts: &Parts, order: &[usize]) -> ContextReads {
        let own = || parts.settings.iter().map(|(_, expression)| expression);
        let reads = |name: &str| own().any(|expression| expression.variables().any(|variable| variable == name));
        let mut steps: Vec<StepId> = own()
            .flat_map(Expression::reads)
            .filter_map(|name| self.by_name.get(&**name))
            .map(|step| id(*step))
            .collect();
        if own().any(Expression::reads_all) {
            let plain: Vec<Vec<usize>> =
                self.needs.iter().map(|needs| needs.iter().map(|(need, _)| *need).collect()).collect();
            steps.extend(Ancestors::new(&plain, order).ancestors_of(step).map(id));
        }
        steps.sort_unstable();
        steps.dedup();
        ContextReads { event: reads("$event"), run: reads("$run"), item: reads("$item"), steps }
    }
}

fn build_step(
    step: &StepDefinition,
    kind: &Kind,
    parts: Parts,
    needs: Range<u32>,
    dependents: Range<u32>,
    masks: Masks,
    output_read: bool,
) -> Step {
    Step {
        name: step.name.clone(),
        kind: step.kind.clone(),
        role: kind.role,
        rule: parts.rule,
        batch_max: step.batch.unwrap_or(kind.batch_max).min(kind.batch_max).max(1),
        timeout: step.timeout.unwrap_or(kind.timeout),
        tries: step.tries,
        backoff: step.backoff,
        give_up_after: step.give_up_after,
        when: parts.when,
        for_each: parts.for_each,
        input: parts.input,
        expressions: parts.settings,
        optional: step.optional,
        forgives: step.forgives,
        on_missing_run: step.on_missing_run,
        otherwise: step.otherwise,
        checkpoint: step.checkpoint.unwrap_or(kind.checkpoint),
        parallel: step.parallel,
        tolerate: step.tolerate,
        limit: step.limit.clone(),
        settings: Arc::new(step.settings.clone()),
        sees: ContextReads::default(),
        output_read,
        needs,
        dependents,
        masks,
    }
}

fn masks(needs: &[(usize, Edge)], definition: &Definition) -> Masks {
    let mut masks = Masks::default();
    if definition.steps.len() > Graph::INLINE_STEPS_MAX {
        return masks;
    }
    for (need, edge) in needs {
        let bit = 1 << need;
        match edge {
            Edge::Success => masks.success |= bit,
            Edge::Done => masks.done |= bit,
            Edge::Failure => masks.failure |= bit,
        }
        if definition.steps[*need].optional {
            masks.optional |= masks.success & bit;
        }
    }
    masks
}

fn append<T>(all: &mut Vec<T>, more: impl Iterator<Item = T>) -> Range<u32> {
    let start = all.len();
    all.extend(more);
    narrow(start)..narrow(all.len())
}

/// Converts a number of edges; it is at most [`crate::definition::EDGES_MAX`], which was checked.
fn narrow(edges: usize) -> u32 {
    u32::try_from(edges).unwrap_or(u32::MAX)
}

/// Converts the index of a step; it is below [`crate::definition::STEPS_MAX`], which was checked.
fn id(step: usize) -> StepId {
    StepId::try_from(step).unwrap_or(StepId::MAX)
}
