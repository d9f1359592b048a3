//! One of the three nodes: the shipped member, with its own clock.

use std::{sync::Arc, time::Duration};

use honeyflow_hive::{
    Fence, Member, NodeId, Term,
    member::{Config, Effect, Input},
};
use honeyflow_runtime::Moment;
use uuid::Uuid;

use crate::hive::{HEARTBEAT, TTL};

#[derive(Clone, Debug)]
pub struct Node {
    /// Futures share it until it changes in one of them.
    member: Arc<Member>,
    pub alive: bool,
    pub paused_until: u64,
    pub ticks_at: u64,
    /// Fences of terms that were alive before the node was paused. It writes under them when it wakes.
    pub in_hand: Vec<Fence>,
    number: usize,
    identities: u64,
    drift: i64,
}

impl Node {
    pub fn new(number: usize, drift: i64) -> Node {
        let config = Config {
            heartbeat: Duration::from_micros(HEARTBEAT),
            time_to_live: Duration::from_micros(TTL),
            seed: (number as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93),
            ..Config::new(format!("node-{number}"), "{}")
        };
        Node {
            member: Arc::new(Member::new(config)),
            alive: true,
            paused_until: 0,
            ticks_at: u64::MAX,
            in_hand: Vec::new(),
            number,
            identities: 0,
            drift,
        }
    }

    pub fn id(&self) -> Option<NodeId> {
        self.member.node()
    }

    pub fn fresh_identity(&mut self) -> NodeId {
        self.identities += 1;
        NodeId(Uuid::from_u128((self.number as u128 + 1) << 64 | u128::from(self.identities)))
    }

    pub fn is_up(&self, now: u64) -> bool {
        self.alive && self.paused_until <= now
    }

    pub fn deliver(&mut self, input: Input, now: u64, effects: &mut Vec<Effect>) {
        let local = self.local(now);
        Arc::make_mut(&mut self.member).step(input, local, effects);
    }

    pub fn wakes_at(&self) -> u64 {
        self.world(self.member.wake_at())
    }

    /// The fences of the terms that are alive by the node's own clock, whether it is paused or not.
    pub fn fences(&self, now: u64) -> impl Iterator<Item = Fence> + '_ {
        let local = self.local(now);
        // The term is only read, never ended, because other futures share it.
        let lives = move |term: &&Term| self.alive && local < term.until();
        self.member.terms().filter(lives).filter_map(move |term| term.fence_at(local))
    }

    pub fn local(&self, now: u64) -> Moment {
        let passed = i128::from(now);
        Moment(u64::try_from(passed + passed * i128::from(self.drift) / 1000 + 1_000_000).unwrap_or(0))
    }

    /// The first moment of simulated time at which the node's clock shows at least `local`.
    pub fn world(&self, local: Moment) -> u64 {
        if local == Moment::FAR {
            return u64::MAX;
        }
        let passed = i128::from(local.0) - 1_000_000;
        u64::try_from((passed * 1000 / i128::from(1000 + self.drift) + 1).max(0)).unwrap_or(u64::MAX)
    }
}
