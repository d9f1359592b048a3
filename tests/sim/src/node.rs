//! One incarnation: the shipped member and core, and workers that come and go. It has its own clock.

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
    /// The machine it runs on.
    pub node: usize,
    /// The members, by store: each database has its own hive.
    pub members: Vec<Member>,
    identities: u64,
    pub core: Core,
    pub life: LifeState,
    /// Until this time it neither receives nor sends.
    pub paused_until: u64,
    /// How long it will be paused right before its next fenced write.
    pub pauses_before_write: Option<u64>,
    /// Until this time it cannot reach the database; it can reach targets.
    pub cut_off_until: u64,
    pub tick_at: u64,
    pub workers: BTreeMap<WorkerId, Worker>,
    pub next_worker: WorkerId,
    clock: NodeClock,
    /// The shards that it believes it holds.
    pub leases: BTreeSet<Name>,
    pub left: usize,
    /// When it last recovered the runs of earlier owners, by source and as the store's journal counts.
    pub recovered_at: BTreeMap<SourceId, u64>,
    /// The number of inputs that its core has received.
    pub heard: u64,
    /// Workflows that it was asked to pause.
    held: BTreeSet<Name>,
    /// Permits that were granted and neither used nor given back.
    pub permits: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LifeState {
    Running,
    Draining,
    Dead,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Worker {
    /// Whether it never answers its next batch.
    pub hangs: bool,
}

impl Incarnation {
    pub fn new(options: &Options, plan: Arc<Plan>, node: usize, number: u64, now: u64) -> Incarnation {
        let member = |store: u16| {
            let mut config = member::Config::new(format!("node-{node}"), "{}");
            config.time_to_live = Duration::from_millis(options.ttl_ms);
            config.heartbeat = config.time_to_live / 3;
            config.seed = options.seed ^ (number * 2 + u64::from(store)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            // A third of the seeds have a queen; in the others the hive consists only of the leases of its sources.
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
            life: LifeState::Running,
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

    /// Makes a new identity.
    pub fn identity(&mut self, seed: u64) -> NodeId {
        self.identities += 1;
        let place = u128::from(self.number) << 16 | u128::from(self.identities);
        NodeId(uuid::Uuid::from_u128((u128::from(seed) << 64) | place))
    }

    pub fn is_alive(&self) -> bool {
        self.life != LifeState::Dead
    }

    /// Converts the world's time to this node's clock.
    pub fn local(&self, now: u64) -> Moment {
        self.clock.local(now)
    }

    /// The first moment of the world at which this node's clock shows at least `local`.
    pub fn world(&self, local: Moment) -> u64 {
        self.clock.world(local)
    }

    pub fn wake_at(&self) -> u64 {
        let members = self.members.iter().map(Member::wake_at).min().unwrap_or(Moment::FAR);
        self.world(self.core.wake_at().min(members))
    }
}
