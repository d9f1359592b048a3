//! What all nodes share: time, random numbers, the store's rows and its clock, and which nodes are unreachable.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use honeyflow_hive::{
    NodeId, Reply, Request,
    contract::{
        QUEEN,
        limit::{self as ledger, Rule},
    },
    limit::{Definition, Terms, service::change::RESERVED_MS},
};
use honeyflow_hive_memory::Rows;
use honeyflow_invariant::Breach;
use honeyflow_runtime::{Clock, Moment};
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    history::{Excuse, History},
    plan::{BOTH, BOTH_QUOTA, CALENDAR, CALENDAR_QUOTA, EXACT, EXACT_QUOTA, MILLI, POOL, Plan, SLOTS, SLOTS_MAX},
};
use crate::random::Random;

/// Four seconds before the start of an hour, so that every run contains one.
const BASE_MS: u64 = 1_000 * 3_600_000 - 4_000;

#[derive(Clone)]
pub struct World {
    origin: Instant,
    inner: Arc<Mutex<Inner>>,
}

pub struct Inner {
    pub plan: Plan,
    pub random: Random,
    pub rows: Rows,
    /// How far the store's clock is ahead of the simulated time.
    pub ahead_ms: i64,
    pub away_until_ns: u64,
    pub cut_until_ns: Vec<u64>,
    pub deaf_until_ns: Vec<u64>,
    /// Whether faults are over.
    pub healed: bool,
    /// When the store last received a heartbeat of each member.
    pub members: BTreeMap<NodeId, u64>,
    pub history: History,
    ids: u128,
}

impl World {
    pub fn new(plan: &Plan) -> World {
        let inner = Inner {
            random: Random::new(plan.seed),
            rows: Rows::default(),
            ahead_ms: 0,
            away_until_ns: 0,
            cut_until_ns: vec![0; plan.nodes],
            deaf_until_ns: vec![0; plan.nodes],
            healed: false,
            members: BTreeMap::new(),
            history: History::default(),
            ids: 0,
            plan: plan.clone(),
        };
        World { origin: Instant::now(), inner: Arc::new(Mutex::new(inner)) }
    }

    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn at(&self, ns: u64) -> Instant {
        self.origin + Duration::from_nanos(ns)
    }

    pub fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The clock that never stops.
impl Clock for World {
    fn now(&self) -> Moment {
        Moment(self.now_ns() / 1000)
    }
}

impl Inner {
    pub fn hive_ms(&self, now_ns: u64) -> u64 {
        (BASE_MS + now_ns / MILLI).saturating_add_signed(self.ahead_ms)
    }

    pub fn new_id(&mut self) -> NodeId {
        self.ids += 1;
        NodeId(Uuid::from_u128(self.ids))
    }

    /// Steps the store's clock. It determines the definitions in force before and after the step.
    pub fn step_clock(&mut self, by_ms: i64, now_ns: u64) {
        self.look_at_laws(now_ns);
        self.ahead_ms += by_ms;
        self.look_at_laws(now_ns);
        self.history.went_back |= by_ms < 0;
        if let Ok(by_ms @ 1..) = u64::try_from(by_ms) {
            self.history.excuses.push(Excuse::Ahead { at_ns: now_ns, by_ms });
        }
    }

    /// Loses every row, as a store in memory may. Leases without a view show afterwards that rows were lost.
    pub fn forget(&mut self, now_ns: u64) {
        self.look_at_laws(now_ns);
        self.rows.wipe();
        let hive_ms = self.hive_ms(now_ns);
        drop(self.rows.apply(hive_ms, Request::Look { leases: vec![QUEEN.into()] }));
        self.members.clear();
        self.history.slots.clear();
        self.history.laws.values_mut().for_each(|law| law.forget(now_ns));
        self.history.excuses.push(Excuse::Forgot { at_ns: now_ns });
        self.history.counts.forgotten += 1;
    }

    /// Removes members that were silent for their time to live, with what they held.
    pub fn bury(&mut self, now_ns: u64) {
        let ttl_ns = self.plan.ttl_ms * MILLI;
        let dead: Vec<NodeId> =
            self.members.iter().filter(|(_, heard_ns)| **heard_ns + ttl_ns <= now_ns).map(|(id, _)| *id).collect();
        for node in dead {
            drop(self.apply(Request::Leave { node }, now_ns));
            self.history.slots.remove(&node);
            self.history.counts.buried += 1;
        }
    }

    /// Sets the pool's limit, as an operator does.
    pub fn set(&mut self, rate: u64, burst: u64, now_ns: u64) {
        let told = Terms::from_definition(&definitions(&self.plan)[0]).expect("terms");
        let permits = (told.rate.permits * rate / 100).max(1);
        let rule = Rule::rate(permits, told.rate.period_ms, (told.burst * burst / 100).max(1));
        let asked = Request::Limit(ledger::Request::Limits);
        let Ok(Reply::Limit(ledger::Reply::Limits { limits, .. })) = self.apply(asked, now_ns) else { return };
        let Some(known) = limits.iter().find(|limit| &*limit.name == POOL) else { return };
        let was = Some(known.next.unwrap_or(known.now).version);
        let set = ledger::Request::Set { limit: POOL.into(), was, rule, after_ms: RESERVED_MS };
        if let Ok(Reply::Limit(ledger::Reply::Set { .. })) = self.apply(Request::Limit(set), now_ns) {
            self.history.counts.changed += 1;
        }
    }

    /// HV-68: all members together never hold more slots than there are.
    pub fn lend(&mut self, id: NodeId, slots: u64) {
        if !self.members.contains_key(&id) {
            return;
        }
        *self.history.slots.entry(id).or_default() += slots;
        self.history.counts.slots += slots;
        let lent: u64 = self.history.slots.values().sum();
        if lent > SLOTS_MAX {
            let what = format!("{SLOTS}: {lent} of {SLOTS_MAX} are in use: {:?}", self.history.slots);
            self.history.breaches.push(Breach::new("I18", what));
        }
    }

    pub fn returned(&mut self, id: NodeId, slots: u64) {
        if let Some(lent) = self.history.slots.get_mut(&id) {
            *lent = lent.saturating_sub(slots);
        }
    }

    pub fn look_at_laws(&mut self, now_ns: u64) {
        let hive_ms = self.hive_ms(now_ns);
        self.history.laws.values_mut().for_each(|law| law.look(now_ns, hive_ms));
    }
}

/// The definitions that every process is configured with.
pub fn definitions(plan: &Plan) -> Vec<Definition> {
    let parse = |name: &str, quota: &str| Definition::parse(name, quota).expect("a quota");
    vec![
        parse(POOL, plan.pool.1),
        parse(EXACT, EXACT_QUOTA).exact(),
        parse(CALENDAR, CALENDAR_QUOTA),
        Definition::slots(SLOTS, SLOTS_MAX),
        parse(BOTH[0], BOTH_QUOTA).exact(),
        parse(BOTH[1], BOTH_QUOTA).exact(),
    ]
}
