//! What the rounds came to, by kind, and whether that is enough.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Backend, Kind, Verdict};

/// Of one round.
#[derive(Clone, Copy, Default, Debug)]
pub struct CameTo {
    /// Under a term that another one had followed: writes that were accepted, and refused.
    pub accepted: u32,
    pub refused: u32,
    /// Until another wrote, after a kill.
    pub took_over_ms: Option<u64>,
}

impl CameTo {
    pub fn tried(self) -> bool {
        self.accepted + self.refused > 0
    }

    /// Whether something stale was tried for certain. What a fence let pass was not stale, or the log will show it: the
    /// last of it may have been accepted just before the fault.
    fn shows(self, fenced: bool) -> bool {
        if fenced { self.refused > 0 } else { self.tried() }
    }
}

/// Of all rounds of one kind.
#[derive(Clone, Default, Debug, Serialize)]
pub struct Count {
    pub rounds: u32,
    /// Rounds in which something stale was tried, and in which some of it was refused.
    pub tried_in: u32,
    pub refused_in: u32,
    /// Stale writes, in all these rounds.
    pub tried: u32,
    pub refused: u32,
}

impl Count {
    fn add(&mut self, came_to: CameTo) {
        self.rounds += 1;
        self.tried_in += u32::from(came_to.tried());
        self.refused_in += u32::from(came_to.refused > 0);
        self.tried += came_to.accepted + came_to.refused;
        self.refused += came_to.refused;
    }
}

#[derive(Clone, Default, Debug, Serialize)]
pub struct Tally {
    pub kinds: BTreeMap<Kind, Count>,
    /// Played again: nothing stale was tried, since the leader had just handed over, or kept everybody out (SQLite).
    pub rounds_of_nobody: u32,
    /// A term that was good on its own node's clock after its successor was (HI-4).
    pub two_terms_at_once: u32,
    /// After each kill.
    pub took_over_ms: Vec<u64>,
}

/// Where a kernel lock tells who is dead, nobody waits for a lease to run out (HV-92).
const TAKES_OVER_WITHIN_MS: u64 = 1000;

/// With fewer rounds of a kind nothing is asked of that kind alone when the fence is off, nor how long they took.
const ENOUGH: u32 = 5;

impl Tally {
    /// False: it does not count, and should be played again.
    pub fn add(&mut self, kind: Kind, backend: Backend, fenced: bool, came_to: CameTo) -> bool {
        let counts = came_to.shows(fenced) || !kind.tries(backend);
        if counts {
            self.took_over_ms.extend(came_to.took_over_ms);
            self.kinds.entry(kind).or_default().add(came_to);
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

    /// What is missing or wrong; nothing, if it holds.
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
            if fenced && kind.tries(backend) && missed > 0 {
                faults.push(format!("{kind:?}: in {missed} of {} rounds nothing was refused", count.rounds));
            }
            let showed = count.tried > count.refused;
            if !fenced && kind.tries(backend) && count.rounds >= ENOUGH && !showed {
                faults.push(format!("{kind:?}: without the fence nothing stale was accepted: no teeth"));
            }
        }
        let mut waits = self.took_over_ms.clone();
        waits.sort_unstable();
        let usual = waits.get(waits.len() / 2).copied().unwrap_or(0);
        if backend == Backend::Sqlite && waits.len() >= ENOUGH as usize && usual > TAKES_OVER_WITHIN_MS {
            faults.push(format!("half of the take-overs after a kill took longer than {usual} ms"));
        }
        if self.two_terms_at_once > 0 {
            faults.push(format!("{} terms were good after their successors", self.two_terms_at_once));
        }
        match (fenced, verdict.stale) {
            (true, 1..) => faults.push(format!("{} stale writes were accepted", verdict.stale)),
            (false, 0) => faults.push("without the fence nothing stale was accepted: no teeth".to_owned()),
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

    const REFUSED: CameTo = CameTo { accepted: 0, refused: 4, took_over_ms: None };
    const ACCEPTED: CameTo = CameTo { accepted: 4, refused: 0, took_over_ms: None };

    fn played(kind: Kind, fenced: bool, rounds: &[(u32, CameTo)]) -> Tally {
        let mut tally = Tally::default();
        for (times, came_to) in rounds {
            for _ in 0..*times {
                tally.add(kind, Backend::Redis, fenced, *came_to);
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
        let tally = played(Kind::Pause, true, &[(9, REFUSED), (1, ACCEPTED), (1, CameTo::default())]);
        assert_eq!((tally.rounds(), tally.rounds_of_nobody), (9, 2));
        assert!(holds(&tally, (Kind::Pause, 9), true, 0));
        assert!(!holds(&tally, (Kind::Pause, 10), true, 0), "one is missing");
        assert!(!holds(&tally, (Kind::Pause, 9), true, 1), "the log shows something stale");
        let unfenced = played(Kind::Pause, false, &[(9, ACCEPTED)]);
        assert!(!holds(&unfenced, (Kind::Pause, 9), true, 0), "nothing was refused");
    }

    #[test]
    fn hv_85_without_the_fence_every_kind_must_show_it() {
        let (wanted, kind) = ((Kind::Silent, 5), Kind::Silent);
        assert!(holds(&played(kind, false, &[(5, ACCEPTED)]), wanted, false, 9));
        assert!(!holds(&played(kind, false, &[(5, REFUSED)]), wanted, false, 9));
        assert!(!holds(&played(kind, false, &[(5, CameTo::default())]), wanted, false, 9));
        assert!(!holds(&played(kind, false, &[(5, ACCEPTED)]), wanted, false, 0));
        assert!(holds(&played(Kind::Kill, false, &[(5, CameTo::default())]), (Kind::Kill, 5), false, 9));
    }

    #[test]
    fn hv_92_a_file_is_taken_over_within_a_second() {
        let of = |backend: Backend, waits: &[u64]| {
            let mut tally = Tally::default();
            for wait in waits.iter().copied() {
                tally.add(Kind::Kill, backend, true, CameTo { took_over_ms: Some(wait), ..CameTo::default() });
            }
            tally
                .faults(&BTreeMap::from([(Kind::Kill, waits.len() as u32)]), backend, true, &Verdict::default())
                .is_empty()
        };
        assert!(of(Backend::Sqlite, &[700, 5_000, 1_000, 5_000, 800]));
        assert!(!of(Backend::Sqlite, &[700, 5_000, 1_001, 5_000, 800]));
        assert!(of(Backend::Sqlite, &[5_000]), "one says little on a busy machine");
        assert!(of(Backend::Redis, &[1_700, 2_000, 2_000, 2_000, 2_000]));
    }

    #[test]
    fn hi_4_two_terms_at_once_are_a_fault() {
        let mut tally = played(Kind::Pause, true, &[(5, REFUSED)]);
        assert!(holds(&tally, (Kind::Pause, 5), true, 0));
        tally.two_terms_at_once = 1;
        assert!(!holds(&tally, (Kind::Pause, 5), true, 0));
    }
}
