//! What is done next, decided without touching anything: `advance(input, now) → effects`.
//!
//! The three masters are its parts. The *poller master* ([`poll`], [`intake`]) asks for events only where there is
//! room and remembers which rows are in flight. The *workflow master* ([`run`], [`key`], [`settle`]) owns the runs: it
//! alone says that one is finished. The *worker master* ([`ready`], [`dispatch`], [`gate`], [`outcome`]) alone says who
//! holds what; an answer that does not name a live batch changes nothing.
//!
//! | what happened        | what follows                                                              |
//! |----------------------|---------------------------------------------------------------------------|
//! | lease granted        | recover failures and checkpoints, then poll                                |
//! | rows polled          | obligations per (entity, key, workflow); a free key starts its run         |
//! | worker has room      | a batch of one step, by priority; the merge window of its runs closes      |
//! | outcomes             | dependents decided, or delayed, charged, parked, by class alone            |
//! | run ended            | rows whose last obligation it was are deleted, fenced; the key stays held   |
//! | write committed      | key free: the next run of the key may start                                |
//! | shard to be left     | no poll, nothing new given out; left once what is held has ended            |
//! | cancel, deadline     | nothing more of the run goes out; parked once its attempts are back, or after a grace |
//! | lease lost           | everything is forgotten; the rows are still in the table                   |

pub mod budget;
pub mod cancel;
pub mod deadline;
pub mod dispatch;
pub mod each;
pub mod evaluate;
pub mod fact;
pub mod gate;
pub mod input;
pub mod intake;
pub mod judge;
pub mod key;
pub mod limit;
pub mod outcome;
pub mod people;
pub mod pin;
pub mod plan;
pub mod poll;
pub mod ready;
pub mod run;
pub mod settle;
pub mod status;
pub mod timer;
pub mod wait;
pub mod why;

use std::{collections::BTreeMap, sync::Arc};

use honeyflow_event::{Epoch, Event, EventId, Name, Stamp, Target};
use honeyflow_hive::{Term, contract::Held};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_store::write::{Charged, Checkpoint, Settled};

pub use self::input::{BatchId, Effect, Evaluated, Input, WorkerId, WriteId};
use self::{
    budget::Budgets,
    deadline::Deadlines,
    dispatch::Dispatch,
    fact::{Fact, Facts},
    gate::Gates,
    judge::Judging,
    key::Keys,
    limit::Limited,
    pin::Stranded,
    plan::{Plan, SourceId},
    poll::PollState,
    ready::{Ready, ReadyQueues},
    run::RunState,
    settle::Settling,
    status::Counters,
    timer::Timers,
    wait::Waits,
};
use crate::slots::{Slot, Slots};

/// A row in flight.
pub(crate) struct Row {
    pub event: Arc<Event>,
    pub source: SourceId,
    /// Obligations left: one per (entity, key, workflow) it leads to.
    pub owes: u32,
    /// Obligations whose end has not committed: until then the row is in the table, and would be read again.
    pub unsettled: u32,
    /// A workflow wants it.
    pub matched: bool,
    /// Should none want it, it is parked.
    pub park_unmatched: bool,
    /// Workflows whose `when` could not be evaluated for it: their runs fail.
    pub rejected: Vec<(usize, Failure)>,
}

impl Row {
    pub fn is_rejected(&self, workflow: usize) -> bool {
        self.rejected.iter().any(|(of, _)| *of == workflow)
    }
}

/// With so small a part of an epoch's sequence left, the next epoch is asked for: nobody waits for it.
const AHEAD_PART: u32 = 64;

/// What belongs to one source: its lease, its stamps, its rows in flight.
pub(crate) struct SourceState {
    pub term: Option<Term>,
    pub trust_until: Moment,
    /// A new epoch was asked for.
    pub minting: bool,
    /// In good time: what is left of the old one is used meanwhile.
    pub minting_ahead: bool,
    pub sequence: u32,
    pub recovered: bool,
    pub recovering: bool,
    /// Number of the last one: a late answer of an earlier term tells of what others have changed since.
    pub recovery: u64,
    pub known: hashbrown::HashMap<EventId, Slot>,
    /// Rows done while a poll was under way: that poll may still show them.
    pub lingering: hashbrown::HashSet<EventId>,
    /// Rows were read and left in the table because there was no room at all: once there is, they are read again.
    pub crowded: bool,
    pub poll: PollState,
    pub settling: Settling,
    pub charges: BTreeMap<Settled, Vec<Charged>>,
    pub checkpoints: BTreeMap<Settled, Vec<Checkpoint>>,
    /// Runs of versions that nobody here can work by.
    pub stranded: BTreeMap<Settled, Stranded>,
    /// Entity and workflow of rows that are for a workflow alone which is not configured any more.
    pub left: Vec<(Name, Name)>,
    /// Store's clock minus local clock, in milliseconds, as last seen.
    pub store_ahead_ms: i64,
    pub schema_version: Option<i64>,
    /// Another node is to have it.
    pub leaving: bool,
    /// Taken from their queues while no stamp could be had, lest they keep those of other shards waiting.
    pub stalled: Vec<(usize, Ready)>,
}

