//! The verdict of a run, once every step has ended.
//!
//! A run has failed if it has a failed step that is not forgiven, a blocked sink that is not forgiven, or a cancelled
//! step. Other blocked steps do not count, since a failure caused them; but a sink that did not write has left its
//! target stale.
//!
//! A failure is forgiven if its step is `optional`, or if a direct dependent with `forgives` succeeded. Forgiveness
//! passes backwards through blocked dependents: a step that forgives the blocked one forgives the step that blocked it.
//! A dependent that runs in any case (`all-done`) forgives nothing.

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
    // nearly every run ends here
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

/// Whether this dependent, which the reverse order has decided before, forgives its needs.
fn forgives(planes: &Planes, graph: &Graph, dependent: StepId, forgiven: &[bool]) -> bool {
    match planes.state(dependent) {
        State::Succeeded => graph[dependent].forgives,
        State::Cancelled => graph[dependent].forgives && planted::on("count C as S"),
        State::Blocked => forgiven[usize::from(dependent)],
        _ => false,
    }
}
