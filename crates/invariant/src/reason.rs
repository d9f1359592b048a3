//! I16 and I20: every open run is in some state, reports the true reason why it waits, and does not wait for a worker
//! that has room.

use crate::Breach;

/// The state of an open run, and the reason that it reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitingRun {
    pub run: u64,
    pub waits_for: &'static str,
    /// The run's result is being written.
    pub settling: bool,
    /// A worker executes a step of the run.
    pub leased: bool,
    /// A step is in a queue.
    pub queued: bool,
    /// A step is in a queue until it is tried alone.
    pub tried: bool,
    /// A step waits for its due time.
    pub timed: bool,
    /// The result of a step is being written.
    pub written: bool,
    /// The kind of a queued step that a worker would get if it asked now.
    pub could_go: Option<usize>,
}

/// Checks that every run is in some state: a run in none would never finish.
pub fn every_run_is_somewhere(holder: u64, runs: &[WaitingRun]) -> Vec<Breach> {
    let lost = |run: &&WaitingRun| !(run.settling || run.leased || run.queued || run.timed || run.written);
    let lost = runs.iter().filter(lost);
    lost.map(|run| {
        Breach::new("I20", format!("incarnation {holder}: run {} is in no state and would never finish", run.run))
    })
    .collect()
}

pub fn reasons_are_true(holder: u64, runs: &[WaitingRun]) -> Vec<Breach> {
    let is_true = |run: &WaitingRun| match run.waits_for {
        "settling" => run.settling || run.written,
        "working" | "cancelling" => run.leased && !run.settling,
        "back-off" | "delay" | "awaiting" => run.timed && !run.leased,
        "behind" => run.queued && (run.could_go.is_some() || run.tried) && !run.leased,
        "nothing" => false,
        // a closed gate, a limit, a missing lease, no worker for the kind: the step is queued and cannot start
        _ => run.queued && !run.leased && !run.settling,
    };
    let wrong = runs.iter().filter(|run| !is_true(run));
    wrong.map(|run| Breach::new("I20", format!("incarnation {holder}: the reason is not true: {run:?}"))).collect()
}

/// Checks that no step waits although a worker has room. `has_room` says for each kind whether a worker would take
/// another batch.
pub fn nothing_starves(holder: u64, runs: &[WaitingRun], has_room: &[bool]) -> Vec<Breach> {
    let starves = |run: &&WaitingRun| run.could_go.is_some_and(|kind| has_room.get(kind).copied().unwrap_or(false));
    let starving = runs.iter().filter(starves);
    let what =
        |run: &WaitingRun| format!("incarnation {holder}: run {} could start and a worker has room: {run:?}", run.run);
    starving.map(|run| Breach::new("I16", what(run))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    const NOWHERE: WaitingRun = WaitingRun {
        run: 1,
        waits_for: "nothing",
        settling: false,
        leased: false,
        queued: false,
        tried: false,
        timed: false,
        written: false,
        could_go: None,
    };

    #[test]
    fn i20_an_open_run_is_somewhere() {
        let queued = WaitingRun { waits_for: "paused", queued: true, ..NOWHERE };
        assert_eq!(every_run_is_somewhere(1, &[queued, WaitingRun { leased: true, ..NOWHERE }]), []);
        assert_eq!(ids(&every_run_is_somewhere(1, &[NOWHERE])), ["I20"]);
        assert_eq!(ids(&every_run_is_somewhere(1, &[queued, NOWHERE, NOWHERE])), ["I20", "I20"]);
    }

    #[test]
    fn i20_a_reason_is_the_true_one() {
        let good = [
            WaitingRun { waits_for: "working", leased: true, queued: true, could_go: Some(1), ..NOWHERE },
            WaitingRun { waits_for: "back-off", timed: true, ..NOWHERE },
            WaitingRun { waits_for: "behind", queued: true, could_go: Some(1), ..NOWHERE },
            WaitingRun { waits_for: "breaker", queued: true, ..NOWHERE },
            WaitingRun { waits_for: "settling", settling: true, ..NOWHERE },
        ];
        assert_eq!(reasons_are_true(1, &good), []);
        for bad in [
            NOWHERE,
            WaitingRun { waits_for: "working", queued: true, ..NOWHERE },
            WaitingRun { waits_for: "back-off", queued: true, could_go: Some(1), ..NOWHERE },
            WaitingRun { waits_for: "behind", timed: true, ..NOWHERE },
            WaitingRun { waits_for: "paused", leased: true, queued: true, ..NOWHERE },
            WaitingRun { waits_for: "settling", timed: true, ..NOWHERE },
        ] {
            assert_eq!(ids(&reasons_are_true(1, &[bad])), ["I20"], "{bad:?}");
        }
    }

    #[test]
    fn i16_no_run_waits_for_a_worker_that_has_room() {
        let could_go = |kind| WaitingRun { waits_for: "behind", queued: true, could_go: Some(kind), ..NOWHERE };
        assert_eq!(nothing_starves(1, &[could_go(0), NOWHERE], &[false, true]), []);
        assert_eq!(ids(&nothing_starves(1, &[could_go(1)], &[false, true])), ["I16"]);
        assert_eq!(ids(&nothing_starves(1, &[could_go(0), could_go(1)], &[true, true])), ["I16", "I16"]);
    }
}
