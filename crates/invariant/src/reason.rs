//! I16 and I20: every open run is somewhere, says truly what it waits for, and does not wait for a worker that has room.

use crate::Breach;

/// Where an open run is, and what it says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub run: u64,
    pub waits_for: &'static str,
    /// Its end is being written.
    pub settling: bool,
    /// A worker holds a step of it.
    pub leased: bool,
    /// A step stands in a queue.
    pub queued: bool,
    /// A step stands in a queue until it is its turn to be tried alone.
    pub tried: bool,
    /// A step waits for its time.
    pub timed: bool,
    /// Something that a step did is being written.
    pub written: bool,
    /// The kind of a step that nothing holds back, should a worker ask for it.
    pub could_go: Option<usize>,
}

/// Whoever is nowhere is never done.
pub fn every_run_is_somewhere(holder: u64, runs: &[Waiting]) -> Vec<Breach> {
    let lost = |run: &&Waiting| !(run.settling || run.leased || run.queued || run.timed || run.written);
    let lost = runs.iter().filter(lost);
    lost.map(|run| Breach::new("I20", format!("incarnation {holder}: run {} waits for nothing at all", run.run)))
        .collect()
}

pub fn reasons_are_true(holder: u64, runs: &[Waiting]) -> Vec<Breach> {
    let is_true = |run: &Waiting| match run.waits_for {
        "settling" => run.settling || run.written,
        "working" | "cancelling" => run.leased && !run.settling,
        "back-off" | "delay" | "awaiting" => run.timed && !run.leased,
        "behind" => run.queued && (run.could_go.is_some() || run.tried) && !run.leased,
        "nothing" => false,
        // a gate, a limit, a lease that is not there, nobody who knows how: it stands in its queue, and cannot go
        _ => run.queued && !run.leased && !run.settling,
    };
    let wrong = runs.iter().filter(|run| !is_true(run));
    wrong.map(|run| Breach::new("I20", format!("incarnation {holder}: the reason is not true: {run:?}"))).collect()
}

/// `has_room` by kind: some worker would take another batch.
pub fn nothing_starves(holder: u64, runs: &[Waiting], has_room: &[bool]) -> Vec<Breach> {
    let starves = |run: &&Waiting| run.could_go.is_some_and(|kind| has_room.get(kind).copied().unwrap_or(false));
    let starving = runs.iter().filter(starves);
    let what = |run: &Waiting| format!("incarnation {holder}: run {} could go and a worker has room: {run:?}", run.run);
    starving.map(|run| Breach::new("I16", what(run))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids;

    const NOWHERE: Waiting = Waiting {
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
        let queued = Waiting { waits_for: "paused", queued: true, ..NOWHERE };
        assert_eq!(every_run_is_somewhere(1, &[queued, Waiting { leased: true, ..NOWHERE }]), []);
        assert_eq!(ids(&every_run_is_somewhere(1, &[NOWHERE])), ["I20"]);
        assert_eq!(ids(&every_run_is_somewhere(1, &[queued, NOWHERE, NOWHERE])), ["I20", "I20"]);
    }

    #[test]
    fn i20_a_reason_is_the_true_one() {
        let good = [
            Waiting { waits_for: "working", leased: true, queued: true, could_go: Some(1), ..NOWHERE },
            Waiting { waits_for: "back-off", timed: true, ..NOWHERE },
            Waiting { waits_for: "behind", queued: true, could_go: Some(1), ..NOWHERE },
            Waiting { waits_for: "breaker", queued: true, ..NOWHERE },
            Waiting { waits_for: "settling", settling: true, ..NOWHERE },
        ];
        assert_eq!(reasons_are_true(1, &good), []);
        for bad in [
            NOWHERE,
            Waiting { waits_for: "working", queued: true, ..NOWHERE },
            Waiting { waits_for: "back-off", queued: true, could_go: Some(1), ..NOWHERE },
            Waiting { waits_for: "behind", timed: true, ..NOWHERE },
            Waiting { waits_for: "paused", leased: true, queued: true, ..NOWHERE },
            Waiting { waits_for: "settling", timed: true, ..NOWHERE },
        ] {
            assert_eq!(ids(&reasons_are_true(1, &[bad])), ["I20"], "{bad:?}");
        }
    }

    #[test]
    fn i16_nobody_waits_for_a_worker_that_has_room() {
        let could_go = |kind| Waiting { waits_for: "behind", queued: true, could_go: Some(kind), ..NOWHERE };
        assert_eq!(nothing_starves(1, &[could_go(0), NOWHERE], &[false, true]), []);
        assert_eq!(ids(&nothing_starves(1, &[could_go(1)], &[false, true])), ["I16"]);
        assert_eq!(ids(&nothing_starves(1, &[could_go(0), could_go(1)], &[true, true])), ["I16", "I16"]);
    }
}
