//! I13: the verdict of an ended run, computed directly from the ends of its steps.
//!
//! A run has failed if a step was cancelled, or if a failed step or a blocked sink is neither `optional` nor forgiven.
//! A step is forgiven if a dependent that forgives has succeeded, or if a blocked dependent is itself forgiven.

use crate::Breach;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    Succeeded,
    Failed,
    Skipped,
    Blocked,
    Cancelled,
    /// The step has not ended: the run has no verdict yet.
    Open,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub end: End,
    pub needs: Vec<u16>,
    pub optional: bool,
    pub forgives: bool,
    pub sink: bool,
}

/// Returns whether the run has succeeded; none while a step is open.
pub fn verdict(steps: &[Step]) -> Option<bool> {
    if steps.iter().any(|step| step.end == End::Open) {
        return None;
    }
    if steps.iter().any(|step| step.end == End::Cancelled) {
        return Some(false);
    }
    let bad = |step: &Step| step.end == End::Failed || (step.end == End::Blocked && step.sink);
    let counts = steps.iter().enumerate().filter(|(_, step)| bad(step) && !step.optional);
    Some(counts.map(|(number, _)| number).all(|number| is_forgiven(number, steps)))
}

fn is_forgiven(number: usize, steps: &[Step]) -> bool {
    let needs_it = |step: &Step| step.needs.iter().any(|need| usize::from(*need) == number);
    steps.iter().enumerate().filter(|(_, step)| needs_it(step)).any(|(dependent, step)| match step.end {
        End::Succeeded => step.forgives,
        End::Blocked => is_forgiven(dependent, steps),
        _ => false,
    })
}

pub fn verdict_is_right(run: u64, steps: &[Step], succeeded: bool) -> Vec<Breach> {
    match verdict(steps) {
        Some(right) if right == succeeded => Vec::new(),
        Some(right) => {
            let ends: Vec<End> = steps.iter().map(|step| step.end).collect();
            vec![Breach::new("I13", format!("run {run}: success = {succeeded}, its steps say {right}: {ends:?}"))]
        }
        None => vec![Breach::new("I13", format!("run {run} has a verdict while a step is open"))],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    fn step(end: End, needs: &[u16]) -> Step {
        Step { end, needs: needs.to_vec(), optional: false, forgives: false, sink: false }
    }

    #[test]
    fn i13_a_verdict_follows_from_the_ends_of_the_steps() {
        let fine = [step(End::Succeeded, &[]), step(End::Skipped, &[0]), step(End::Succeeded, &[1])];
        assert_eq!(verdict_is_right(1, &fine, true), []);
        assert_eq!(ids(&verdict_is_right(1, &fine, false)), ["I13"]);
        let failed = [step(End::Failed, &[]), step(End::Blocked, &[0])];
        assert_eq!(verdict_is_right(1, &failed, false), []);
        assert_eq!(ids(&verdict_is_right(1, &failed, true)), ["I13"]);
        let cancelled = [step(End::Succeeded, &[]), step(End::Cancelled, &[0])];
        assert_eq!(ids(&verdict_is_right(1, &cancelled, true)), ["I13"]);
        assert_eq!(ids(&verdict_is_right(1, &[step(End::Open, &[])], true)), ["I13"]);
    }

    #[test]
    fn i13_forgiveness_passes_backwards_through_blocked_steps() {
        let forgives = Step { forgives: true, ..step(End::Succeeded, &[1]) };
        let steps = [step(End::Failed, &[]), step(End::Blocked, &[0]), forgives];
        assert_eq!(verdict(&steps), Some(true));
        let sink = Step { sink: true, ..step(End::Blocked, &[0]) };
        let optional = Step { optional: true, ..step(End::Failed, &[]) };
        assert_eq!(verdict(std::slice::from_ref(&optional)), Some(true));
        assert_eq!(verdict(&[optional, sink]), Some(false), "a sink that did not write is stale");
    }
}
