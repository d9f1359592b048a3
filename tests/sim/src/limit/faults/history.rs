//! The history of a seed, as far as the checks need it.

use std::collections::BTreeMap;

use honeyflow_hive::{
    NodeId,
    contract::limit::{Rule, Window},
};

/// Permits that a program got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TakenPermits {
    pub asked_ns: u64,
    pub at_ns: u64,
    /// The process: a restarted machine is another process.
    pub process: u64,
    pub limit: &'static str,
    pub key: &'static str,
    /// The permits without those that were given back unused.
    pub permits: u64,
    /// If the permits came from the node's own share, the divisor of that share.
    pub share: Option<u64>,
    /// The quota's window, if request and answer are in the same one.
    pub window: Option<Window>,
}

/// Permits that the store itself decided; refunds are negative.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreDecision {
    pub at_ns: u64,
    pub limit: &'static str,
    pub key: u128,
    pub permits: i64,
}

/// Why more than usual may have been admitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Excuse {
    /// The store lost its rows.
    Forgot { at_ns: u64 },
    /// The store's clock stepped ahead.
    Ahead { at_ns: u64, by_ms: u64 },
    /// A node woke up whose clock had been stopped.
    Slept { until_ns: u64 },
}

/// A definition, and since when it was in force.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Force {
    pub from_ns: u64,
    pub rule: Rule,
}

/// A definition that a node without the store may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hearsay {
    /// The earliest time at which it could be in force anywhere: a node that reads a change uses the store's clock of
    /// that moment.
    pub from_ns: u64,
    /// When the store lost it: a process that starts later cannot know it.
    pub gone_ns: u64,
    pub rule: Rule,
}

/// The definitions of the store, by its own clock.
#[derive(Clone, Debug, Default)]
pub struct Law {
    now: Option<Rule>,
    next: Option<(u64, Rule)>,
    looked_ns: u64,
    pub in_force: Vec<Force>,
    /// All definitions that nodes could ever read, also those that the store lost before they were in force.
    pub hearsay: Vec<Hearsay>,
}

impl Law {
    pub fn set(&mut self, rule: Rule, effective_ms: u64, now_ns: u64, hive_ms: u64) {
        self.look(now_ns, hive_ms);
        let mut hearsay = Hearsay { from_ns: u64::MAX, gone_ns: u64::MAX, rule };
        match self.now {
            None => {
                self.now = Some(rule);
                // Every process has the first definition from its configuration, without the store.
                hearsay.from_ns = 0;
            }
            Some(_) => {
                if let Some((_, newest)) = self.next {
                    self.now = Some(newest);
                }
                self.next = Some((effective_ms, rule));
                let superseded = self.hearsay.len().saturating_sub(1);
                self.end_hearsay(superseded, now_ns);
            }
        }
        self.hearsay.push(hearsay);
        self.look(now_ns, hive_ms);
    }

    /// The store has lost its definitions; the one in force stays so until a node defines it again.
    pub fn forget(&mut self, now_ns: u64) {
        (self.now, self.next) = (None, None);
        self.end_hearsay(self.hearsay.len(), now_ns);
    }

    fn end_hearsay(&mut self, count: usize, now_ns: u64) {
        self.hearsay[..count].iter_mut().for_each(|one| one.gone_ns = one.gone_ns.min(now_ns));
    }

    /// Determines which definition is in force now, and since when.
    pub fn look(&mut self, now_ns: u64, hive_ms: u64) {
        let Some(now) = self.now else { return };
        if let (Some((effective_ms, _)), Some(coming)) = (self.next, self.hearsay.last_mut()) {
            coming.from_ns = coming.from_ns.min(now_ns + effective_ms.saturating_sub(hive_ms) * 1_000_000);
        }
        let coming = self.next.filter(|(effective_ms, _)| *effective_ms <= hive_ms);
        let rule = coming.map_or(now, |(_, rule)| rule);
        let last = self.in_force.last().copied();
        if last.is_none_or(|last| last.rule != rule) {
            // Since the last call the clock has only run normally; before a clock step this function is called too.
            let late_ns =
                coming.map_or(0, |(effective_ms, _)| (hive_ms - effective_ms) * 1_000_000 + now_ns % 1_000_000);
            let from_ns = now_ns.saturating_sub(late_ns).max(self.looked_ns);
            self.in_force.push(Force { from_ns, rule });
        }
        self.looked_ns = now_ns;
    }
}

