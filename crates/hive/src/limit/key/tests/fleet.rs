//! Tests of slots on several nodes that share one bucket of the store.

use super::*;
use crate::{
    bucket::Bucket,
    contract::limit::{self, MICRO, Rule},
};

/// The time from a request to its answer.
const TRIP: u64 = 4 * MILLISECOND;

struct Node {
    world: World,
    has: u64,
    /// The slots asked for, and when.
    asked: Option<(u64, u64)>,
    in_use: Vec<u64>,
}

struct Fleet {
    nodes: Vec<Node>,
    bucket: Bucket,
    definition: limit::Definition,
    tokens: u32,
    /// The cost of each waiting request, by token.
    costs: std::collections::BTreeMap<u32, u64>,
    /// The slots in use, each time that more were in use than the limit has.
    wrong: Vec<u64>,
    /// The number of requests to the store.
    questions: u64,
}

impl Fleet {
    fn of(nodes: usize, max: u64) -> Fleet {
        let definition = limit::Definition { version: 1, rule: Rule::count(max), effective_ms: 0 };
        let node = || {
            let mut world = World::of(&Definition::slots("workers", max));
            world.setting.nodes = nodes as u64;
            Node { world, has: 0, asked: None, in_use: Vec::new() }
        };
        Fleet {
            nodes: (0..nodes).map(|_| node()).collect(),
            bucket: Bucket::fresh(&definition, 0, 0, 0),
            definition,
            tokens: 0,
            costs: std::collections::BTreeMap::new(),
            wrong: Vec::new(),
            questions: 0,
        }
    }

    fn in_use(&self) -> u64 {
        self.nodes.iter().flat_map(|node| &node.in_use).sum()
    }

