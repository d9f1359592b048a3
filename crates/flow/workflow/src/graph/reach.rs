//! Finds steps that can never run: their condition is always false, or their needs can never end as the trigger
//! requires.

use crate::definition::Edge;

use super::Rule;

/// The states in which a step may end. They are over-estimated, never under-estimated: a step that is reported as
/// unreachable is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ends {
    pub succeeded: bool,
    pub failed: bool,
    pub skipped: bool,
    pub blocked: bool,
}

/// The properties of a step that are known before a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepFacts {
    pub rule: Rule,
    pub optional: bool,
    /// `when` is always false, so that the step never runs.
    pub never: bool,
    pub has_when: bool,
}

/// Returns the possible ends of each step; `order` is topological. A step that can neither succeed nor fail is
/// unreachable.
pub(super) fn possible_ends(known: &[StepFacts], needs: &[Vec<(usize, Edge)>], order: &[usize]) -> Vec<Ends> {
    let mut ends = vec![Ends::default(); known.len()];
    for step in order.iter().copied() {
        let seen: Vec<Ends> =
            needs[step].iter().map(|(need, on)| mapped(ends[*need], known[*need].optional, *on)).collect();
        let some = |test: fn(&Ends) -> bool| seen.iter().any(test);
        let may_run = match known[step].rule {
            Rule::AllSuccess => seen.iter().all(|need| need.succeeded),
            Rule::NoneFailed => {
                seen.is_empty()
                    || (some(|need| need.succeeded) && seen.iter().all(|need| need.succeeded || need.skipped))
            }
            Rule::OneSuccess => seen.is_empty() || some(|need| need.succeeded),
        };
        let runs = may_run && !known[step].never;
        ends[step] = Ends {
            succeeded: runs,
            failed: runs,
            skipped: some(|need| need.skipped) || (may_run && known[step].has_when),
            blocked: some(|need| need.failed || need.blocked),
        };
    }
    ends
}

fn mapped(ends: Ends, optional: bool, on: Edge) -> Ends {
    match on {
        Edge::Success if optional => Ends { succeeded: ends.succeeded || ends.failed, failed: false, ..ends },
        Edge::Success => ends,
        Edge::Done => Ends { succeeded: true, ..Ends::default() },
        Edge::Failure => {
            Ends { succeeded: ends.failed || ends.blocked, skipped: ends.succeeded || ends.skipped, ..Ends::default() }
        }
    }
}
