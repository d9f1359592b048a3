//! The results of the rounds, by kind, and whether they are good enough.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Backend, Kind, Verdict};

/// The result of one round.
#[derive(Clone, Copy, Default, Debug)]
pub struct RoundResult {
    /// Writes under a term that had a successor: how many were accepted, and how many refused.
    pub accepted: u32,
    pub refused: u32,
    /// After a kill: the time until another node wrote.
    pub took_over_ms: Option<u64>,
}

impl RoundResult {
    pub fn tried(self) -> bool {
        self.accepted + self.refused > 0
    }

    /// Whether a stale write was certainly tried. A write that the fence let pass was not stale, or else the log will
    /// show it: the last ones may have been accepted just before the fault.
    fn is_conclusive(self, fenced: bool) -> bool {
        if fenced { self.refused > 0 } else { self.tried() }
    }
}

/// The sum of all rounds of one kind.
#[derive(Clone, Default, Debug, Serialize)]
pub struct KindCount {
    pub rounds: u32,
    /// Rounds in which a stale write was tried, and rounds in which one was refused.
    pub tried_in: u32,
    pub refused_in: u32,
    /// Stale writes in all these rounds.
    pub tried: u32,
    pub refused: u32,
}

impl KindCount {
    fn add(&mut self, result: RoundResult) {
        self.rounds += 1;
        self.tried_in += u32::from(result.tried());
        self.refused_in += u32::from(result.refused > 0);
        self.tried += result.accepted + result.refused;
        self.refused += result.refused;
    }
}

#[derive(Clone, Default, Debug, Serialize)]
pub struct Tally {
    pub kinds: BTreeMap<Kind, KindCount>,
    /// Rounds that were played again because no stale write was tried: the leader had just transferred its lease, or
    /// (SQLite) locked out all others.
    pub rounds_of_nobody: u32,
    /// Terms that were good on their own node's clock after their successor was (HI-4).
    pub two_terms_at_once: u32,
    /// The time to the next write after each kill.
    pub took_over_ms: Vec<u64>,
}

/// On a file, a kernel lock shows which process is dead, so no node waits for a lease to expire (HV-92).
const TAKES_OVER_WITHIN_MS: u64 = 1000;

/// A kind with fewer rounds than this is not judged alone when the fence is off, nor by its take-over times.
const ENOUGH: u32 = 5;

impl Tally {
    /// Adds a round. Returns false if it does not count and should be played again.
    pub fn add(&mut self, kind: Kind, backend: Backend, fenced: bool, result: RoundResult) -> bool {
        let counts = result.is_conclusive(fenced) || !kind.must_try_stale_write(backend);
        if counts {
            self.took_over_ms.extend(result.took_over_ms);
            self.kinds.entry(kind).or_default().add(result);
        } else {
            self.rounds_of_nobody += 1;
        }
        counts
    }

    pub fn rounds(&self) -> u32 {
        self.kinds.values().map(|count| count.rounds).sum()
    }

    pub fn stale_refused(&self) -> u32 {
        self.kinds.values().map(|count| count.refused).sum()
    }

