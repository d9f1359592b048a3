//! Which rounds are played, and how many. It only counts; all hives of a campaign share one plan.

use std::collections::BTreeMap;

use serde::Serialize;

use super::Backend;

/// The fault of a round.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The leader is stopped at any moment, for longer than its lease.
    Pause,
    /// The leader is stopped inside a fenced transaction.
    Inside,
    /// The leader is killed.
    Kill,
    /// Another node is stopped; the leader goes on.
    Follower,
    /// The leader is stopped, and most of the other nodes with it.
    Half,
    /// Nothing passes between the leader and the store, and neither side gets an error.
    Silent,
    /// The leader's requests do not reach the store.
    NoRequests,
    /// The store's answers do not reach the leader.
    NoAnswers,
    /// The store's answers reach the leader 2 to 10 s late.
    Late,
    /// The wall clocks of some nodes are set hours off, then the leader is stopped.
    Clocks,
    /// The leader is stopped, and the store forgets the hive.
    Flush,
    /// New connections are refused to all nodes: they have to do with the open ones.
    Crowded,
}

/// The number of pauses for each round of another kind.
const PAUSES_PER_OTHER: u32 = 10;

impl Kind {
    /// All kinds but [`Kind::Pause`] that the backend allows. A node cannot be cut off from a file, and on a file a
    /// stopped node may lock out all others.
    pub fn others(backend: Backend, clocks: bool) -> Vec<Kind> {
        let mut kinds = vec![Kind::Inside, Kind::Kill, Kind::Follower];
        if backend.has_server() {
            // The slowest kind comes first, so that the campaign does not wait for it at the end.
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

    /// Whether a stale write must have been tried in the round. Not if the leader is dead or stays the leader, nor if
    /// it is stopped while it locks out all others.
    pub fn must_try_stale_write(self, backend: Backend) -> bool {
        match self {
            Kind::Kill | Kind::Follower | Kind::Crowded => false,
            Kind::Inside => backend.has_server(),
            _ => true,
        }
    }
}

/// A number of pauses after which a stale write was tried, and a tenth as many rounds of every other kind. A round in
/// which no stale write was tried, although it should have been, is played again.
pub struct Plan {
    pauses: u32,
    others: Vec<Kind>,
    begun: u32,
    repetitions: Vec<Kind>,
    repetitions_left: u32,
}

impl Plan {
    pub fn new(pauses: u32, others: Vec<Kind>) -> Plan {
        let mut plan = Plan { pauses, others, begun: 0, repetitions: Vec::new(), repetitions_left: 0 };
        plan.repetitions_left = repetitions_max(plan.rounds());
        plan
    }

    /// The number of rounds of each kind but [`Kind::Pause`].
    pub fn rounds_of_each_other(&self) -> u32 {
        (self.pauses / PAUSES_PER_OTHER).max(1)
    }

    pub fn rounds(&self) -> u32 {
        self.pauses + self.rounds_of_each_other() * u32::try_from(self.others.len()).unwrap_or(0)
    }

    /// The number of rounds by kind.
    pub fn wanted(&self) -> BTreeMap<Kind, u32> {
        let others = self.others.iter().map(|kind| (*kind, self.rounds_of_each_other()));
        others.chain([(Kind::Pause, self.pauses)]).collect()
    }

    pub fn next(&mut self) -> Option<Kind> {
        if let Some(kind) = self.repetitions.pop() {
            return Some(kind);
        }
        if self.begun == self.rounds() {
            return None;
        }
        // The other kinds are spread evenly: `before(n)` of them precede the n-th round.
        let others = u64::from(self.rounds() - self.pauses);
        let before = |round: u32| others * u64::from(round) / u64::from(self.rounds());
        let (before, now) = (before(self.begun), before(self.begun + 1));
        self.begun += 1;
        let other = usize::try_from(before).unwrap_or(0) % self.others.len().max(1);
        Some(if now > before { self.others[other] } else { Kind::Pause })
    }

    /// Plays a round of this kind once more, because no stale write was tried in the last one. The number of
    /// repetitions is limited.
    pub fn play_again(&mut self, kind: Kind) {
        if self.repetitions_left > 0 {
            self.repetitions_left -= 1;
            self.repetitions.push(kind);
        }
    }

    /// Ends the campaign: further rounds would prove nothing.
    pub fn stop(&mut self) {
        (self.begun, self.repetitions_left) = (self.rounds(), 0);
        self.repetitions.clear();
    }
}

/// A campaign that needs more repetitions than this is itself at fault.
fn repetitions_max(rounds: u32) -> u32 {
    rounds / 5 + 60
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count_by_kind(mut plan: Plan) -> BTreeMap<Kind, u32> {
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
                assert_eq!(count_by_kind(plan()), plan().wanted());
                assert_eq!(plan().wanted()[&Kind::Pause], pauses);
            }
        }
        assert_eq!(Plan::new(1000, Kind::others(Backend::Redis, true)).wanted()[&Kind::NoAnswers], 100);
    }

    #[test]
    fn hv_85_a_round_without_a_stale_write_is_played_again_but_not_for_ever() {
        let mut plan = Plan::new(10, Vec::new());
        let mut played = 0;
        while plan.next().is_some() {
            played += 1;
            plan.play_again(Kind::Pause);
        }
        assert_eq!(played, 10 + repetitions_max(10));
    }

    #[test]
    fn a_stopped_plan_has_no_more_rounds() {
        let mut plan = Plan::new(10, Kind::others(Backend::Redis, true));
        plan.play_again(Kind::Half);
        plan.stop();
        plan.play_again(Kind::Half);
        assert_eq!(plan.next(), None);
    }
}
