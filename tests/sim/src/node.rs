//! One incarnation: the shipped member and core, and workers that come and go. It has a clock of its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use honeyflow_engine::core::{
    Core, WorkerId,
    plan::{Plan, SourceId},
};
use honeyflow_event::Name;
use honeyflow_hive::{Member, NodeId, member};
use honeyflow_runtime::Moment;

use crate::{clock::NodeClock, options::Options};

pub struct Incarnation {
    /// Counts all incarnations of all nodes.
    pub number: u64,
    /// Which machine.
    pub node: usize,
    /// By store: each database has its own hive.
    pub members: Vec<Member>,
    identities: u64,
    pub core: Core,
    pub life: Life,
    /// Nothing is heard or sent until then.
    pub paused_until: u64,
    /// It is suspended for so long right before its next fenced write goes out.
    pub pauses_before_write: Option<u64>,
    /// The database cannot be reached until then; targets can.
    pub cut_off_until: u64,
    pub tick_at: u64,
    pub workers: BTreeMap<WorkerId, Worker>,
    pub next_worker: WorkerId,
    clock: NodeClock,
    /// Shards that it believes to hold.
    pub leases: BTreeSet<Name>,
    pub left: usize,
    /// By source: when it last read what others had left, as the store's journal counts.
    pub recovered_at: BTreeMap<SourceId, u64>,
    /// Inputs of its core.
    pub heard: u64,
    /// Workflows that it was told to pause.
    held: BTreeSet<Name>,
    /// Granted, and neither used nor given back.
    pub permits: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Life {
    Running,
    Draining,
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Worker {
    /// The next batch it gets is never answered.
    pub hangs: bool,
}

impl Incarnation {
    pub fn new(options: &Options, plan: Arc<Plan>, node: usize, number: u64, now: u64) -> Incarnation {
        let member = |store: u16| {
            let mut config = member::Config::new(format!("node-{node}"), "{}");
            config.time_to_live = Duration::from_millis(options.ttl_ms);
            config.heartbeat = config.time_to_live / 3;
            config.seed = options.seed ^ (number * 2 + u64::from(store)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            // Where the leases of a source are all there is to a hive nobody stands for queen.
            config.stands = options.seed.is_multiple_of(3);
            Member::new(config)
        };
        let members = (0..options.stores).map(member).collect();
        let mut core = Core::new(plan, options.seed ^ number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        core.note_facts();
        Incarnation {
            number,
            node,
            members,
            identities: 0,
            core,
            life: Life::Running,
            paused_until: 0,
            pauses_before_write: None,
            cut_off_until: 0,
            tick_at: u64::MAX,
            workers: BTreeMap::new(),
            next_worker: 0,
            clock: NodeClock::new(now, options.drift[node]),
            leases: BTreeSet::new(),
            left: 0,
            recovered_at: BTreeMap::new(),
            heard: 0,
            permits: 0,
            held: BTreeSet::new(),
        }
    }

    pub fn hold(&mut self, workflow: &Name, paused: bool) {
        if paused {
            self.held.insert(workflow.clone())
        } else {
            self.held.remove(workflow)
        };
    }

    pub fn holds(&self, workflow: &Name) -> bool {
        self.held.contains(workflow)
    }

    /// A fresh one each time.
    pub fn identity(&mut self, seed: u64) -> NodeId {
        self.identities += 1;
        let place = u128::from(self.number) << 16 | u128::from(self.identities);
        NodeId(uuid::Uuid::from_u128((u128::from(seed) << 64) | place))
    }

    pub fn is_alive(&self) -> bool {
        self.life != Life::Dead
    }

    /// The world's time on this node's clock.
    pub fn local(&self, now: u64) -> Moment {
        self.clock.local(now)
    }

    /// The first moment of the world at which this node's clock shows at least that.
    pub fn world(&self, local: Moment) -> u64 {
        self.clock.world(local)
    }

    pub fn wake_at(&self) -> u64 {
        let members = self.members.iter().map(Member::wake_at).min().unwrap_or(Moment::FAR);
        self.world(self.core.wake_at().min(members))
    }
}
