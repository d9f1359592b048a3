//! One run through a graph: which steps are ready, how each has ended, and the verdict of the run.
//!
//! | from    | input                                               | to        |
//! |---------|-----------------------------------------------------|-----------|
//! | pending | all needs ended, the trigger's "runs if"            | ready     |
//! | pending | all needs ended, the trigger's "else skipped if"    | skipped   |
//! | pending | all needs ended, otherwise                          | blocked   |
//! | ready   | `end(Succeeded \| Failed \| Skipped)`               | as said   |
//! | pending | `stop`                                              | cancelled |
//! | pending, ready | `cancel`                                     | cancelled |
//!
//! Any other input changes nothing. How a need counts for a trigger depends on the edge:
//!
//! | edge    | succeeded | skipped | failed                 | blocked, cancelled |
//! |---------|-----------|---------|------------------------|--------------------|
//! | success | S         | K       | F; `optional`: S       | B                  |
//! | done    | S         | S       | S                      | S                  |
//! | failure | K         | K       | S                      | S                  |
//!
//! | trigger      | runs if                        | else skipped if  | else blocked |
//! |--------------|--------------------------------|------------------|--------------|
//! | all-success  | all S                          | no F or B        |              |
//! | none-failed  | no F or B, at least one S      | no F or B        |              |
//! | one-success  | at least one S                 | no F or B        |              |
//!
//! In a run whose row is gone, a skipped need counts as S on success edges, since its step would have passed. So a sink
//! below it deletes, no matter whether the skip or the missing row became known first.

mod planes;
#[cfg(test)]
mod tests;
mod verdict;

use smallvec::SmallVec;

use crate::catalogue::Role;
use crate::definition::Edge;
use crate::graph::{Graph, Rule, StepId};
use crate::planted;

use planes::{Plane, Planes};
pub use verdict::Verdict;

/// How a ready step ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    Succeeded,
    Failed,
    Skipped,
}

/// The state of a step. Leased, delayed and sleeping steps are `Ready` here: only the dispatcher knows the difference.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Pending,
    Ready,
    Succeeded,
    Failed,
    Skipped,
    Blocked,
    Cancelled,
}

#[derive(Clone, Debug)]
pub struct Run {
    planes: Planes,
    /// The number of steps that have not ended.
    open: u16,
    missing: bool,
}

/// How the needs of a step count for its trigger, by their edges.
#[derive(Clone, Copy, Debug, Default)]
struct NeedsSummary {
    succeeded: bool,
    skipped: bool,
    /// Failed, blocked or cancelled.
    bad: bool,
}

impl Run {
    /// Begins a run: the steps without needs are ready.
    pub fn begin(graph: &Graph, ready: &mut Vec<StepId>) -> Run {
        let mut run = Run { planes: Planes::new(graph), open: graph.ids().end, missing: false };
        for root in graph.roots() {
            run.planes.set(Plane::Ready, root);
            ready.push(root);
        }
        run
    }

    /// Restores a run in which some steps have ended before, according to their checkpoints. These are never decided
    /// again, even if the steps that they need are executed again.
    pub fn restore(graph: &Graph, finished: &[(StepId, End)], ready: &mut Vec<StepId>) -> Run {
        let mut run = Run { planes: Planes::new(graph), open: graph.ids().end, missing: false };
        for (step, end) in finished {
            if graph.ids().contains(step) && run.is_pending(*step) {
                run.finish(graph, *step, Plane::for_end(*end));
            }
        }
        for step in graph.topological() {
            if run.is_pending(*step) && run.planes.needs_ended(graph, *step) {
                run.decide(graph, *step, ready);
            }
        }
        run
    }

    /// Ends a ready step, decides its dependents, and theirs in turn. Steps that become ready are pushed. Returns
    /// false, and changes nothing, if the step was not ready.
    pub fn end(&mut self, graph: &Graph, step: StepId, end: End, ready: &mut Vec<StepId>) -> bool {
        if !graph.ids().contains(&step) || !self.planes.get(Plane::Ready, step) {
            return false;
        }
        self.planes.clear(Plane::Ready, step);
        self.finish(graph, step, Plane::for_end(end));
        let mut ended: SmallVec<[StepId; 16]> = SmallVec::new();
        ended.push(step);
        while let Some(step) = ended.pop() {
            if planted::on("join-skip") && self.planes.get(Plane::Skipped, step) {
                continue;
            }
            for dependent in graph.dependents(step) {
                let decidable =
                    self.is_pending(*dependent) && (self.planes.needs_ended(graph, *dependent) || planted::on("PB-23"));
                if decidable && self.decide(graph, *dependent, ready) {
                    ended.push(*dependent);
                }
            }
        }
        true
    }

