//! What a seed draws: the number of nodes, the quality of the network, and the faults.

use crate::random::Random;

pub const MILLI: u64 = 1_000_000;
pub const SECOND: u64 = 1_000 * MILLI;

/// The limits, one of each kind. Only [`Job::All`](super::job::Job::All) takes from [`BOTH`].
pub const POOL: &str = "api";
pub const EXACT: &str = "few";
pub const CALENDAR: &str = "quota";
pub const SLOTS: &str = "workers";
pub const BOTH: [&str; 2] = ["left", "right"];

pub const EXACT_QUOTA: &str = "40/s burst 12";
pub const CALENDAR_QUOTA: &str = "30/h calendar";
pub const BOTH_QUOTA: &str = "6/s burst 5";
pub const SLOTS_MAX: u64 = 6;
/// The number of nodes to assume while no count is known.
pub const EXPECTED_NODES: u64 = 16;

/// Pools whose batches live for 0.1 s, for 0.5 s, and for 30 s.
const POOLS: [(u64, &str); 4] =
    [(300, "300/s"), (400, "400/s burst 400"), (20, "1200/min burst 1200"), (600, "600/s burst 120")];

/// New rates and bursts, in per cent of the first ones.
const CHANGES: [(u64, u64); 6] = [(5, 5), (30, 30), (50, 150), (100, 30), (150, 30), (150, 150)];

/// One seed in this many, from this number on, changes the limit while the next second is reserved.
const LOWERED_EVERY: u64 = 16;
const LOWERED_FIRST: u64 = 5;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Fault {
    Crash {
        machine: usize,
        back_after_ms: u64,
    },
    /// The machine runs nothing; its clock continues.
    Pause {
        machine: usize,
        ms: u64,
    },
    /// The machine runs nothing, and its processor's clock stops.
    Sleep {
        machine: usize,
        ms: u64,
    },
    /// Neither requests nor answers pass.
    Cut {
        machine: usize,
        ms: u64,
    },
    /// Requests pass, answers do not.
    Deaf {
        machine: usize,
        ms: u64,
    },
    /// The store is unreachable for all nodes.
    Away {
        ms: u64,
    },
    /// The store comes back empty.
    Forgets,
    /// The store's clock steps.
    Step {
        ms: i64,
    },
    /// The operator sets the pool's limit: rate and burst in per cent of the first definition.
    Set {
        rate: u64,
        burst: u64,
    },
}

#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    pub seed: u64,
    pub nodes: usize,
    pub safety_ms: u64,
    pub heartbeat_ms: u64,
    pub ttl_ms: u64,
    /// The latency in one direction, least and most.
    pub trip_ms: (u64, u64),
    /// Lost messages per mille, of requests and of answers each.
    pub lost: u64,
    pub late: u64,
    pub repeated: u64,
    pub broken: u64,
    /// The demand, in per cent of the pool's limit.
    pub demand: u64,
    /// Every other second there is no request for a while, and then all of them at once.
    pub lulls: bool,
    /// The rate per second, and the limit as text.
    pub pool: (u64, &'static str),
    pub faults: Vec<(u64, Fault)>,
}

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        let mut random = Random::new(seed ^ 0x11A1_7500_0000_0000);
        let nodes = random.between(2, 5) as usize;
        let safety_ms = random.between(7_000, 12_000);
        let heartbeat_ms = *random.pick(&[500, 1_000]);
        let quiet = random.one_in(4);
        let mut chance = |most: u64| if quiet { 0 } else { random.below(most) };
        let (lost, late, repeated, broken) = (chance(40), chance(40), chance(40), chance(20));
        let fastest = random.between(1, 4);
        let mut plan = Plan {
            seed,
            nodes,
            safety_ms,
            heartbeat_ms,
            ttl_ms: 3 * heartbeat_ms,
            trip_ms: (fastest, fastest + random.below(6)),
            lost,
            late,
            repeated,
            broken,
            demand: random.between(60, 220),
            lulls: random.one_in(3),
            pool: *random.pick(&POOLS),
            faults: Vec::new(),
        };
        // A seed has few kinds of faults, so that each also occurs alone.
        let kinds: Vec<u64> = (0..random.between(1, 3)).map(|_| random.below(9)).collect();
        for _ in 0..random.between(2, 7) {
            let at_ms = random.between(500, safety_ms - 500);
            let kind = *random.pick(&kinds);
            let fault = plan.fault(kind, &mut random);
            plan.faults.push((at_ms, fault));
        }
        if seed % LOWERED_EVERY == LOWERED_FIRST {
            plan.lower_early(&mut random);
        }
        plan.faults.sort_by_key(|(at_ms, _)| *at_ms);
        plan
    }

    /// All nodes have read a lower limit when the store's clock goes back: by their clocks it is in force already,
    /// while the store still gives and reserves by the previous one.
    fn lower_early(&mut self, random: &mut Random) {
        (self.pool, self.demand, self.lulls) = (POOLS[1], random.between(180, 220), false);
        (self.nodes, self.heartbeat_ms, self.ttl_ms) = (5, 500, 1_500);
        // The limit comes into force late in a second by the store's clock, and early in it by the nodes' clocks: all
        // nodes reserve in between.
        let at_ms = random.between(2, 3) * 1_000 + random.between(800, 950);
        let back_ms = random.between(600, 800).cast_signed();
        let then_ms = at_ms + random.between(700, 900);
        self.faults = vec![(at_ms, Fault::Set { rate: 10, burst: 20 }), (then_ms, Fault::Step { ms: -back_ms })];
    }

    fn fault(&self, kind: u64, random: &mut Random) -> Fault {
        let machine = random.below(self.nodes as u64) as usize;
        let mut ms = |low: u64, high: u64| random.between(low, high);
        match kind {
            0 => Fault::Crash { machine, back_after_ms: ms(0, 3_000) },
            1 => Fault::Pause { machine, ms: ms(20, 2_500) },
            2 => Fault::Sleep { machine, ms: ms(100, 4_000) },
            3 => Fault::Cut { machine, ms: ms(50, 4_000) },
            4 => Fault::Deaf { machine, ms: ms(50, 4_000) },
            5 => Fault::Away { ms: ms(50, 4_000) },
            6 => Fault::Forgets,
            7 => {
                let ms = ms(1, 3_000).cast_signed();
                Fault::Step { ms: if random.one_in(2) { -ms } else { ms } }
            }
            _ => {
                let (rate, burst) = *random.pick(&CHANGES);
                Fault::Set { rate, burst }
            }
        }
    }
}
