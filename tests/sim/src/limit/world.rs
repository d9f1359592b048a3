//! Plays one scenario with one seed.

use std::{cmp::Reverse, collections::BinaryHeap};

use honeyflow_hive::{
    bucket::Bucket,
    contract::limit::{self as ledger, MICRO, ReservationRequest},
    limit::{
        definition::{Definition, Terms},
        key::StoreAnswer,
    },
};
use honeyflow_invariant::{
    Breach,
    rate::{GrantedPermits, rate_holds},
};

use super::{
    load::SECOND,
    node::{Draw, Node},
    scenario::{Disturbance, Scenario},
};
use crate::random::Random;

/// The round trip to the store.
const TRIP_NS: u64 = 5_000_000;
/// Hive time at the start; it is not zero.
const EPOCH_MS: u64 = 1_000_000;

#[derive(Clone, Debug)]
pub struct Figures {
    pub requests: u64,
    pub admitted: u64,
    /// How many one central bucket admits, which sees every request at once.
    pub central: u64,
    /// The most that ten seconds admitted, as a part of ten seconds of the limit.
    pub window: f64,
    /// What the store issued; the difference expired unused.
    pub issued: u64,
    /// How many of the admitted requests had to wait, for the store's answer or for reserved permits.
    pub waited: u64,
    pub calls: u64,
    /// The busiest node's calls per second.
    pub calls_per_node: f64,
    pub breaches: Vec<Breach>,
}

impl Figures {
    pub fn share(&self) -> f64 {
        self.admitted as f64 / self.central as f64
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Event {
    Request(usize),
    Wake(usize),
    Arrive { node: usize, draw: Draw },
    Answer { node: usize, draw: Draw, drawn: StoreAnswer },
    Middle,
}

struct World<'a> {
    scenario: &'a Scenario,
    rate: f64,
    until_ns: u64,
    random: Random,
    queue: BinaryHeap<Reverse<(u64, u64, Event)>>,
    order: u64,
    nodes: Vec<Node>,
    woken_at: Vec<u64>,
    present: usize,
    stored: ledger::Definition,
    store: Bucket,
    central: Bucket,
    admitted: Vec<GrantedPermits>,
    figures: Figures,
}

/// Plays a scenario with `rate` per second, over `seconds`.
pub fn run(scenario: &Scenario, rate: u64, seconds: u64, seed: u64) -> Figures {
    let terms = |rate: u64, version: u64| {
        let definition = Definition::parse("api", &format!("{rate}/s")).expect("a rate");
        Terms::from_definition(&Definition { version, ..definition }).expect("terms")
    };
    let (first, second) = (terms(rate, 1), terms(rate / 2, 2));
    let most = match scenario.turn {
        Disturbance::Nodes(after) => scenario.nodes.max(after),
        Disturbance::Forgets => 2 * scenario.nodes,
        _ => scenario.nodes,
    };
    let stored = ledger::Definition { version: 1, rule: first.rule(), effective_ms: EPOCH_MS };
    let mut world = World {
        scenario,
        rate: rate as f64,
        until_ns: seconds * SECOND,
        random: Random::new(seed),
        queue: BinaryHeap::new(),
        order: 0,
        nodes: (0..most).map(|_| Node::new(first, scenario.nodes as u64)).collect(),
        woken_at: vec![u64::MAX; most],
        present: scenario.nodes,
        stored,
        store: Bucket::fresh(&stored, stored.rule.pool_u(), 0, EPOCH_MS),
        central: Bucket::fresh(&stored, stored.rule.burst_u, 0, EPOCH_MS),
        admitted: Vec::new(),
        figures: Figures {
            requests: 0,
            admitted: 0,
            central: 0,
            window: 0.0,
            issued: 0,
            waited: 0,
            calls: 0,
            calls_per_node: 0.0,
            breaches: Vec::new(),
        },
    };
    for node in 0..most {
        world.next_request(node, 0);
    }
    world.push(seconds * SECOND / 2, Event::Middle);
    while let Some(Reverse((at, _, event))) = world.queue.pop() {
        if at >= world.until_ns {
            break;
        }
        world.step(event, at, second);
    }
    world.finish(first, second, seconds)
}

impl World<'_> {
    fn push(&mut self, at_ns: u64, event: Event) {
        self.order += 1;
        self.queue.push(Reverse((at_ns, self.order, event)));
    }

    /// Schedules the next candidate at the node's peak rate. It is thinned out to the actual rate when it comes.
    fn next_request(&mut self, node: usize, now_ns: u64) {
        let peak = self.scenario.load.peak(node, self.present, self.scenario.demand * self.rate);
        let wait = -(1.0 - self.random.unit()).ln() / peak * SECOND as f64;
        self.push(now_ns + (wait as u64).max(1), Event::Request(node));
    }

    fn is_down(&self, at_ns: u64) -> bool {
        self.scenario.turn == Disturbance::StoreDown && at_ns % (60 * SECOND) >= 50 * SECOND
    }

