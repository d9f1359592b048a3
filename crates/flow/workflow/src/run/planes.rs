//! The states of a run's steps as bits: one plane per state. A step that is in no plane is pending.
//!
//! Up to 64 steps are stored in the run itself, without allocation. More are in a box, with the number of needs that
//! each step still waits for, so that a join of thousands is not scanned again at every end.

use super::{End, NeedsSummary, State};
use crate::graph::{Graph, Masks, StepId};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Plane {
    Ready,
    Succeeded,
    Failed,
    Skipped,
    Blocked,
    Cancelled,
}

const PLANES: usize = 6;

impl Plane {
    const ALL: [(Plane, State); PLANES] = [
        (Plane::Ready, State::Ready),
        (Plane::Succeeded, State::Succeeded),
        (Plane::Failed, State::Failed),
        (Plane::Skipped, State::Skipped),
        (Plane::Blocked, State::Blocked),
        (Plane::Cancelled, State::Cancelled),
    ];

    pub(super) fn for_end(end: End) -> Plane {
        match end {
            End::Succeeded => Plane::Succeeded,
            End::Failed => Plane::Failed,
            End::Skipped => Plane::Skipped,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) enum Planes {
    Inline(Inline),
    Boxed(Box<Boxed>),
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Inline([u64; PLANES]);

#[derive(Clone, Debug)]
pub(super) struct Boxed {
    /// The six words of steps 0 to 63, then those of 64 to 127, and so on.
    words: Vec<u64>,
    /// For each step, the number of needs that have not ended.
    waiting: Vec<u16>,
}

impl Planes {
    pub(super) fn new(graph: &Graph) -> Planes {
        if graph.steps.len() <= Graph::INLINE_STEPS_MAX {
            return Planes::Inline(Inline::default());
        }
        let words = vec![0; graph.steps.len().div_ceil(64) * PLANES];
        let waiting = graph.ids().map(|step| u16::try_from(graph.needs(step).len()).unwrap_or(u16::MAX)).collect();
        Planes::Boxed(Box::new(Boxed { words, waiting }))
    }

    pub(super) fn inline(&self) -> Option<&Inline> {
        match self {
            Planes::Inline(inline) => Some(inline),
            Planes::Boxed(_) => None,
        }
    }

    /// Returns the word of each plane that contains this step.
    fn words(&self, step: StepId) -> &[u64] {
        match self {
            Planes::Inline(Inline(words)) => words,
            Planes::Boxed(boxed) => &boxed.words[usize::from(step / 64) * PLANES..][..PLANES],
        }
    }

    fn words_mut(&mut self, step: StepId) -> &mut [u64] {
        match self {
            Planes::Inline(Inline(words)) => words,
            Planes::Boxed(boxed) => &mut boxed.words[usize::from(step / 64) * PLANES..][..PLANES],
        }
    }

    pub(super) fn get(&self, plane: Plane, step: StepId) -> bool {
        self.words(step)[plane as usize] >> (step % 64) & 1 == 1
    }

    pub(super) fn set(&mut self, plane: Plane, step: StepId) {
        self.words_mut(step)[plane as usize] |= 1 << (step % 64);
    }

    pub(super) fn clear(&mut self, plane: Plane, step: StepId) {
        self.words_mut(step)[plane as usize] &= !(1 << (step % 64));
    }

    pub(super) fn state(&self, step: StepId) -> State {
        let words = self.words(step);
        let is_in = |plane: Plane| words[plane as usize] >> (step % 64) & 1 == 1;
        Plane::ALL.iter().find(|(plane, _)| is_in(*plane)).map_or(State::Pending, |(_, state)| *state)
    }

    /// Whether at least one step is in this plane.
    pub(super) fn any(&self, plane: Plane) -> bool {
        match self {
            Planes::Inline(Inline(words)) => words[plane as usize] != 0,
            Planes::Boxed(boxed) => boxed.words.iter().skip(plane as usize).step_by(PLANES).any(|word| *word != 0),
        }
    }

    /// A step has ended: its dependents wait for one need less.
    pub(super) fn count_down(&mut self, graph: &Graph, step: StepId) {
        if let Planes::Boxed(boxed) = self {
            for dependent in graph.dependents(step) {
                boxed.waiting[usize::from(*dependent)] -= 1;
            }
        }
    }

    pub(super) fn needs_ended(&self, graph: &Graph, step: StepId) -> bool {
        match self {
            Planes::Inline(inline) => {
                let masks = graph.masks(step);
                (masks.success | masks.done | masks.failure) & !inline.ended() == 0
            }
            Planes::Boxed(boxed) => boxed.waiting[usize::from(step)] == 0,
        }
    }
}

impl Inline {
    fn ended(&self) -> u64 {
        let [_, succeeded, failed, skipped, blocked, cancelled] = self.0;
        succeeded | failed | skipped | blocked | cancelled
    }

    /// Applies the table of edges to all needs at once.
    pub(super) fn needs_summary(&self, needs: Masks) -> NeedsSummary {
        let [_, succeeded, failed, skipped, blocked, cancelled] = self.0;
        let bad = failed | blocked | cancelled;
        let passed_over = failed & needs.optional;
        let as_succeeded =
            (needs.success & (succeeded | passed_over)) | (needs.done & self.ended()) | (needs.failure & bad);
        let as_skipped = (needs.success & skipped) | (needs.failure & (succeeded | skipped));
        let as_bad = needs.success & bad & !passed_over;
        NeedsSummary { succeeded: as_succeeded != 0, skipped: as_skipped != 0, bad: as_bad != 0 }
    }
}