    fn did(&mut self, node: usize, effects: Vec<Effect<u32>>) {
        for effect in effects {
            match effect {
                Effect::Hold { slots } => {
                    self.questions += 1;
                    self.nodes[node].asked = Some((slots, self.nodes[node].world.now));
                }
                Effect::Grant { token, .. } => {
                    let cost = self.costs.remove(&token).expect("it waits");
                    self.nodes[node].in_use.push(cost);
                    if self.in_use() > self.definition.rule.burst_u / MICRO {
                        self.wrong.push(self.in_use());
                    }
                }
                Effect::Refuse { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn waits(&mut self, node: usize, cost: u64) {
        self.tokens += 1;
        self.costs.insert(self.tokens, cost);
        let effects = self.nodes[node].world.step(self.tokens, cost, 3600 * SECOND);
        self.did(node, effects);
    }

    fn ends_one(&mut self, node: usize) {
        let Some(cost) = self.nodes[node].in_use.pop() else { return };
        let effects = self.nodes[node].world.freed(cost);
        self.did(node, effects);
    }

    /// Puts another definition into force on all nodes.
    fn set(&mut self, max: u64) {
        self.definition.version += 1;
        self.definition.rule = Rule::count(max);
        for node in 0..self.nodes.len() {
            let terms = self.nodes[node].world.setting.terms.with_rule(self.definition.rule, self.definition.version);
            self.nodes[node].world.setting.terms = terms;
            let effects = self.nodes[node].world.changed();
            self.did(node, effects);
        }
    }

    fn pass(&mut self, ms: u64) {
        for _ in 0..ms {
            for node in 0..self.nodes.len() {
                self.nodes[node].world.pass(1);
                let now = self.nodes[node].world.now;
                if let Some((slots, started)) = self.nodes[node].asked.take_if(|(_, started)| now >= *started + TRIP) {
                    let held = self.bucket.slots(&self.definition, self.nodes[node].has, slots);
                    self.nodes[node].has = held.has;
                    let answer = SlotsAnswer { has: held.has, free: held.free, over: held.over, version: held.version };
                    let effects = self.nodes[node].world.answered(started, answer);
                    self.did(node, effects);
                }
                if self.nodes[node].world.key.wake_at_ns() <= now {
                    let effects = self.nodes[node].world.attend();
                    self.did(node, effects);
                }
            }
        }
    }
}

/// HV-68, HV-71: slots in use stay in use after the limit was lowered, but each slot that comes back is not lent again,
/// until the new limit is reached.
#[test]
fn hv_68_a_lower_number_of_slots_is_reached_as_work_ends() {
    for nodes in [1, 2] {
        let mut fleet = Fleet::of(nodes, 10);
        for at in 0..40 {
            fleet.waits(at % nodes, 1);
            fleet.pass(2);
        }
        fleet.pass(200);
        assert_eq!((fleet.in_use(), fleet.wrong.len()), (10, 0));
        fleet.set(5);
        let mut seen = Vec::new();
        for turn in 0..30 {
            fleet.ends_one(turn % nodes);
            fleet.pass(120);
            seen.push(fleet.in_use());
        }
        // One slot may be in transfer from a node that has more than its part to the other.
        let is_reached = |seen: &u64| *seen == 5 || (nodes == 2 && *seen == 4);
        assert_eq!(seen[0], 9, "{nodes} nodes: one slot less at a time");
        assert!(seen[4..].iter().all(is_reached), "{nodes} nodes: then as many as the limit has: {seen:?}");
        assert!(fleet.wrong.is_empty(), "{nodes} nodes lend more slots than the limit has: {:?}", fleet.wrong);
        fleet.set(8);
        fleet.pass(300);
        assert_eq!(fleet.in_use(), 8, "more slots after a raise");
    }
}

/// HV-68: unused slots go back first.
#[test]
fn hv_68_free_slots_go_back_when_the_limit_is_lowered() {
    let mut fleet = Fleet::of(2, 10);
    (0..8).for_each(|_| fleet.waits(0, 1));
    fleet.pass(20);
    (0..2).for_each(|_| fleet.waits(1, 1));
    fleet.pass(20);
    (0..5).for_each(|_| fleet.ends_one(0));
    assert_eq!((fleet.in_use(), fleet.bucket.issued_u / MICRO), (5, 10));
    fleet.set(6);
    fleet.pass(20);
    assert_eq!(fleet.bucket.issued_u / MICRO, 5, "only those in use are held");
    fleet.waits(1, 1);
    fleet.pass(120);
    assert_eq!((fleet.in_use(), fleet.wrong.len()), (6, 0), "and the sixth can be taken by any node");
}

/// HV-68: two nodes that each need all slots do not block each other by holding a part each.
#[test]
fn hv_68_slots_that_are_too_few_for_a_request_are_given_back() {
    let mut fleet = Fleet::of(2, 5);
    fleet.waits(0, 3);
    fleet.pass(20);
    fleet.waits(1, 2);
    fleet.pass(20);
    assert_eq!(fleet.in_use(), 5);
    fleet.waits(0, 5);
    fleet.waits(1, 5);
    fleet.pass(20);
    fleet.ends_one(0);
    fleet.ends_one(1);
    fleet.pass(2_000);
    assert_eq!((fleet.in_use(), fleet.costs.len()), (5, 1), "one of the two has all slots");
    (0..2).for_each(|node| fleet.ends_one(node));
    fleet.pass(2_000);
    assert_eq!((fleet.in_use(), fleet.costs.len(), fleet.wrong.len()), (5, 0, 0), "and then the other node");
}

/// HV-68: a request that does not wait leaves no slots behind on its node.
#[test]
fn hv_68_too_few_slots_for_an_immediate_request_go_back_at_once() {
    let mut world = World::of(&Definition::slots("workers", 5));
    assert_eq!(world.ask(1, 5), [Effect::Hold { slots: 5 }]);
    let effects = world.holds(START, 3);
    assert_eq!(refused(&effects), [(1, Reason::Exhausted)]);
    assert_eq!(effects.last(), Some(&Effect::Hold { slots: 0 }), "{effects:?}");
}

/// HV-67: a node that holds all slots does not ask the store for more.
#[test]
fn hv_68_a_node_that_has_all_slots_does_not_ask_again() {
    let mut fleet = Fleet::of(1, 4);
    (0..6).for_each(|_| fleet.waits(0, 1));
    fleet.pass(100);
    assert_eq!(fleet.in_use(), 4);
    let before = fleet.questions;
    fleet.pass(10_000);
    assert_eq!(fleet.questions, before);
    fleet.ends_one(0);
    assert_eq!((fleet.in_use(), fleet.costs.len()), (4, 1), "a slot that comes back is lent at once");
    // An immediate request is refused at once, with the reason.
    let refused = refused(&fleet.nodes[0].world.ask(99, 1));
    assert_eq!(refused, [(99, Reason::Exhausted)]);
}

/// HV-68: a node takes back the slots that it left to other nodes and that no node took, even while it has long work.
#[test]
fn hv_68_slots_that_no_other_node_wants_are_taken_back() {
    let mut fleet = Fleet::of(3, 2);
    let mut ended = 0;
    for _ in 0..1_000 {
        while fleet.nodes[0].world.key.waiting() < 3 {
            fleet.waits(0, 1);
        }
        // The work in one slot never ends.
        while fleet.nodes[0].in_use.len() > 1 {
            fleet.ends_one(0);
            ended += 1;
        }
        fleet.pass(20);
    }
    assert!(fleet.wrong.is_empty() && ended > 700, "{ended} works have ended in a thousand turns");
}

/// HV-68: a node that is always busy does not keep all slots from another.
#[test]
fn hv_68_a_busy_node_leaves_other_nodes_their_part() {
    for max in [1, 4] {
        let mut fleet = Fleet::of(2, max);
        let (mut ended, mut most) = ([0_u64; 2], 0);
        for turn in 0..3_000 {
            // Each work lasts 20 ms, and there is always more; the second node begins a little later.
            for (node, ended) in ended.iter_mut().enumerate().take(if turn > 50 { 2 } else { 1 }) {
                while fleet.nodes[node].world.key.waiting() < 6 {
                    fleet.waits(node, 1);
                }
                let in_use = fleet.nodes[node].in_use.len();
                (0..in_use).for_each(|_| fleet.ends_one(node));
                *ended += in_use as u64;
            }
            fleet.pass(20);
            most = most.max(fleet.in_use());
        }
        assert!(fleet.wrong.is_empty() && most == max, "{max} slots: {most} in use, {:?}", fleet.wrong);
        let [first, second] = ended;
        assert!(second * 3 > first && first * 3 > second, "{max} slots: {first} and {second} works have ended");
        let used = (first + second) * 100 / (max * 3_000);
        assert!(used > 80, "{max} slots, in use for {used} % of the time");
    }
}