    /// Returns what is missing or wrong; an empty list means that the campaign passed.
    pub fn faults(
        &self,
        wanted: &BTreeMap<Kind, u32>,
        backend: Backend,
        fenced: bool,
        verdict: &Verdict,
    ) -> Vec<String> {
        let mut faults = Vec::new();
        for (kind, wanted) in wanted {
            let count = self.kinds.get(kind).cloned().unwrap_or_default();
            if count.rounds != *wanted {
                faults.push(format!("{kind:?}: {} of {wanted} rounds counted", count.rounds));
            }
            let missed = count.rounds - count.refused_in;
            if fenced && kind.must_try_stale_write(backend) && missed > 0 {
                faults.push(format!("{kind:?}: in {missed} of {} rounds no stale write was refused", count.rounds));
            }
            let accepted_some = count.tried > count.refused;
            if !fenced && kind.must_try_stale_write(backend) && count.rounds >= ENOUGH && !accepted_some {
                faults.push(format!(
                    "{kind:?}: without the fence no stale write was accepted: the campaign cannot find one"
                ));
            }
        }
        let mut waits = self.took_over_ms.clone();
        waits.sort_unstable();
        let median = waits.get(waits.len() / 2).copied().unwrap_or(0);
        if backend == Backend::Sqlite && waits.len() >= ENOUGH as usize && median > TAKES_OVER_WITHIN_MS {
            faults.push(format!("half of the take-overs after a kill took longer than {median} ms"));
        }
        if self.two_terms_at_once > 0 {
            faults.push(format!("{} terms were still good when their successors began", self.two_terms_at_once));
        }
        match (fenced, verdict.stale) {
            (true, 1..) => faults.push(format!("{} stale writes were accepted", verdict.stale)),
            (false, 0) => {
                faults.push("without the fence no stale write was accepted: the campaign cannot find one".to_owned());
            }
            _ => {}
        }
        if fenced && verdict.shared_epochs > 0 {
            faults.push(format!("{} epochs were shared", verdict.shared_epochs));
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REFUSED: RoundResult = RoundResult { accepted: 0, refused: 4, took_over_ms: None };
    const ACCEPTED: RoundResult = RoundResult { accepted: 4, refused: 0, took_over_ms: None };

    fn play(kind: Kind, fenced: bool, rounds: &[(u32, RoundResult)]) -> Tally {
        let mut tally = Tally::default();
        for (times, result) in rounds {
            for _ in 0..*times {
                tally.add(kind, Backend::Redis, fenced, *result);
            }
        }
        tally
    }

    fn holds(tally: &Tally, wanted: (Kind, u32), fenced: bool, stale: u64) -> bool {
        let verdict = Verdict { stale, ..Verdict::default() };
        tally.faults(&BTreeMap::from([wanted]), Backend::Redis, fenced, &verdict).is_empty()
    }

    #[test]
    fn hv_85_every_pause_that_counts_was_refused() {
        let tally = play(Kind::Pause, true, &[(9, REFUSED), (1, ACCEPTED), (1, RoundResult::default())]);
        assert_eq!((tally.rounds(), tally.rounds_of_nobody), (9, 2));
        assert!(holds(&tally, (Kind::Pause, 9), true, 0));
        assert!(!holds(&tally, (Kind::Pause, 10), true, 0), "one is missing");
        assert!(!holds(&tally, (Kind::Pause, 9), true, 1), "the log shows a stale write");
        let unfenced = play(Kind::Pause, false, &[(9, ACCEPTED)]);
        assert!(!holds(&unfenced, (Kind::Pause, 9), true, 0), "no write was refused");
    }

    #[test]
    fn hv_85_without_the_fence_every_kind_must_show_a_stale_write() {
        let (wanted, kind) = ((Kind::Silent, 5), Kind::Silent);
        assert!(holds(&play(kind, false, &[(5, ACCEPTED)]), wanted, false, 9));
        assert!(!holds(&play(kind, false, &[(5, REFUSED)]), wanted, false, 9));
        assert!(!holds(&play(kind, false, &[(5, RoundResult::default())]), wanted, false, 9));
        assert!(!holds(&play(kind, false, &[(5, ACCEPTED)]), wanted, false, 0));
        assert!(holds(&play(Kind::Kill, false, &[(5, RoundResult::default())]), (Kind::Kill, 5), false, 9));
    }

    #[test]
    fn hv_92_a_file_is_taken_over_within_a_second() {
        let takes_over_in_time = |backend: Backend, waits: &[u64]| {
            let mut tally = Tally::default();
            for wait in waits.iter().copied() {
                tally.add(
                    Kind::Kill,
                    backend,
                    true,
                    RoundResult { took_over_ms: Some(wait), ..RoundResult::default() },
                );
            }
            tally
                .faults(&BTreeMap::from([(Kind::Kill, waits.len() as u32)]), backend, true, &Verdict::default())
                .is_empty()
        };
        assert!(takes_over_in_time(Backend::Sqlite, &[700, 5_000, 1_000, 5_000, 800]));
        assert!(!takes_over_in_time(Backend::Sqlite, &[700, 5_000, 1_001, 5_000, 800]));
        assert!(takes_over_in_time(Backend::Sqlite, &[5_000]), "one take-over proves little on a busy machine");
        assert!(takes_over_in_time(Backend::Redis, &[1_700, 2_000, 2_000, 2_000, 2_000]));
    }

    #[test]
    fn hi_4_two_terms_at_once_are_a_fault() {
        let mut tally = play(Kind::Pause, true, &[(5, REFUSED)]);
        assert!(holds(&tally, (Kind::Pause, 5), true, 0));
        tally.two_terms_at_once = 1;
        assert!(!holds(&tally, (Kind::Pause, 5), true, 0));
    }
}
