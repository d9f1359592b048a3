//! Slots of several nodes, over one bucket of the store.

use super::*;
use crate::{
    bucket::Bucket,
    contract::limit::{self, MICRO, Rule},
};

/// From a question to its answer.
const TRIP: u64 = 4 * MILLISECOND;

struct Node {
    world: World,
    has: u64,
    /// What was asked for, when, and when the answer is there.
    asked: Option<(u64, u64)>,
    in_use: Vec<u64>,
}

struct Fleet {
    nodes: Vec<Node>,
    bucket: Bucket,
    definition: limit::Definition,
    tokens: u32,
    /// What each waits for.
    costs: std::collections::BTreeMap<u32, u64>,
    /// Whether more were in use than there are when one was given out.
    wrong: Vec<u64>,
    /// Put to the store.
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

    /// Another definition is in force, and everybody has heard of it.
    fn set(&mut self, max: u64) {
        self.definition.version += 1;
        self.definition.rule = Rule::count(max);
        for node in 0..self.nodes.len() {
            let terms = self.nodes[node].world.setting.terms.under(self.definition.rule, self.definition.version);
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
                    let answer = Holds { has: held.has, free: held.free, over: held.over, version: held.version };
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

/// HV-68, HV-71: nothing is torn away; but each that comes back is gone, until there are as many as there may be.
#[test]
fn hv_68_fewer_slots_than_before_are_reached_as_work_ends() {
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
        // One may be on its way from a node that has more than its part to the other.
        let is_reached = |seen: &u64| *seen == 5 || (nodes == 2 && *seen == 4);
        assert_eq!(seen[0], 9, "{nodes} nodes: one less at a time");
        assert!(seen[4..].iter().all(is_reached), "{nodes} nodes: then as many as there are: {seen:?}");
        assert!(fleet.wrong.is_empty(), "{nodes} nodes lend what there is not: {:?}", fleet.wrong);
        fleet.set(8);
        fleet.pass(300);
        assert_eq!(fleet.in_use(), 8, "and more when there are more");
    }
}

/// HV-68: what nobody uses is the first to go.
#[test]
fn hv_68_free_slots_go_back_when_there_are_fewer() {
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
    assert_eq!((fleet.in_use(), fleet.wrong.len()), (6, 0), "and the sixth is there for whoever asks");
}

/// HV-68: two that need all of them do not starve each other with a part each.
#[test]
fn hv_68_parts_that_are_of_no_use_are_left_to_others() {
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
    assert_eq!((fleet.in_use(), fleet.costs.len()), (5, 1), "one of the two");
    (0..2).for_each(|node| fleet.ends_one(node));
    fleet.pass(2_000);
    assert_eq!((fleet.in_use(), fleet.costs.len(), fleet.wrong.len()), (5, 0, 0), "and then the other");
}

/// HV-68: a request that does not wait leaves no part behind.
#[test]
fn hv_68_a_part_that_came_too_late_goes_back_at_once() {
    let mut world = World::of(&Definition::slots("workers", 5));
    assert_eq!(world.ask(1, 5), [Effect::Hold { slots: 5 }]);
    let effects = world.holds(START, 3);
    assert_eq!(refused(&effects), [(1, Reason::Exhausted)]);
    assert_eq!(effects.last(), Some(&Effect::Hold { slots: 0 }), "{effects:?}");
}

/// HV-67: whoever has all that there are has nothing to ask for.
#[test]
fn hv_68_a_node_that_has_them_all_does_not_ask_again_and_again() {
    let mut fleet = Fleet::of(1, 4);
    (0..6).for_each(|_| fleet.waits(0, 1));
    fleet.pass(100);
    assert_eq!(fleet.in_use(), 4);
    let before = fleet.questions;
    fleet.pass(10_000);
    assert_eq!(fleet.questions, before);
    fleet.ends_one(0);
    assert_eq!((fleet.in_use(), fleet.costs.len()), (4, 1), "what comes back is lent at once");
    // Whoever does not wait hears why, and at once.
    let refused = refused(&fleet.nodes[0].world.ask(99, 1));
    assert_eq!(refused, [(99, Reason::Exhausted)]);
}

/// HV-68: what was left to others and nobody takes is had again, whatever else takes long.
#[test]
fn hv_68_what_nobody_else_wants_is_not_left_lying() {
    let mut fleet = Fleet::of(3, 2);
    let mut ended = 0;
    for _ in 0..1_000 {
        while fleet.nodes[0].world.key.waiting() < 3 {
            fleet.waits(0, 1);
        }
        // One of them never ends.
        while fleet.nodes[0].in_use.len() > 1 {
            fleet.ends_one(0);
            ended += 1;
        }
        fleet.pass(20);
    }
    assert!(fleet.wrong.is_empty() && ended > 700, "{ended} have ended in a thousand turns");
}

/// HV-68: a node that never comes to rest does not keep everything from another.
#[test]
fn hv_68_a_busy_node_leaves_others_their_part() {
    for max in [1, 4] {
        let mut fleet = Fleet::of(2, max);
        let (mut ended, mut most) = ([0_u64; 2], 0);
        for turn in 0..3_000 {
            // Work of 20 ms, and always more of it; at the second node a little later.
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
        assert!(second * 3 > first && first * 3 > second, "{max} slots: {first} and {second} have ended");
        let used = (first + second) * 100 / (max * 3_000);
        assert!(used > 80, "{max} slots, in use for {used} % of the time");
    }
}