pub struct Core {
    pub(crate) plan: Arc<Plan>,
    pub(crate) sources: Vec<SourceState>,
    pub(crate) rows: Slots<Row>,
    pub(crate) keys: Keys,
    pub(crate) runs: Slots<RunState>,
    pub(crate) ready: ReadyQueues,
    pub(crate) dispatch: Dispatch,
    pub(crate) gates: Gates,
    pub(crate) budgets: Budgets,
    pub(crate) limited: Limited,
    pub(crate) judging: Judging,
    pub(crate) waits: Waits,
    pub(crate) deadlines: Deadlines,
    pub(crate) timers: Timers,
    pub(crate) counters: Counters,
    /// Of the rows in flight.
    pub(crate) payload_bytes: usize,
    pub(crate) facts: Facts,
    pub(crate) draining: bool,
    pub(crate) drained_said: bool,
    pub(crate) random: u64,
    pub(crate) now: Moment,
    /// Reused between inputs.
    pub(crate) scratch_steps: Vec<u16>,
}

impl Core {
    /// `seed` feeds the jitter: the same seed and inputs give the same effects.
    pub fn new(plan: Arc<Plan>, seed: u64) -> Core {
        let sources = plan.sources.iter().map(|_| SourceState::new()).collect();
        let mut core = Core {
            sources,
            rows: Slots::default(),
            keys: Keys::default(),
            runs: Slots::default(),
            ready: ReadyQueues::new(&plan),
            dispatch: Dispatch::default(),
            gates: Gates::new(&plan),
            budgets: Budgets::new(&plan),
            limited: Limited::new(&plan),
            judging: Judging::new(&plan),
            waits: Waits::new(&plan),
            deadlines: Deadlines::default(),
            timers: Timers::default(),
            counters: Counters::default(),
            payload_bytes: 0,
            facts: Facts::default(),
            draining: false,
            drained_said: false,
            random: seed | 1,
            now: Moment::default(),
            scratch_steps: Vec::new(),
            plan,
        };
        core.counters.size(&core.plan);
        core
    }

    pub fn advance(&mut self, input: Input, now: Moment, effects: &mut Vec<Effect>) {
        self.now = self.now.max(now);
        match input {
            Input::Tick => {}
            Input::Granted(term) => self.granted(term, effects),
            Input::Lost { lease } => self.lost(&lease),
            Input::Leave(held) => self.leave_shard(&held),
            Input::Trust { source, until } => self.trusted(source, until),
            Input::Recovered { source, recovery, result } => self.recovered(source, recovery, result, effects),
            Input::Polled { source, poll, result } => self.polled(source, poll, result, effects),
            Input::Hello { worker, room } => self.dispatch.hello(worker, &room, self.plan.kinds.len()),
            Input::WorkerLost { worker } => self.worker_lost(worker),
            Input::Unanswered { batch } => self.unanswered(batch),
            Input::TimedOut { batch } => self.timed_out(batch),
            Input::Outcomes { batch, outcomes } => self.outcomes(batch, outcomes, effects),
            Input::Evaluated { batch, results } => self.evaluated(batch, results, effects),
            Input::Judged { judge, results } => self.judged(judge, results, effects),
            Input::Found { source, look, result } => self.found(source, look, result),
            Input::Written { write, result } => self.written(write, result, effects),
            Input::Pause { workflow, paused } => self.gates.pause(&workflow, paused),
            Input::Cancel { workflow, entity, key } => self.cancel(&workflow, &entity, &key, effects),
            Input::Permitted { limit, take, permits, wait } => self.permitted(&limit, take, permits, wait),
            Input::Drain => self.draining = true,
        }
        self.settle_down(effects);
    }

    /// When the next `Tick` is due, if nothing else happens.
    pub fn wake_at(&self) -> Moment {
        let mut at = self.timers.next().min(self.waits.next_deadline()).min(self.deadlines.next());
        if !self.draining {
            for source in &self.sources {
                at = at.min(source.poll.wake_at(source));
            }
        }
        for (number, source) in self.sources.iter().enumerate() {
            // Without trust, and while a new epoch is awaited, nothing is written: what ends that is an input.
            if !source.awaits_epoch() && self.is_trusted(id(number)) {
                at = at.min(source.settling.wake_at());
            }
        }
        at
    }