#[derive(Clone, Debug, Default)]
pub struct History {
    pub taken: Vec<TakenPermits>,
    pub decided: Vec<StoreDecision>,
    pub excuses: Vec<Excuse>,
    pub laws: BTreeMap<&'static str, Law>,
    /// When each process began.
    pub began_ns: BTreeMap<u64, u64>,
    /// Slots in use now, by the node id under which they were given.
    pub slots: BTreeMap<NodeId, u64>,
    pub breaches: Vec<honeyflow_invariant::Breach>,
    pub counts: Counts,
    /// Whether the clock went back, so that windows of the calendar came twice.
    pub went_back: bool,
}

/// Counts of the events that a campaign must have seen to prove something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub admitted: u64,
    pub refused: u64,
    pub of_share: u64,
    pub refunded: u64,
    pub all: u64,
    pub none: u64,
    pub slots: u64,
    pub abandoned: u64,
    pub lost: u64,
    pub late: u64,
    pub repeated: u64,
    pub broken: u64,
    pub booked: u64,
    pub changed: u64,
    pub crashed: u64,
    pub forgotten: u64,
    pub buried: u64,
    pub turned: u64,
}

impl Counts {
    pub fn add(&mut self, other: &Counts) {
        for (sum, one) in self.each_mut().into_iter().zip(other.each()) {
            *sum.1 += one.1;
        }
    }

    pub fn each(&self) -> [(&'static str, u64); 18] {
        let mut copy = *self;
        copy.each_mut().map(|(name, count)| (name, *count))
    }

    fn each_mut(&mut self) -> [(&'static str, &mut u64); 18] {
        [
            ("admitted", &mut self.admitted),
            ("refused", &mut self.refused),
            ("of a share", &mut self.of_share),
            ("refunded", &mut self.refunded),
            ("all of several", &mut self.all),
            ("none of several", &mut self.none),
            ("slots", &mut self.slots),
            ("abandoned", &mut self.abandoned),
            ("lost", &mut self.lost),
            ("late", &mut self.late),
            ("repeated", &mut self.repeated),
            ("broken", &mut self.broken),
            ("booked", &mut self.booked),
            ("changes", &mut self.changed),
            ("crashes", &mut self.crashed),
            ("forgotten", &mut self.forgotten),
            ("buried", &mut self.buried),
            ("windows turned", &mut self.turned),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// HV-71: a change counts at the earliest from the time by the store's clock; also if the store loses it before,
    /// but not for processes that begin after that.
    #[test]
    fn hv_71_hearsay_begins_and_ends() {
        let (slow, fast) = (Rule::rate(10, 1_000, 10), Rule::rate(20, 1_000, 20));
        let mut law = Law::default();
        law.set(slow, 50_000, 0, 50_000);
        assert_eq!(law.hearsay, [Hearsay { from_ns: 0, gone_ns: u64::MAX, rule: slow }]);
        law.set(fast, 53_000, 1_000 * MS, 51_000);
        assert_eq!(law.hearsay[1].from_ns, 3_000 * MS);
        law.look(1_500 * MS, 52_000);
        law.look(1_600 * MS, 51_600);
        assert_eq!(law.hearsay[1].from_ns, 2_500 * MS, "a process may have read it before the clock went back");
        law.forget(1_700 * MS);
        law.set(slow, 51_800, 1_800 * MS, 51_800);
        law.look(9_000 * MS, 59_000);
        let known: Vec<(u64, u64)> = law.hearsay.iter().map(|one| (one.from_ns / MS, one.gone_ns / MS)).collect();
        assert_eq!(known, [(0, 1_700), (2_500, 1_700), (0, u64::MAX / MS)]);
        assert!(law.in_force.iter().all(|force| force.rule == slow), "{:?}", law.in_force);
    }
}
