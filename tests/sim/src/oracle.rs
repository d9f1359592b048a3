//! Computes how a run of a workflow must end for a row, without the engine: a second, independent implementation of the
//! truth tables.

use honeyflow_invariant::verdict::{self, End, Step};
use honeyflow_workflow::{Edge, Graph, Role, Rule, StepId};

/// The facts about a row that decide how its run ends.
#[derive(Clone, Copy, Debug)]
pub struct RowFacts {
    /// Whether the row is deleted.
    pub missing: bool,
    /// The step that fails for this row.
    pub fails: Option<StepId>,
    /// The field `n`, which conditions use.
    pub n: u64,
}

pub fn ends(graph: &Graph, known: RowFacts) -> Vec<End> {
    let mut ends = vec![End::Open; graph.steps.len()];
    for step in graph.topological().iter().copied() {
        ends[usize::from(step)] = end_of(graph, step, &ends, known);
    }
    ends
}

/// Whether a step's condition holds. A value that was not loaded is null, and so differs from any number.
pub fn passes_condition(graph: &Graph, step: StepId, ends: &[End], known: RowFacts) -> bool {
    let written = graph.definition.steps.iter().find(|written| written.name == graph[step].name);
    let load = graph.step("s00").or(graph.step("load"));
    let loaded = load.is_some_and(|load| ends[usize::from(load)] == End::Succeeded);
    match written.and_then(|written| written.when.as_deref()) {
        Some(".n != 1" | "$steps.s00.n != 1") => known.n != 1 || !loaded,
        Some(".n != 2" | "$steps.s00.n != 2") => known.n != 2 || !loaded,
        Some("$event.key != null") => true,
        Some(other) => unreachable!("no shape has the condition {other}"),
        None => true,
    }
}

fn end_of(graph: &Graph, step: StepId, ends: &[End], known: RowFacts) -> End {
    let (mut good, mut bad, mut skipped, mut count) = (0, 0, 0, 0);
    for (need, edge) in graph.needs(step) {
        count += 1;
        let (role, optional) = (graph[*need].role, graph[*need].optional);
        let seen = match (ends[usize::from(*need)], edge) {
            (End::Succeeded, Edge::Failure) | (End::Skipped, Edge::Failure) => 'k',
            (End::Succeeded, _) | (_, Edge::Done) => 's',
            // If the row is deleted, nothing is skipped, because sinks below have to delete their documents.
            (End::Skipped, Edge::Success) => {
                if known.missing && role != Role::Sink {
                    's'
                } else {
                    'k'
                }
            }
            (End::Failed, Edge::Success) => {
                if optional {
                    's'
                } else {
                    'b'
                }
            }
            (End::Blocked | End::Cancelled, Edge::Success) => 'b',
            (End::Failed | End::Blocked | End::Cancelled, Edge::Failure) => 's',
            (End::Open, _) => unreachable!("in topological order every need has ended"),
        };
        match seen {
            's' => good += 1,
            'b' => bad += 1,
            _ => skipped += 1,
        }
    }
    let runs = match graph[step].rule {
        Rule::AllSuccess => bad == 0 && skipped == 0,
        Rule::NoneFailed => bad == 0 && (good > 0 || count == 0),
        Rule::OneSuccess => good > 0 || count == 0,
    };
    if !runs {
        return if bad > 0 { End::Blocked } else { End::Skipped };
    }
    let sink = graph[step].role == Role::Sink;
    if known.missing && !sink {
        return End::Succeeded;
    }
    if !known.missing && !sink && !passes_condition(graph, step, ends, known) {
        return End::Skipped;
    }
    if known.fails == Some(step) { End::Failed } else { End::Succeeded }
}

/// The steps of a graph in the form that the rule for verdicts needs.
pub fn steps(graph: &Graph, ends: &[End]) -> Vec<Step> {
    let step = |(step, end): (StepId, &End)| Step {
        end: *end,
        needs: graph.needs(step).iter().map(|(need, _)| *need).collect(),
        optional: graph[step].optional,
        forgives: graph[step].forgives,
        sink: graph[step].role == Role::Sink,
    };
    graph.ids().zip(ends).map(step).collect()
}

pub fn succeeds(graph: &Graph, ends: &[End]) -> bool {
    verdict::verdict(&steps(graph, ends)) == Some(true)
}