    /// After every input: whatever has become possible.
    fn settle_down(&mut self, effects: &mut Vec<Effect>) {
        self.fire_timers(effects);
        self.look(effects);
        self.ask(effects);
        self.dispatch_all(effects);
        self.see_to_permits(effects);
        // Where room is short, the first to ask would always be the one to get it.
        let (count, first) = (self.sources.len(), self.counters.polls);
        for turn in 0..count {
            let source = (turn + usize::try_from(first).unwrap_or(0)) % count;
            self.flush_writes(source, effects);
            self.poll_if_due(source, effects);
            self.left_if_quiet(source, effects);
        }
        if self.draining && !self.drained_said && self.is_quiet() {
            self.drained_said = true;
            effects.push(Effect::Drained);
        }
    }

    /// Nothing is held by a worker, and nothing is being written.
    fn is_quiet(&self) -> bool {
        self.dispatch.batches.is_empty() && self.sources.iter().all(|source| source.settling.is_quiet())
    }

    fn leave_shard(&mut self, Held { lease, epoch }: &Held) {
        let Some(source) = self.plan.sources.iter().position(|source| source.lease == *lease) else { return };
        let state = &mut self.sources[source];
        state.leaving |= state.term.as_ref().is_some_and(|term| term.epoch() == *epoch);
    }

    fn left_if_quiet(&mut self, source: usize, effects: &mut Vec<Effect>) {
        if !self.sources[source].leaving || !self.sources[source].settling.is_quiet() {
            return;
        }
        let Some(epoch) = self.sources[source].term.as_ref().map(Term::epoch) else { return };
        let is_here = |slot: Slot| self.runs.get(slot).is_some_and(|run| run.source as usize == source);
        if self.dispatch.batches.values().flat_map(|held| &held.items).any(|item| is_here(item.run)) {
            return;
        }
        self.forget_source(source);
        effects.push(Effect::Left(Held { lease: self.plan.sources[source].lease.clone(), epoch }));
    }

    fn trusted(&mut self, source: SourceId, until: Moment) {
        self.sources[source as usize].trust_until = until;
        self.unstall(source as usize);
    }

    /// A stamp can be had again, perhaps.
    fn unstall(&mut self, source: usize) {
        for (queue, ready) in std::mem::take(&mut self.sources[source].stalled).into_iter().rev() {
            if let Some(run) = self.runs.get(ready.run) {
                self.ready.push(queue, run.level, ready, true);
            }
        }
    }

    fn granted(&mut self, term: Term, effects: &mut Vec<Effect>) {
        let Some(source) = self.plan.sources.iter().position(|source| source.lease == *term.lease()) else { return };
        let state = &mut self.sources[source];
        let minted = state.minting && state.recovered;
        state.minting = false;
        state.minting_ahead = false;
        state.sequence = 0;
        // The term before was to be left, this one is not.
        state.leaving = false;
        state.term = Some(term);
        if minted {
            state.settling.retry_at = self.now;
            self.unstall(source);
        } else {
            state.recovering = true;
            state.recovery += 1;
            let shard = self.plan.sources[source].shard;
            effects.push(Effect::Recover { source: id(source), shard, recovery: state.recovery });
        }
    }

    fn lost(&mut self, lease: &str) {
        let Some(source) = self.plan.sources.iter().position(|source| &*source.lease == lease) else { return };
        self.counters.leases_lost += 1;
        self.forget_source(source);
    }

    fn recovered(
        &mut self,
        source: SourceId,
        recovery: u64,
        result: Result<honeyflow_store::Recovered, Failure>,
        effects: &mut Vec<Effect>,
    ) {
        let state = &mut self.sources[source as usize];
        if !state.recovering || state.recovery != recovery {
            return;
        }
        let Ok(found) = result else {
            let shard = self.plan.sources[source as usize].shard;
            effects.push(Effect::Recover { source, shard, recovery });
            return;
        };
        state.recovering = false;
        state.recovered = true;
        state.charges.clear();
        for charged in found.failures {
            state.charges.entry(charged.run.clone()).or_default().push(charged);
        }
        state.checkpoints.clear();
        state.stranded.clear();
        self.take_up(source, found.checkpoints, effects);
        for pause in found.paused {
            if pause.noun == "workflow" {
                self.gates.pause(&pause.name, true);
            }
        }
        self.sources[source as usize].poll.begin(self.now);
    }

