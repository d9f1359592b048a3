//! One process: the shipped member, with its own clock.

use std::{collections::BTreeMap, time::Duration};

use honeyflow_event::Name;
use honeyflow_hive::{
    Member, NodeId, Term,
    member::{Config, Engaged},
};
use honeyflow_invariant::hive::TermInterval;
use honeyflow_runtime::{Failure, Moment};
use uuid::Uuid;

use super::Options;
use crate::clock::NodeClock;

pub struct Node {
    pub machine: usize,
    pub member: Member,
    pub alive: bool,
    /// Until this time it neither receives nor does anything.
    pub paused_until: u64,
    /// Until this time nothing that it sends arrives.
    pub cut_until: u64,
    /// Until this time its requests are executed, and it receives no answers.
    pub deaf_until: u64,
    pub tick_at: u64,
    /// The terms, each with the time at which it was granted.
    pub terms: BTreeMap<Name, (Term, u64)>,
    /// Until when it has trust, in the world's time.
    pub trusted_until: u64,
    pub engaged: Option<Engaged>,
    /// Until when it has given up the duty, on its own clock.
    pub sits_out_until: Moment,
    /// The number of nodes in the last view that it received.
    pub knows: usize,
    /// The queen in that view.
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

    /// Makes a new identity.
    pub fn identity(&mut self, seed: u64) -> NodeId {
        self.identities += 1;
        let place = (self.number as u128) << 16 | u128::from(self.identities);
        NodeId(Uuid::from_u128((u128::from(seed) << 64) | place))
    }

    /// Half of the machines have traffic.
    pub fn is_used(&self) -> bool {
        self.machine.is_multiple_of(2)
    }

    /// Converts the world's time to this node's clock.
    pub fn local(&self, now: u64) -> Moment {
        self.clock.local(now)
    }

    /// The first moment of the world at which this node's clock shows at least `local`.
    pub fn world(&self, local: Moment) -> u64 {
        self.clock.world(local)
    }

    /// Records a term that was valid until now, or until the node's trust ended.
    pub fn note_end(&self, (term, from): (Term, u64), now: u64, reigns: &mut Vec<TermInterval>) {
        let until = self.trusted_until.min(now);
        let (lease, epoch) = (term.lease().to_string(), term.epoch());
        reigns.push(TermInterval { lease, epoch, holder: self.number.to_string(), from, until });
    }
}
