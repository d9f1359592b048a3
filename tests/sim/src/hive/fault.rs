//! The faults, and how many of them a seed plans.

use std::time::Duration;

use honeyflow_hive::member::Input;
use honeyflow_invariant::Breach;

use super::{DUTY, Happening, MILLI, Net, Options, SECOND, World};
use crate::random::Random;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A process dies; another one starts on its machine after a while.
    Crash,
    /// A process is paused; its clock continues.
    Pause,
    /// Nothing that the node sends arrives.
    CutOff,
    /// What the node sends arrives; it receives no answers.
    Deaf,
    /// No node reaches the store.
    Outage,
    Step {
        by_ms: i64,
    },
    /// Another server answers, which lacks the last writes.
    FailOver {
        lost_us: u64,
    },
    /// The same server shows an older state.
    Restore {
        lost_us: u64,
    },
    Leave,
    Drain,
    /// The duty fails on one machine until the heal.
    DutyFails,
}

/// The plan of a seed.
#[derive(Clone, Debug)]
pub struct Plan {
    pub options: Options,
    pub faults: Vec<(u64, Fault)>,
    pub safety: u64,
}

impl Plan {
    pub fn draw(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let r = &mut random;
        let nodes = usize::try_from(r.between(2, 6)).unwrap_or(2);
        let ttl_ms = [1_500, 3_000, 6_000][usize::try_from(r.below(3)).unwrap_or(0)];
        let some = |r: &mut Random, most: u64| if r.one_in(2) { 0 } else { r.between(1, most) };
        let options = Options {
            seed,
            nodes,
            shards: u32::try_from(r.between(1, 8)).unwrap_or(1),
            ttl_ms,
            heartbeat_ms: ttl_ms / 3,
            drift: (0..nodes).map(|_| i64::try_from(r.between(0, 98)).unwrap_or(49) - 49).collect(),
            net: Net {
                latency_us: [300, 3_000, 30_000][usize::try_from(r.below(3)).unwrap_or(0)],
                refused: some(r, 30),
                unanswered: some(r, 40),
                slow: some(r, 20),
                doubled: some(r, 20),
                late: some(r, 30),
            },
            stands: !r.one_in(4),
        };
        let safety = 40 * SECOND;
        // After a lost history the clock makes epochs grow, so the clock must not step back in the same seed.
        let steps = r.one_in(3);
        let (fails_over, restores) = (!steps && r.one_in(2), !steps && r.one_in(5));
        let mut faults = Vec::new();
        for _ in 0..r.between(2, 10) {
            let lost_us = r.below(800 * MILLI);
            let fault = match r.below(16) {
                0..=2 => Fault::Crash,
                3..=5 => Fault::Pause,
                6 | 7 => Fault::CutOff,
                8 => Fault::Deaf,
                9 => Fault::Outage,
                10 => Fault::Leave,
                11 => Fault::Drain,
                12 if steps => {
                    let by_ms = i64::try_from(r.between(1_200, 3_600_000)).unwrap_or(0);
                    Fault::Step { by_ms: if r.one_in(2) { by_ms } else { -by_ms } }
                }
                13 if fails_over => Fault::FailOver { lost_us },
                14 if restores => Fault::Restore { lost_us: lost_us * 8 },
                15 => Fault::DutyFails,
                _ => Fault::Pause,
            };
            faults.push((r.between(2 * SECOND, safety - 2 * SECOND), fault));
        }
        Plan { options, faults, safety }
    }
}

impl World {
    fn victim(&mut self) -> Option<usize> {
        let fit = |who: &usize| self.nodes[*who].alive && self.nodes[*who].paused_until <= self.now;
        let found: Vec<usize> = (0..self.nodes.len()).filter(fit).collect();
        // Prefer nodes that hold a lease.
        let holders: Vec<usize> = found.iter().copied().filter(|who| !self.nodes[*who].terms.is_empty()).collect();
        let from = if holders.is_empty() || self.random.one_in(4) { found } else { holders };
        let at = usize::try_from(self.random.below(from.len() as u64)).unwrap_or(0);
        from.get(at).copied()
    }

    pub fn apply_fault(&mut self, fault: Fault) {
        if self.healed_at.is_some() {
            return;
        }
        let ttl = self.options.ttl_ms * MILLI;
        let Some(who) = self.victim() else { return };
        let machine = self.nodes[who].machine;
        let long = self.random.between(ttl / 4, ttl * 3);
        match fault {
            Fault::Crash => {
                self.kill(who);
                self.after(long, Happening::Restarts { machine });
            }
            Fault::Pause => self.nodes[who].paused_until = self.now + long,
            Fault::CutOff => self.nodes[who].cut_until = self.now + long,
            Fault::Deaf => self.nodes[who].deaf_until = self.now + long * 2,
            Fault::Outage => self.down_until = self.now + long,
            Fault::Step { by_ms } => self.step_clock(by_ms),
            Fault::FailOver { lost_us } => self.fail_over(lost_us),
            Fault::Restore { lost_us } => self.restore(lost_us),
            Fault::Leave => {
                self.deliver(who, Input::Leave);
                self.after(long + ttl, Happening::Restarts { machine });
            }
            Fault::Drain => {
                self.deliver(who, Input::Drain);
                self.after(ttl, Happening::Hears { who, input: Input::Leave });
                self.after(ttl * 3, Happening::Restarts { machine });
            }
            Fault::DutyFails if self.failing.is_none() => {
                self.failing = Some(machine);
                self.after(1, Happening::Fails { who });
            }
            Fault::DutyFails => {}
        }
    }

    /// Gives up the duty, as [`honeyflow_hive::Hive::lead`] does after some tries.
    pub(super) fn give_up_duty(&mut self, who: usize) {
        let node = &self.nodes[who];
        let fails = self.healed_at.is_none() && self.failing == Some(node.machine) && node.terms.contains_key(DUTY);
        if !fails || !node.alive || node.paused_until > self.now {
            return;
        }
        let wait = Duration::from_millis(self.options.ttl_ms * 4);
        self.nodes[who].sits_out_until = node.local(self.now).after(wait);
        self.ends(who, &DUTY.into());
        self.deliver(who, Input::SitOut { lease: DUTY.into(), wait });
    }

    /// HV-47: a node that has given up the duty does not get it back before its time.
    pub(super) fn note_duty(&mut self, who: usize, lease: &str) {
        if lease != DUTY {
            return;
        }
        let node = &self.nodes[who];
        if node.local(self.now) < node.sits_out_until {
            let what = format!("node {who} sits out and was given the duty back");
            self.history.breaches.push(Breach::new("HV-47", what));
        }
        if self.failing == Some(node.machine) {
            let wait = self.random.below(SECOND);
            self.after(wait, Happening::Fails { who });
        }
    }

    pub fn step_clock(&mut self, by_ms: i64) {
        self.offset_ms += by_ms;
        self.steps += 1;
    }

    pub fn fail_over(&mut self, lost_us: u64) {
        self.lineages += 1;
        self.lose_recent_writes(lost_us);
        let server = format!("server-{}", self.lineages);
        self.rows.move_to_server(&server);
    }

    pub fn restore(&mut self, lost_us: u64) {
        self.restored = true;
        self.lose_recent_writes(lost_us);
        let wait = self.random.between(SECOND, 4 * SECOND);
        self.after(wait, Happening::Accepts);
    }
}
