//! Which rounds are played, and how many: a pure count, shared by all hives of a campaign.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Backend;

/// What happens in a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The leader is stopped anywhere, beyond its lease.
    Pause,
    /// It is stopped inside a fenced transaction.
    Inside,
    /// It is killed.
    Kill,
    /// Somebody else is stopped: the leader goes on.
    Follower,
    /// It is stopped, and most of the others with it.
    Half,
    /// Nothing gets through between it and the store, and nobody is told.
    Silent,
    /// The store does not hear it.
    NoRequests,
    /// It does not hear the store.
    NoAnswers,
    /// It hears the store 2 to 10 s late.
    Late,
    /// The wall clocks of some are hours off, then it is stopped.
    Clocks,
    /// It is stopped, and the store forgets the hive.
    Flush,
    /// Nobody gets another connection: those that are open have to do.
    Crowded,
}

/// For so many pauses there is one round of every other kind.
const PAUSES_PER_OTHER: u32 = 10;

impl Kind {
    /// All but [`Kind::Pause`]. Of a file nobody can be cut off, and whoever stands still may keep everybody out.
    pub fn others(backend: Backend, clocks: bool) -> Vec<Kind> {
        let mut kinds = vec![Kind::Inside, Kind::Kill, Kind::Follower];
        if backend.has_server() {
            // What takes longest comes first, so that nobody waits for it at the end.
            kinds.insert(0, Kind::Late);
            kinds.extend([Kind::Half, Kind::Silent, Kind::NoRequests, Kind::NoAnswers, Kind::Crowded]);
        }
        if backend == Backend::Redis {
            kinds.push(Kind::Flush);
        }
        if clocks {
            kinds.push(Kind::Clocks);
        }
        kinds
    }

    /// Whether something stale must have been tried in it: not if whoever led is dead, or leads on; nor if it is stopped
    /// while it keeps everybody out.
    pub fn tries(self, backend: Backend) -> bool {
        match self {
            Kind::Kill | Kind::Follower | Kind::Crowded => false,
            Kind::Inside => backend.has_server(),
            _ => true,
        }
    }
}

/// So many pauses after which something stale was tried, and a tenth as many rounds of every other kind. Those in which
/// nothing stale was tried, though it should have been, are played again.
pub struct Plan {
    pauses: u32,
    others: Vec<Kind>,
    begun: u32,
    again: Vec<Kind>,
    again_left: u32,
}

impl Plan {
    pub fn new(pauses: u32, others: Vec<Kind>) -> Plan {
        let mut plan = Plan { pauses, others, begun: 0, again: Vec::new(), again_left: 0 };
        plan.again_left = again_at_most(plan.rounds());
        plan
    }

    /// Of every kind but [`Kind::Pause`].
    pub fn of_each(&self) -> u32 {
        (self.pauses / PAUSES_PER_OTHER).max(1)
    }

    pub fn rounds(&self) -> u32 {
        self.pauses + self.of_each() * u32::try_from(self.others.len()).unwrap_or(0)
    }

    /// By kind.
    pub fn wanted(&self) -> BTreeMap<Kind, u32> {
        let others = self.others.iter().map(|kind| (*kind, self.of_each()));
        others.chain([(Kind::Pause, self.pauses)]).collect()
    }

    pub fn next(&mut self) -> Option<Kind> {
        if let Some(kind) = self.again.pop() {
            return Some(kind);
        }
        if self.begun == self.rounds() {
            return None;
        }
        // Spread evenly: before the n-th round so many others have been.
        let others = u64::from(self.rounds() - self.pauses);
        let before = |round: u32| others * u64::from(round) / u64::from(self.rounds());
        let (before, now) = (before(self.begun), before(self.begun + 1));
        self.begun += 1;
        let other = usize::try_from(before).unwrap_or(0) % self.others.len().max(1);
        Some(if now > before { self.others[other] } else { Kind::Pause })
    }

    /// Nothing stale was tried: it does not count. There is an end to that.
    pub fn play_again(&mut self, kind: Kind) {
        if self.again_left > 0 {
            self.again_left -= 1;
            self.again.push(kind);
        }
    }

    /// What is left to play would say nothing.
    pub fn stop(&mut self) {
        (self.begun, self.again_left) = (self.rounds(), 0);
        self.again.clear();
    }
}

/// A campaign in which more rounds than this met nobody has a fault of its own.
fn again_at_most(rounds: u32) -> u32 {
    rounds / 5 + 60
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(mut plan: Plan) -> BTreeMap<Kind, u32> {
        let mut counts = BTreeMap::new();
        while let Some(kind) = plan.next() {
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    #[test]
    fn hv_84_rounds_are_pauses_and_the_others_come_on_top() {
        for pauses in [1, 4, 30, 1000] {
            for backend in Backend::WITH_POOLER {
                let plan = || Plan::new(pauses, Kind::others(*backend, true));
                assert_eq!(drawn(plan()), plan().wanted());
                assert_eq!(plan().wanted()[&Kind::Pause], pauses);
            }
        }
        assert_eq!(Plan::new(1000, Kind::others(Backend::Redis, true)).wanted()[&Kind::NoAnswers], 100);
    }

    #[test]
    fn hv_85_a_round_that_met_nobody_is_played_again_but_not_for_ever() {
        let mut plan = Plan::new(10, Vec::new());
        let mut played = 0;
        while plan.next().is_some() {
            played += 1;
            plan.play_again(Kind::Pause);
        }
        assert_eq!(played, 10 + again_at_most(10));
    }

    #[test]
    fn who_stops_it_ends_it() {
        let mut plan = Plan::new(10, Kind::others(Backend::Redis, true));
        plan.play_again(Kind::Half);
        plan.stop();
        plan.play_again(Kind::Half);
        assert_eq!(plan.next(), None);
    }
}
