//! What a run of a workflow must come to for a row, said without the engine: the truth tables read once more, and
//! independently.

use honeyflow_invariant::verdict::{self, End, Step};
use honeyflow_workflow::{Edge, Graph, Role, Rule, StepId};

/// What is known of the row when the run has loaded it.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The row is gone.
    pub missing: bool,
    /// The step that fails for it.
    pub fails: Option<StepId>,
    /// Its field `n`, which conditions ask.
    pub n: u64,
}

pub fn ends(graph: &Graph, known: Known) -> Vec<End> {
    let mut ends = vec![End::Open; graph.steps.len()];
    for step in graph.topological().iter().copied() {
        ends[usize::from(step)] = end_of(graph, step, &ends, known);
    }
    ends
}

/// Whether a step's condition holds. Whatever was not loaded is null, and different from any number.
pub fn passes_condition(graph: &Graph, step: StepId, ends: &[End], known: Known) -> bool {
    let written = graph.definition.steps.iter().find(|written| written.name == graph[step].name);
    let load = graph.step("s00").or(graph.step("load"));
    let loaded = load.is_some_and(|load| ends[usize::from(load)] == End::Succeeded);
    match written.and_then(|written| written.when.as_deref()) {
        Some(".n != 1" | "$steps.s00.n != 1") => known.n != 1 || !loaded,
        Some(".n != 2" | "$steps.s00.n != 2") => known.n != 2 || !loaded,
        Some(other) => unreachable!("no shape has the condition {other}"),
        None => true,
    }
}

fn end_of(graph: &Graph, step: StepId, ends: &[End], known: Known) -> End {
    let (mut good, mut bad, mut skipped, mut count) = (0, 0, 0, 0);
    for (need, edge) in graph.needs(step) {
        count += 1;
        let (role, optional) = (graph[*need].role, graph[*need].optional);
        let seen = match (ends[usize::from(*need)], edge) {
            (End::Succeeded, Edge::Failure) | (End::Skipped, Edge::Failure) => 'k',
            (End::Succeeded, _) | (_, Edge::Done) => 's',
            // where the row is gone nothing is skipped: sinks below have something to delete
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

/// The steps of a graph as the rule for verdicts wants them.
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
