//! One run through a graph: which steps are ready, which have ended and how, and what it all amounts to.
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
//! Anything else changes nothing. What a trigger sees of a need depends on the edge:
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
//! In a run whose row is gone a skipped need counts as S on success edges, since its step would have passed: a sink
//! below it has something to delete, whichever of the two became known first.

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

/// Leased, delayed and sleeping steps are `Ready` here: the difference is the dispatcher's knowledge.
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
    /// Steps that have not ended.
    open: u16,
    missing: bool,
}

/// What a trigger sees of the needs, mapped by their edges.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    succeeded: bool,
    skipped: bool,
    /// Failed, blocked or cancelled.
    bad: bool,
}

impl Run {
    /// A run in which nothing has happened yet: the steps without needs are ready.
    pub fn begin(graph: &Graph, ready: &mut Vec<StepId>) -> Run {
        let mut run = Run { planes: Planes::new(graph), open: graph.ids().end, missing: false };
        for root in graph.roots() {
            run.planes.set(Plane::Ready, root);
            ready.push(root);
        }
        run
    }

    /// A run some of whose steps have ended before, as their checkpoints say. These are never decided again, even
    /// where what they needed is to be done once more.
    pub fn restore(graph: &Graph, finished: &[(StepId, End)], ready: &mut Vec<StepId>) -> Run {
        let mut run = Run { planes: Planes::new(graph), open: graph.ids().end, missing: false };
        for (step, end) in finished {
            if graph.ids().contains(step) && run.is_pending(*step) {
                run.finish(graph, *step, Plane::of(*end));
            }
        }
        for step in graph.topological() {
            if run.is_pending(*step) && run.planes.needs_ended(graph, *step) {
                run.decide(graph, *step, ready);
            }
        }
        run
    }

    /// A ready step ended: its dependents are decided, and theirs. Those that became ready are pushed. False, and
    /// nothing changes, if the step was not ready.
    pub fn end(&mut self, graph: &Graph, step: StepId, end: End, ready: &mut Vec<StepId>) -> bool {
        if !graph.ids().contains(&step) || !self.planes.get(Plane::Ready, step) {
            return false;
        }
        self.planes.clear(Plane::Ready, step);
        self.finish(graph, step, Plane::of(end));
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

    /// The row is gone. From now on steps pass, and sinks delete.
    pub fn missing(&mut self) {
        self.missing = true;
    }

    pub fn is_missing(&self) -> bool {
        self.missing
    }

    /// Whether a ready step is to be ended at once as succeeded with `null`, its expressions unevaluated.
    /// Sinks are executed, as deletes; their expressions are not evaluated either.
    pub fn passes(&self, graph: &Graph, step: StepId) -> bool {
        self.missing && graph[step].role != Role::Sink && !graph[step].on_missing_run
    }

    pub fn state(&self, graph: &Graph, step: StepId) -> State {
        debug_assert!(graph.ids().contains(&step), "step {step} is not of this graph");
        self.planes.state(step)
    }

    /// Everything that has not ended becomes cancelled.
    pub fn cancel(&mut self, graph: &Graph) {
        for step in graph.ids() {
            self.planes.clear(Plane::Ready, step);
        }
        self.stop(graph);
    }

    /// What has not started becomes cancelled; what is ready ends by itself.
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

    /// None while a step is open.
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

    /// All needs have ended: whether the step has ended thereby.
    fn decide(&mut self, graph: &Graph, step: StepId, ready: &mut Vec<StepId>) -> bool {
        let seen = self.seen(graph, step);
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

    fn seen(&self, graph: &Graph, step: StepId) -> Seen {
        if self.missing {
            return self.seen_one_by_one(graph, step);
        }
        match self.planes.inline() {
            Some(planes) => planes.seen(graph.masks(step)),
            None => self.seen_one_by_one(graph, step),
        }
    }

    fn seen_one_by_one(&self, graph: &Graph, step: StepId) -> Seen {
        let mut seen = Seen::default();
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