    /// The lease has gone: no further effect. The rows are still in the table; the next owner finds them.
    fn forget_source(&mut self, source: usize) {
        let gone: Vec<Slot> =
            self.runs.iter().filter(|(_, run)| run.source as usize == source).map(|(slot, _)| slot).collect();
        for slot in gone {
            self.stop_waiting(slot);
            self.forget_deadline(slot);
            if let Some(run) = self.runs.remove(slot) {
                self.counters.forgotten += 1;
                self.counters.closed(&run);
                self.facts.note(|| Fact::Closed { run: run.number });
            }
        }
        let rows: Vec<Slot> =
            self.rows.iter().filter(|(_, row)| row.source as usize == source).map(|(slot, _)| slot).collect();
        for slot in rows {
            if let Some(row) = self.rows.remove(slot) {
                self.payload_bytes -= payload_bytes(&row.event);
            }
        }
        self.keys.forget_source(id(source));
        self.waits.forget_source(id(source));
        let before = &self.sources[source];
        let (trust_until, recovery, poll) = (before.trust_until, before.recovery, PollState::after(&before.poll));
        self.sources[source] = SourceState { trust_until, recovery, poll, ..SourceState::new() };
    }

    pub(crate) fn random(&mut self) -> u64 {
        // xorshift64*: fast, and good enough to spread retries.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// A stamp for a load that begins now; none while the lease is not trusted or a new epoch is awaited.
    pub(crate) fn draw_stamp(&mut self, source: SourceId, effects: &mut Vec<Effect>) -> Option<Stamp> {
        let sequence_max = self.plan.limits.sequence_max;
        let state = &mut self.sources[source as usize];
        let epoch = state.term.as_ref()?.epoch();
        if state.awaits_epoch() {
            return None;
        }
        if state.sequence >= sequence_max {
            if crate::planted::on("PB-5") {
                state.sequence = 0;
            } else {
                state.minting_ahead = false;
                self.mint(source, Epoch(0), effects);
                return None;
            }
        }
        if state.sequence >= sequence_max - sequence_max / AHEAD_PART && !state.minting {
            self.mint(source, Epoch(0), effects);
            self.sources[source as usize].minting_ahead = true;
        }
        let state = &mut self.sources[source as usize];
        state.sequence += 1;
        if crate::planted::on("PB-4") && state.sequence.is_multiple_of(64) {
            state.sequence = 1;
        }
        Some(Stamp::new(epoch, state.sequence))
    }

    pub(crate) fn mint(&mut self, source: SourceId, floor: Epoch, effects: &mut Vec<Effect>) {
        let state = &mut self.sources[source as usize];
        // Whoever asks has found the old one to be of no use.
        state.minting_ahead = false;
        if state.minting || state.term.is_none() {
            return;
        }
        state.minting = true;
        self.counters.minted += 1;
        effects.push(Effect::Mint { source, lease: self.plan.sources[source as usize].lease.clone(), floor });
    }

    pub(crate) fn is_trusted(&self, source: SourceId) -> bool {
        let state = &self.sources[source as usize];
        // The term itself knows first that it has ended; that it was lost may still wait to be heard.
        self.now < state.trust_until && state.term.as_ref().is_some_and(|term| term.lives_at(self.now))
    }
}

/// Whether a row belongs to something that was begun before.
enum Begun {
    Nothing,
    Covers,
    /// Another run of its key comes first.
    WithoutIt,
}

pub(crate) fn payload_bytes(event: &Event) -> usize {
    event.payload.as_ref().map_or(0, |payload| payload.len())
}

pub(crate) fn id(index: usize) -> u16 {
    u16::try_from(index).expect("configurations have fewer than 65,536 of anything")
}

impl SourceState {
    /// Nothing can be stamped before it comes.
    pub fn awaits_epoch(&self) -> bool {
        self.minting && !self.minting_ahead
    }

    /// What an earlier owner has begun for a row's targets and left in its journal.
    fn begun(&self, event: &Event, owed: &[(&Target, u16, usize)], plan: &Plan) -> Begun {
        if self.checkpoints.is_empty() {
            return Begun::Nothing;
        }
        let mut begun = Begun::Nothing;
        for (target, _, workflow) in owed {
            let run = Settled {
                tenant: event.tenant.clone(),
                entity: target.entity.clone(),
                key: target.key.clone(),
                workflow: plan.workflows[*workflow].name.clone(),
            };
            match self.checkpoints.get(&run).and_then(|all| all.first()) {
                Some(first) if first.covers.contains(&event.id) => return Begun::Covers,
                Some(_) => begun = Begun::WithoutIt,
                None => {}
            }
        }
        begun
    }

    fn new() -> SourceState {
        SourceState {
            term: None,
            trust_until: Moment::default(),
            minting: false,
            minting_ahead: false,
            sequence: 0,
            recovered: false,
            recovering: false,
            recovery: 0,
            known: hashbrown::HashMap::new(),
            lingering: hashbrown::HashSet::new(),
            crowded: false,
            poll: PollState::default(),
            settling: Settling::default(),
            charges: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            stranded: BTreeMap::new(),
            left: Vec::new(),
            store_ahead_ms: 0,
            schema_version: None,
            leaving: false,
            stalled: Vec::new(),
        }
    }
}
