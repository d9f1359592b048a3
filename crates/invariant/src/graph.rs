//! I6: a step starts after all steps that it needs have ended, and it ends once.

use crate::Breach;

/// One event in the history of a run. Steps are given by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// The step's needs have ended and it shall run.
    Ready(u16),
    /// A worker received an attempt.
    Given(u16),
    /// The whole step has ended; a checkpoint of an earlier owner counts too.
    Ended(u16),
}

/// Checks the history of one run. `needs` lists the needs of each step.
pub fn graph_is_kept(run: u64, needs: &[Vec<u16>], moves: &[Move]) -> Vec<Breach> {
    let mut ready = vec![false; needs.len()];
    let mut ended = vec![false; needs.len()];
    let mut breaches = Vec::new();
    for moved in moves {
        match *moved {
            Move::Ready(step) => ready[usize::from(step)] = true,
            Move::Given(step) => {
                let place = usize::from(step);
                if ended[place] {
                    breaches
                        .push(Breach::new("I6", format!("run {run}: step {step} was given out after it had ended")));
                }
                for need in &needs[place] {
                    if !has_ended(*need, needs, &ready, &ended) {
                        let what = format!("run {run}: step {step} was given out before its need {need} had ended");
                        breaches.push(Breach::new("I6", what));
                    }
                }
            }
            Move::Ended(step) => {
                if std::mem::replace(&mut ended[usize::from(step)], true) {
                    breaches
                        .push(Breach::new("I6", format!("run {run}: two completions of step {step} were accepted")));
                }
            }
        }
    }
    breaches
}

/// Returns whether the step has ended: by itself, or skipped or blocked (it was decided and never ready).
fn has_ended(step: u16, needs: &[Vec<u16>], ready: &[bool], ended: &[bool]) -> bool {
    let place = usize::from(step);
    ended[place]
        || (!ready[place]
            && !needs[place].is_empty()
            && needs[place].iter().all(|need| has_ended(*need, needs, ready, ended)))
}

/// The start of a step's effect that depends on a need with a checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Effect {
    pub what: String,
    /// Whether the need's checkpoint had committed by then.
    pub journaled: bool,
}

/// Checks that a step with a checkpoint counts as completed only after the checkpoint has been committed.
pub fn effects_follow_checkpoints<'a>(effects: impl IntoIterator<Item = &'a Effect>) -> Vec<Breach> {
    let early = effects.into_iter().filter(|effect| !effect.journaled);
    early
        .map(|Effect { what, .. }| Breach::new("I6", format!("{what} came before the checkpoint it depends on")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;
    use Move::{Ended, Given, Ready};

    /// 0 → 1, 2 → 3
    fn diamond() -> Vec<Vec<u16>> {
        vec![vec![], vec![0], vec![0], vec![1, 2]]
    }

    #[test]
    fn i6_a_step_starts_after_all_its_needs() {
        let good = [
            Ready(0),
            Given(0),
            Ended(0),
            Ready(1),
            Ready(2),
            Given(1),
            Given(2),
            Given(2),
            Ended(2),
            Ended(1),
            Ready(3),
            Given(3),
            Ended(3),
        ];
        assert_eq!(graph_is_kept(1, &diamond(), &good), []);
        let skipped = [Ready(0), Given(0), Ended(0), Ready(1), Given(1), Ended(1), Ready(3), Given(3)];
        assert_eq!(graph_is_kept(1, &diamond(), &skipped), [], "2 was skipped: it never became ready");
        let early = [Ready(0), Given(0), Ended(0), Ready(1), Ready(2), Given(1), Ended(1), Ready(3), Given(3)];
        assert_eq!(ids(&graph_is_kept(1, &diamond(), &early)), ["I6"]);
        assert_eq!(ids(&graph_is_kept(1, &diamond(), &[Ready(0), Ready(1), Given(1)])), ["I6"]);
    }

    #[test]
    fn i6_effects_follow_the_checkpoints_they_depend_on() {
        let effect = |journaled| Effect { what: "a write".to_owned(), journaled };
        assert_eq!(effects_follow_checkpoints(&[effect(true), effect(true)]), []);
        assert_eq!(ids(&effects_follow_checkpoints(&[effect(false)])), ["I6"]);
        assert_eq!(ids(&effects_follow_checkpoints(&[effect(true), effect(false), effect(false)])), ["I6", "I6"]);
    }

    #[test]
    fn i6_a_step_ends_once() {
        assert_eq!(ids(&graph_is_kept(1, &[vec![]], &[Ready(0), Given(0), Ended(0), Ended(0)])), ["I6"]);
        assert_eq!(ids(&graph_is_kept(1, &[vec![]], &[Ready(0), Given(0), Ended(0), Given(0)])), ["I6"]);
    }
}