    fn step(&mut self, event: Event, now_ns: u64, second: Terms) {
        let now_ms = EPOCH_MS + now_ns / 1_000_000;
        match event {
            Event::Request(node) => {
                self.next_request(node, now_ns);
                let total = self.scenario.demand * self.rate;
                let load = self.scenario.load;
                let (rate, peak) = (load.of(node, self.present, total, now_ns), load.peak(node, self.present, total));
                if node >= self.present || self.random.unit() * peak >= rate {
                    return;
                }
                self.figures.requests += 1;
                if self.central.check_take(&self.stored, 1, None, now_ms).is_ok() {
                    self.central.take(1);
                    self.figures.central += 1;
                }
                if self.nodes[node].request(now_ns) {
                    self.admit(now_ns, 1);
                }
                self.after(node, now_ns);
            }
            Event::Wake(node) => {
                if self.woken_at[node] == now_ns {
                    self.woken_at[node] = u64::MAX;
                    self.nodes[node].step(now_ns);
                    self.after(node, now_ns);
                }
            }
            Event::Arrive { node, draw } => {
                if !self.is_down(now_ns) {
                    let Draw { want, need, book, .. } = draw;
                    let book = (book > 0).then_some(ReservationRequest { want: book, weight: 1 });
                    let asked = ledger::Draw { limit: "api".into(), key: ledger::Key(1), want, need, reserve: book };
                    let drawn = self.store.draw_and_reserve(&self.stored, &asked, now_ms);
                    let ledger::DrawOutcome { granted: given, pool_u, retry_ms, reserved: booked, begins_ms, .. } =
                        drawn;
                    let (pool, retry_ms) = (pool_u / MICRO, retry_ms.unwrap_or(1));
                    let drawn =
                        StoreAnswer { given, retry_ms, pool, full_ms: 0, window_ms: 0, reserved: booked, begins_ms };
                    self.push(now_ns + TRIP_NS / 2, Event::Answer { node, draw, drawn });
                }
            }
            Event::Answer { node, draw, drawn } => {
                self.nodes[node].answered(draw, drawn, now_ns);
                self.after(node, now_ns);
            }
            Event::Middle => match self.scenario.turn {
                Disturbance::Nodes(after) => {
                    self.present = after;
                    self.nodes.iter_mut().for_each(|node| node.count(after as u64));
                }
                Disturbance::Halved => {
                    self.stored = ledger::Definition { version: 2, rule: second.rule(), effective_ms: now_ms };
                    for node in 0..self.nodes.len() {
                        self.nodes[node].change(second, now_ns);
                        self.after(node, now_ns);
                    }
                }
                // The nodes continue to use what they drew and reserved; the store has lost it.
                Disturbance::Forgets => {
                    self.present *= 2;
                    let present = self.present as u64;
                    self.nodes.iter_mut().for_each(|node| node.count(present));
                    self.store = Bucket::fresh(&self.stored, self.stored.rule.pool_u(), now_ms, now_ms);
                }
                Disturbance::None | Disturbance::StoreDown => {}
            },
        }
    }

    fn admit(&mut self, at_ns: u64, permits: u64) {
        self.figures.admitted += permits;
        self.admitted.push(GrantedPermits { at_us: at_ns / 1000, permits });
    }

    fn after(&mut self, node: usize, now_ns: u64) {
        let (granted, draws) = self.nodes[node].effects(now_ns);
        if granted > 0 {
            self.admit(now_ns, granted);
        }
        for draw in draws {
            self.push(now_ns + TRIP_NS / 2, Event::Arrive { node, draw });
        }
        let wake_at = self.nodes[node].wake_at_ns().max(now_ns + 1);
        if wake_at < self.woken_at[node] {
            self.woken_at[node] = wake_at;
            self.push(wake_at, Event::Wake(node));
        }
    }

    fn finish(mut self, first: Terms, second: Terms, seconds: u64) -> Figures {
        let halved = self.scenario.turn == Disturbance::Halved;
        // What the store has lost may be issued once more, up to the burst.
        let bursts = if self.scenario.turn == Disturbance::Forgets { 2 } else { 1 };
        let breaches =
            |terms: Terms, given: &[GrantedPermits]| rate_holds("api", terms.rate.permits, terms.burst * bursts, given);
        // Without the store each node uses its share by its own clock: another bound applies then.
        if self.scenario.turn != Disturbance::StoreDown {
            let turn_ns = if halved { self.until_ns / 2 } else { self.until_ns };
            let at = self.admitted.partition_point(|one| one.at_us < turn_ns / 1000);
            let (before, after) = self.admitted.split_at(at);
            self.figures.breaches = breaches(first, before);
            self.figures.breaches.extend(breaches(second, after));
        }
        self.figures.window = worst_window(&self.admitted, |at_ns| {
            if halved && at_ns >= self.until_ns / 2 { second.rate.as_per_second() } else { self.rate }
        });
        self.figures.issued = self.store.issued_u / MICRO;
        self.figures.waited = self.nodes.iter().map(|node| node.waited).sum();
        self.figures.calls = self.nodes.iter().map(|node| node.calls).sum();
        let busiest = self.nodes.iter().map(|node| node.calls).max().unwrap_or(0);
        self.figures.calls_per_node = busiest as f64 / seconds as f64;
        self.figures
    }
}

/// The worst window, in steps of a tenth of a second. A window over a change is compared with the rates in force.
fn worst_window(admitted: &[GrantedPermits], rate_at: impl Fn(u64) -> f64) -> f64 {
    const STEP: u64 = SECOND / 10;
    const STEP_US: u64 = STEP / 1000;
    let steps = admitted.last().map_or(0, |last| last.at_us / STEP_US + 1) as usize;
    let mut counts = vec![0.0; steps];
    for one in admitted {
        counts[(one.at_us / STEP_US) as usize] += one.permits as f64;
    }
    let mut worst: f64 = 0.0;
    for (at, window) in counts.windows(100).enumerate() {
        let allowed: f64 = (at..at + 100).map(|step| rate_at(step as u64 * STEP) / 10.0).sum();
        worst = worst.max(window.iter().sum::<f64>() / allowed);
    }
    worst
}
