//! Runs thousands of random sequences of events. The audit runs after every step; this file checks the rest.

use super::*;
use crate::settings::IdleOrder;

struct Chaos {
    world: World,
    random: u64,
    loans: Vec<LentConnection<Wire>>,
    orphans: Vec<(Key, Moment)>,
    waiters: Vec<Key>,
    pending: Vec<PendingConnect>,
    servers: u8,
}

impl Chaos {
    fn new(seed: u64) -> Chaos {
        let mut chaos = Chaos {
            world: World::new(&quiet(), 0),
            random: seed,
            loans: Vec::new(),
            orphans: Vec::new(),
            waiters: Vec::new(),
            pending: Vec::new(),
            servers: 1,
        };
        let settings = chaos.settings();
        chaos.servers = 1 + chaos.below(4) as u8;
        chaos.world = World::new(&settings, chaos.servers);
        chaos.world.core.random = seed;
        if chaos.below(2) == 0 {
            chaos.world.streams = 3;
        }
        chaos
    }

    fn below(&mut self, most: usize) -> usize {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % most
    }

    fn settings(&mut self) -> Settings {
        let connections = 1 + self.below(3) as u32;
        Settings {
            connections_per_server: Some(connections),
            max_connections_per_server: Some(connections + self.below(3) as u32),
            queue_limit: [4, 16, 4096][self.below(3)],
            decay_per_billion: Some([0, 300_000_000][self.below(2)]),
            early_refusal: self.below(2) == 0,
            idle_order: [IdleOrder::Fifo, IdleOrder::Lifo][self.below(2)],
            streams_per_connection: [1, 2, 1024][self.below(3)],
            max_orphans: 1 + self.below(3) as u32,
            max_age: Duration::from_secs(1 + self.below(100) as u64),
            max_idle: Duration::from_secs(1 + self.below(10) as u64),
            slow_start: Duration::from_secs(self.below(2) as u64 * 10),
            ..quiet()
        }
    }

    fn take<T>(&mut self, pick: impl Fn(&mut Chaos) -> &mut Vec<T>) -> Option<T> {
        let length = pick(self).len();
        if length == 0 {
            return None;
        }
        let at = self.below(length);
        Some(pick(self).swap_remove(at))
    }

    fn step(&mut self) {
        match self.below(26) {
            0..=5 => self.ask(),
            6..=9 => {
                if let Some(lent) = self.take(|chaos| &mut chaos.loans) {
                    self.end(&lent);
                }
            }
            10 | 11 => {
                if let Some(waiter) = self.take(|chaos| &mut chaos.waiters) {
                    self.pick_up(waiter);
                }
            }
            12 => {
                if let Some(waiter) = self.take(|chaos| &mut chaos.waiters) {
                    self.world.cancel(waiter);
                }
            }
            13 | 14 => {
                self.world.reconcile();
                self.pending.append(&mut self.world.opens);
            }
            15 | 16 => {
                if let Some(open) = self.take(|chaos| &mut chaos.pending) {
                    match self.below(5) {
                        0 => self.world.fail(&open, false),
                        1 => {
                            self.world.core.abandoned(&open, &mut self.world.effects);
                            self.world.after();
                        }
                        _ => drop(self.world.open(&open)),
                    }
                }
            }
            17 | 18 => {
                let time = ms([1, 30, 700, 6000][self.below(4)]);
                self.world.pass(time);
            }
            19 => self.breakage(),
            20 => {
                if let Some((connection, gone_at)) = self.take(|chaos| &mut chaos.orphans) {
                    let now = self.world.now;
                    self.world.core.end_orphan(connection, gone_at, true, now, &mut self.world.effects);
                    self.world.after();
                }
            }
            21 => self.topology(),
            22 => {
                let rules = Rules::from(&self.settings());
                let now = self.world.now;
                self.world.core.set_rules(rules, now, &mut self.world.effects);
                self.world.after();
            }
            23 => self.judge(),
            _ => self.command(),
        }
    }

    fn ask(&mut self) {
        let target = if self.below(6) == 0 && !self.world.core.ring.is_empty() {
            let at = self.below(self.world.core.ring.len());
            Some(self.world.core.ring[at])
        } else {
            None
        };
        let tried =
            if target.is_none() && self.below(6) == 0 { self.world.core.eligible.first().copied() } else { None };
        let request = Request {
            class: Class::ALL[self.below(3)],
            due: self.world.now.after(ms([5, 500, 5000][self.below(3)])),
            target,
            tried: tried.as_slice(),
            idempotent: self.below(2) == 0,
            ..Request::default()
        };
        match self.world.ask(&request) {
            Checkout::Lent(lent) => {
                assert!(!lent.carried.broken(), "a dead connection was handed out");
                assert!(lent.carried.takes_more(), "one whose server had said goodbye was");
                assert!(request.target.is_none_or(|target| target == lent.server), "not the server it was for");
                assert!(!request.tried.contains(&lent.server), "tried before");
                self.loans.push(lent);
            }
            Checkout::Queued(waiter) => self.waiters.push(waiter),
            Checkout::Refused(_) => {}
        }
    }

    fn pick_up(&mut self, waiter: Key) {
        match self.world.pick_up(waiter) {
            PickUp::Lent(lent) => {
                assert!(!lent.carried.broken(), "a dead connection was handed out");
                assert!(lent.carried.takes_more(), "one whose server had said goodbye was");
                self.loans.push(lent);
            }
            PickUp::Waiting => self.waiters.push(waiter),
            PickUp::Refused(_) => {}
        }
    }