    /// Notes that the row is gone: from now on steps pass, and sinks delete.
    pub fn set_missing(&mut self) {
        self.missing = true;
    }

    pub fn is_missing(&self) -> bool {
        self.missing
    }

    /// Whether a ready step ends at once as succeeded with `null`, without evaluating its expressions. Sinks are
    /// executed, as deletes; their expressions are not evaluated either.
    pub fn passes(&self, graph: &Graph, step: StepId) -> bool {
        self.missing && graph[step].role != Role::Sink && !graph[step].on_missing_run
    }

    pub fn state(&self, graph: &Graph, step: StepId) -> State {
        debug_assert!(graph.ids().contains(&step), "step {step} is not of this graph");
        self.planes.state(step)
    }

    /// Cancels all steps that have not ended.
    pub fn cancel(&mut self, graph: &Graph) {
        for step in graph.ids() {
            self.planes.clear(Plane::Ready, step);
        }
        self.stop(graph);
    }

    /// Cancels the pending steps; ready steps end by themselves.
    pub fn stop(&mut self, graph: &Graph) {
        for step in graph.ids() {
            if self.is_pending(step) {
                self.finish(graph, step, Plane::Cancelled);
            }
        }
    }

    pub fn ended(&self, graph: &Graph) -> bool {
        debug_assert!(self.open <= graph.ids().end, "a run of another graph");
        self.open == 0
    }

    /// Returns the verdict; `None` while a step is open.
    pub fn verdict(&self, graph: &Graph) -> Option<Verdict> {
        self.ended(graph).then(|| verdict::verdict(&self.planes, graph))
    }

    fn is_pending(&self, step: StepId) -> bool {
        self.planes.state(step) == State::Pending
    }

    fn finish(&mut self, graph: &Graph, step: StepId, plane: Plane) {
        self.planes.set(plane, step);
        self.planes.count_down(graph, step);
        self.open -= 1;
    }

    /// Decides a step whose needs have all ended. Returns whether the step has ended by that.
    fn decide(&mut self, graph: &Graph, step: StepId, ready: &mut Vec<StepId>) -> bool {
        let seen = self.needs_summary(graph, step);
        let runs = match graph[step].rule {
            Rule::AllSuccess => !seen.bad && !seen.skipped,
            // a root has no needs that could have succeeded
            Rule::NoneFailed => !seen.bad && (seen.succeeded || graph.needs(step).is_empty()),
            Rule::OneSuccess => seen.succeeded || graph.needs(step).is_empty(),
        };
        if runs {
            self.planes.set(Plane::Ready, step);
            ready.push(step);
            return false;
        }
        self.finish(graph, step, if seen.bad { Plane::Blocked } else { Plane::Skipped });
        true
    }

    fn needs_summary(&self, graph: &Graph, step: StepId) -> NeedsSummary {
        if self.missing {
            return self.summarize_one_by_one(graph, step);
        }
        match self.planes.inline() {
            Some(planes) => planes.needs_summary(graph.masks(step)),
            None => self.summarize_one_by_one(graph, step),
        }
    }

    fn summarize_one_by_one(&self, graph: &Graph, step: StepId) -> NeedsSummary {
        let mut seen = NeedsSummary::default();
        for (need, edge) in graph.needs(step) {
            let would_pass = self.missing && !graph[*need].on_missing_run;
            match (edge, self.planes.state(*need)) {
                (_, State::Pending | State::Ready) => {}
                (Edge::Done, _) => seen.succeeded = true,
                (Edge::Failure, State::Failed | State::Blocked | State::Cancelled) => seen.succeeded = true,
                (Edge::Failure, State::Succeeded | State::Skipped) => seen.skipped = true,
                (Edge::Success, State::Succeeded) => seen.succeeded = true,
                (Edge::Success, State::Skipped) if would_pass => seen.succeeded = true,
                (Edge::Success, State::Skipped) => seen.skipped = true,
                (Edge::Success, State::Failed) if graph[*need].optional => seen.succeeded = true,
                (Edge::Success, State::Failed | State::Blocked | State::Cancelled) => seen.bad = true,
            }
        }
        seen
    }
}
