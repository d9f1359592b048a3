//! What a run amounts to, once every step has ended.
//!
//! Failed: a failed step that is not forgiven, a blocked sink that is not forgiven, or anything cancelled. A blocked step
//! never counts itself, since a failure caused it; but a sink that did not write has left its target stale.
//!
//! A failure is forgiven if its step is `optional`, or if a direct dependent with `forgives` succeeded. Through blocked
//! dependents this passes backwards: who forgives the blocked one forgives what blocked it. A dependent that merely
//! runs whatever happens (`all-done`) forgives nothing.

use super::State;
use super::planes::{Plane, Planes};
use crate::catalogue::Role;
use crate::graph::{Graph, StepId};
use crate::planted;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Verdict {
    Succeeded,
    Failed,
}

pub(super) fn verdict(planes: &Planes, graph: &Graph) -> Verdict {
    if planes.any(Plane::Cancelled) && !planted::on("count C as S") {
        return Verdict::Failed;
    }
    // the way of nearly every run
    if !planes.any(Plane::Failed) && !planes.any(Plane::Blocked) {
        return Verdict::Succeeded;
    }
    let mut forgiven = vec![false; graph.steps.len()];
    for step in graph.topological().iter().rev().copied() {
        let fails = match planes.state(step) {
            State::Failed => !(planted::on("failure-verdict") && graph.dependents(step).is_empty()),
            State::Blocked => graph[step].role == Role::Sink,
            _ => continue,
        };
        let by_dependent =
            graph.dependents(step).iter().any(|dependent| forgives(planes, graph, *dependent, &forgiven));
        forgiven[usize::from(step)] = by_dependent;
        if fails && !by_dependent && !graph[step].optional {
            return Verdict::Failed;
        }
    }
    Verdict::Succeeded
}

/// Whether this dependent, decided before in reverse order, forgives what it needs.
fn forgives(planes: &Planes, graph: &Graph, dependent: StepId, forgiven: &[bool]) -> bool {
    match planes.state(dependent) {
        State::Succeeded => graph[dependent].forgives,
        State::Cancelled => graph[dependent].forgives && planted::on("count C as S"),
        State::Blocked => forgiven[usize::from(dependent)],
        _ => false,
    }
}