    fn end(&mut self, lent: &LentConnection<Wire>) {
        let ending =
            [Ending::Answered, Ending::Answered, Ending::Finished, Ending::Discarded, Ending::CutOff][self.below(5)];
        let before: Vec<Key> = self.queued();
        let exclusive = self.world.core.connections.get(lent.connection).is_some_and(|row| row.exclusive);
        let known = self.world.core.connections.get(lent.connection).is_some();
        self.world.end(lent, ending);
        if ending == Ending::CutOff && known && !exclusive && !lent.carried.broken() {
            self.orphans.push((lent.connection, self.world.now));
        }
        self.check_order(&before, lent.server);
    }

    fn queued(&self) -> Vec<Key> {
        self.world.core.waiters.iter().filter(|(_, waiter)| waiter.is_queued()).map(|(key, _)| key).collect()
    }

    /// PL-32: a waiter that was given this server's connection came before all waiters that could have taken it and
    /// still wait.
    fn check_order(&self, before: &[Key], server: Key) {
        let waiters = &self.world.core.waiters;
        let could = |key: Key| {
            waiters.get(key).is_some_and(|waiter| match waiter.target {
                Some(target) => target == server,
                None => waiter.may_take(server),
            })
        };
        let given = before.iter().filter(|key| {
            waiters.get(**key).is_some_and(|waiter| matches!(waiter.outcome, crate::core::waiting::Outcome::Given(_)))
        });
        let eligible = self.world.core.servers.get(server).is_some_and(|row| row.eligible);
        for given in given {
            let position = waiters.get(*given).unwrap().position;
            let passed = self
                .queued()
                .into_iter()
                .find(|key| could(*key) && eligible && waiters.get(*key).unwrap().position < position);
            assert_eq!(passed, None, "a waiter was overtaken");
        }
    }

    fn breakage(&mut self) {
        let all: Vec<Key> = self.world.core.connections.iter().map(|(key, _)| key).collect();
        if all.is_empty() {
            return;
        }
        let connection = all[self.below(all.len())];
        let goodbye = self.below(2) == 0;
        let wire = &self.world.core.connections.get(connection).unwrap().carried;
        if goodbye { &wire.leaving } else { &wire.broken }.set(true);
        if self.below(2) == 0 {
            let (now, effects) = (self.world.now, &mut self.world.effects);
            if goodbye {
                self.world.core.on_goodbye(connection, now, effects);
            } else {
                self.world.core.died(connection, "reset", now, effects);
            }
            self.world.after();
        }
    }

    fn topology(&mut self) {
        let count = 1 + self.below(5);
        let found: Vec<Server> = (0..count).map(|_| server(1 + self.below(5) as u8)).collect();
        let mut unique: Vec<Server> = Vec::new();
        for one in found {
            if !unique.contains(&one) {
                unique.push(one);
            }
        }
        self.world.discover(&unique);
    }

    fn judge(&mut self) {
        if let Some(server) = self.world.core.ring.first().copied() {
            let judgement =
                [Judgement::Fault, Judgement::Fault, Judgement::Silent, Judgement::Answered(ms(1))][self.below(4)];
            let now = self.world.now;
            for _ in 0..self.below(7) {
                self.world.core.judge(server, judgement, now, &mut self.world.effects);
                self.world.after();
            }
        }
    }

    fn command(&mut self) {
        let now = self.world.now;
        let (core, effects) = (&mut self.world.core, &mut self.world.effects);
        match core.state() {
            State::Inactive => drop(core.activate(effects)),
            State::Disabled => drop(core.enable(effects)),
            State::Draining(_) => drop(core.finish_drain(now, effects)),
            _ => {}
        }
        self.world.after();
        if self.below(10) == 0 {
            let next = [DrainTarget::Inactive, DrainTarget::Disabled][self.below(2)];
            let serve = self.below(2) == 0;
            self.world.core.begin_drain(next, serve, &mut self.world.effects);
            self.world.after();
        }
    }

    /// In the end, when all loans are back and the servers answer, the pool is complete again.
    fn recovers(mut self) {
        for lent in std::mem::take(&mut self.loans) {
            self.world.back(&lent);
        }
        for waiter in std::mem::take(&mut self.waiters) {
            self.world.cancel(waiter);
        }
        for open in std::mem::take(&mut self.pending) {
            self.world.open(&open);
        }
        for _ in 0..3 {
            self.command();
        }
        while self.world.core.state() != State::Active {
            self.command();
        }
        self.world.now = self.world.now.after(Duration::from_secs(120));
        self.world.pass(ms(1));
        self.world.fill();
        let core = &self.world.core;
        assert!(core.open_count() >= core.wanted(), "the pool has shrunk for good");
        let counters = core.counters();
        assert_eq!(counters.checkouts, counters.checkins, "what went out came back");
        assert_eq!((core.usage().1, core.out.len()), (0, 0));
    }
}

#[test]
fn pl_175_any_order_of_events_keeps_the_invariants() {
    for seed in 0..3000 {
        let mut chaos = Chaos::new(seed);
        for _ in 0..300 {
            chaos.step();
        }
        chaos.recovers();
    }
}

/// PL-76
#[test]
fn pl_76_the_same_seed_gives_the_same_effects() {
    let run = |seed| {
        let mut chaos = Chaos::new(seed);
        (0..500).for_each(|_| chaos.step());
        format!("{:?} {:?}", chaos.world.core.counters(), chaos.world.core.ring)
    };
    for seed in 0..20 {
        assert_eq!(run(seed), run(seed));
    }
}
