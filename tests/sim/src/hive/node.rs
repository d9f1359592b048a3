//! One process: the shipped member, with a clock of its own.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;
use honeyflow_hive::{
    Member, NodeId, Term,
    member::{Config, Engaged},
};
use honeyflow_invariant::hive::Reign;
use honeyflow_runtime::{Failure, Moment};
use uuid::Uuid;

use super::Options;
use crate::clock::NodeClock;

pub struct Node {
    pub machine: usize,
    pub member: Member,
    pub alive: bool,
    /// Neither hears nor does anything until then.
    pub paused_until: u64,
    /// Nothing of it arrives.
    pub cut_until: u64,
    /// What it asks is done, and it never hears of it.
    pub deaf_until: u64,
    pub tick_at: u64,
    /// With when it was granted.
    pub terms: BTreeMap<Name, (Term, u64)>,
    /// As the world counts.
    pub trusted_until: u64,
    pub engaged: Option<Engaged>,
    /// Has given up the duty until then, on its own clock.
    pub sits_out_until: Moment,
    /// How many nodes the last view had that it was shown.
    pub knows: usize,
    /// Who is queen, as that view had it.
    pub queen: Option<NodeId>,
    pub refused: Option<Failure>,
    number: usize,
    identities: u64,
    clock: NodeClock,
}

impl Node {
    pub fn new(options: &Options, machine: usize, number: usize, now: u64) -> Node {
        let config = Config {
            heartbeat: Duration::from_millis(options.heartbeat_ms),
            time_to_live: Duration::from_millis(options.ttl_ms),
            stands: options.stands,
            seed: options.seed ^ (number as u64 + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93),
            ..Config::new(format!("machine-{machine}"), "{}")
        };
        Node {
            machine,
            member: Member::new(config),
            alive: true,
            paused_until: 0,
            cut_until: 0,
            deaf_until: 0,
            tick_at: u64::MAX,
            terms: BTreeMap::new(),
            trusted_until: 0,
            engaged: None,
            sits_out_until: Moment::default(),
            knows: 0,
            queen: None,
            refused: None,
            number,
            identities: 0,
            clock: NodeClock::new(now, options.drift[machine]),
        }
    }

    /// A fresh one each time.
    pub fn identity(&mut self, seed: u64) -> NodeId {
        self.identities += 1;
        let place = (self.number as u128) << 16 | u128::from(self.identities);
        NodeId(Uuid::from_u128((u128::from(seed) << 64) | place))
    }

    /// Half of the machines have traffic.
    pub fn is_used(&self) -> bool {
        self.machine.is_multiple_of(2)
    }

    /// The world's time on this node's clock.
    pub fn local(&self, now: u64) -> Moment {
        self.clock.local(now)
    }

    /// The first moment of the world at which this node's clock shows at least that.
    pub fn world(&self, local: Moment) -> u64 {
        self.clock.world(local)
    }

    /// A term was valid until now, or until nobody trusted it any more.
    pub fn note_end(&self, (term, from): (Term, u64), now: u64, reigns: &mut Vec<Reign>) {
        let until = self.trusted_until.min(now);
        let (lease, epoch) = (term.lease().to_string(), term.epoch());
        reigns.push(Reign { lease, epoch, holder: self.number.to_string(), from, until });
    }
}
