//! The state machine that decides what is done next, without any input or output: `advance(input, now) → effects`.
//!
//! It has three parts. The *poller master* ([`poll`], [`intake`]) asks for events only while there is room, and
//! remembers which rows are in flight. The *workflow master* ([`run`], [`key`], [`settle`]) owns the runs: it alone
//! decides that a run is finished. The *worker master* ([`ready`], [`dispatch`], [`gate`], [`outcome`]) alone decides
//! which worker holds which batch; an answer that does not name a live batch changes nothing.
//!
//! | what happened        | what follows                                                              |
//! |----------------------|---------------------------------------------------------------------------|
//! | lease granted        | recover failures and checkpoints, then poll                                |
//! | rows polled          | one obligation per (entity, key, workflow); a free key starts its run      |
//! | worker has room      | it gets a batch of one step, by priority; its runs merge no further events |
//! | outcomes             | dependents are decided; a failure is delayed, counted or parked, by class alone |
//! | run ended            | a fenced write deletes the rows that owe nothing more; the key stays held  |
//! | write committed      | the key is free: its next run may start                                    |
//! | shard to be left     | no poll, no new batch; the shard is left once its batches and writes have ended |
//! | cancel, deadline     | no further attempt of the run; parked once its attempts are back, or after a grace period |
//! | lease lost           | the shard's state is dropped; its rows are still in the table              |

pub mod cancel;
pub mod deadline;
pub mod dispatch;
pub mod evaluate;
pub mod event_check;
pub mod event_wait;
pub mod fact;
pub mod for_each;
pub mod gate;
pub mod input;
pub mod intake;
pub mod key;
pub mod limit;
pub mod outcome;
pub mod plan;
pub mod poll;
pub mod ready;
pub mod retry_budget;
pub mod run;
pub mod run_view;
pub mod settle;
pub mod share;
pub mod status;
pub mod timer;
pub mod version_pin;
pub mod wait_reason;

use std::{collections::BTreeMap, sync::Arc};

use honeyflow_event::{Changes, Epoch, Event, EventId, EventView, Name, Stamp, Target};
use honeyflow_hive::{Term, contract::HeldLease};
use honeyflow_runtime::{Failure, Moment};
use honeyflow_source::Lead;
use honeyflow_store::write::{Checkpoint, RunKey, StoredFailure};
use smallvec::SmallVec;

pub use self::input::{BatchId, Effect, Evaluation, Input, WorkerId, WriteId};
use self::{
    deadline::Deadlines,
    dispatch::Dispatch,
    event_check::EventChecks,
    event_wait::Waits,
    fact::{Fact, Facts},
    gate::Gates,
    key::Keys,
    limit::LimitPermits,
    plan::{Plan, SourceId},
    poll::PollState,
    ready::{ReadyItem, ReadyQueues},
    retry_budget::Budgets,
    run::RunState,
    settle::Settling,
    status::Counters,
    timer::Timers,
    version_pin::StrandedRun,
};
use crate::slots::{Slot, Slots};

/// A row in flight.
pub(crate) struct Row {
    pub event: Arc<Event>,
    pub source: SourceId,
    /// What the event means for each target; empty if it means the same for all, which the event itself says.
    pub leads: SmallVec<[Lead; 1]>,
    /// Obligations that have not ended: one per (entity, key, workflow) that the row leads to.
    pub owes: u32,
    /// Obligations whose end has not committed. Until it has, the row is in the table and polls return it again.
    pub unsettled: u32,
    /// At least one workflow wants the event, or a signal of it is stored.
    pub matched: bool,
    /// The row is parked if no workflow wants it.
    pub park_unmatched: bool,
    /// Workflows whose `when` could not be evaluated for the event: their runs fail.
    pub rejected: Vec<(usize, Failure)>,
}

impl Row {
    /// Returns what the row changed, from the view of the target.
    pub fn change_for(&self, entity: &str, key: &str) -> Changes {
        let is_target = |lead: &&Lead| *lead.target.entity == *entity && *lead.target.key == *key;
        self.leads.iter().find(is_target).map_or(self.event.change, |lead| lead.change)
    }

    /// Returns the event as the expressions of the target's runs see it.
    pub fn view(&self, target: Target) -> EventView {
        let change = self.change_for(&target.entity, &target.key);
        EventView::new(self.event.clone(), target, change)
    }

    pub fn is_rejected(&self, workflow: usize) -> bool {
        self.rejected.iter().any(|(of, _)| *of == workflow)
    }
}

/// When 1/64 of an epoch's sequence is left, the core asks for the next epoch and goes on with the rest meanwhile.
const AHEAD_PART: u32 = 64;

/// The state of one shard of a source: its lease, its stamps, its rows in flight.
pub(crate) struct SourceState {
    pub term: Option<Term>,
    pub trust_until: Moment,
    /// The core has asked for a new epoch and has no answer yet.
    pub minting: bool,
    /// The core asked early: stamps are drawn from the rest of the old epoch meanwhile.
    pub minting_ahead: bool,
    pub sequence: u32,
    pub recovered: bool,
    pub recovering: bool,
    /// The number of the last recovery. A late answer to an earlier one is ignored: other nodes may have changed the
    /// rows since.
    pub recovery: u64,
    pub in_flight: hashbrown::HashMap<EventId, Slot>,
    /// Rows that were done while a poll was under way: that poll may still return them.
    pub lingering: hashbrown::HashSet<EventId>,
    /// Rows were read and left in the table because there was no room. Once there is, the poller reads them again.
    pub crowded: bool,
    pub poll: PollState,
    pub settling: Settling,
    pub counted_attempts: BTreeMap<RunKey, Vec<StoredFailure>>,
    pub checkpoints: BTreeMap<RunKey, Vec<Checkpoint>>,
    /// Runs of definition versions that this node cannot execute.
    pub stranded: BTreeMap<RunKey, StrandedRun>,
    /// Entity and workflow of rows that are addressed to one workflow which is no longer configured.
    pub unconfigured: Vec<(Name, Name)>,
    /// The store's clock minus the local clock, in milliseconds, as of the last poll.
    pub store_ahead_ms: i64,
    pub schema_version: Option<i64>,
    /// The shard is to be transferred to another node: nothing new is begun.
    pub leaving: bool,
    /// Entries taken from their queues while the shard can draw no stamp, so that they do not block those of other
    /// shards.
    pub stalled: Vec<(usize, ReadyItem)>,
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
    pub(crate) limits: LimitPermits,
    pub(crate) event_checks: EventChecks,
    pub(crate) waits: Waits,
    pub(crate) deadlines: Deadlines,
    pub(crate) timers: Timers,
    pub(crate) counters: Counters,
    /// The payload bytes of all rows in flight.
    pub(crate) payload_bytes: usize,
    pub(crate) facts: Facts,
    pub(crate) draining: bool,
    pub(crate) drained_sent: bool,
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
            limits: LimitPermits::new(&plan),
            event_checks: EventChecks::new(&plan),
            waits: Waits::new(&plan),
            deadlines: Deadlines::default(),
            timers: Timers::default(),
            counters: Counters::default(),
            payload_bytes: 0,
            facts: Facts::default(),
            draining: false,
            drained_sent: false,
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
            Input::Granted(term) => self.on_lease_granted(term, effects),
            Input::Lost { lease } => self.on_lease_lost(&lease),
            Input::Leave(held) => self.on_leave(&held),
            Input::Trust { source, until } => self.on_trust(source, until),
            Input::Recovered { source, recovery, result } => self.on_recovered(source, recovery, result, effects),
            Input::Polled { source, poll, result } => self.on_polled(source, poll, result, effects),
            Input::Hello { worker, room } => self.dispatch.add_worker(worker, &room, self.plan.kinds.len()),
            Input::WorkerLost { worker } => self.on_worker_lost(worker),
            Input::Unanswered { batch } => self.on_unanswered(batch),
            Input::TimedOut { batch } => self.on_timed_out(batch),
            Input::Outcomes { batch, outcomes } => self.on_outcomes(batch, outcomes, effects),
            Input::Evaluated { batch, results } => self.on_evaluated(batch, results, effects),
            Input::EventsChecked { check, results } => self.on_events_checked(check, results, effects),
            Input::SignalsFound { source, lookup, result } => self.on_signals_found(source, lookup, result),
            Input::Written { write, result } => self.on_written(write, result, effects),
            Input::Pause { workflow, paused } => self.gates.pause(&workflow, paused),
            Input::Cancel { workflow, entity, key } => self.cancel(&workflow, &entity, &key, effects),
            Input::Permitted { limit, take, permits, wait } => self.on_permits(&limit, take, permits, wait),
            Input::Drain => self.draining = true,
        }
        self.do_possible_work(effects);
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
            // Nothing is written without trust, or while a new epoch is awaited. Both end by an input, so no timer is
            // needed.
            if !source.awaits_epoch() && self.is_trusted(id(number)) {
                at = at.min(source.settling.wake_at());
            }
        }
        at
    }

    /// Runs after every input and does everything that has become possible.
    fn do_possible_work(&mut self, effects: &mut Vec<Effect>) {
        self.fire_timers(effects);
        self.look_up_signals(effects);
        self.send_checks(effects);
        self.dispatch_all(effects);
        self.return_and_request_permits(effects);
        // The sources take turns at being first: where room is short, the first one asked would always get it.
        let (count, first) = (self.sources.len(), self.counters.polls);
        for turn in 0..count {
            let source = (turn + usize::try_from(first).unwrap_or(0)) % count;
            self.flush_writes(source, effects);
            self.poll_if_due(source, effects);
            self.leave_if_idle(source, effects);
        }
        if self.draining && !self.drained_sent && self.is_idle() {
            self.drained_sent = true;
            effects.push(Effect::Drained);
        }
    }

    /// No worker holds a batch, and no write is pending.
    fn is_idle(&self) -> bool {
        self.dispatch.batches.is_empty() && self.sources.iter().all(|source| source.settling.is_idle())
    }

    fn on_leave(&mut self, HeldLease { lease, epoch }: &HeldLease) {
        let Some(source) = self.plan.sources.iter().position(|source| source.lease == *lease) else { return };
        let state = &mut self.sources[source];
        state.leaving |= state.term.as_ref().is_some_and(|term| term.epoch() == *epoch);
    }

    fn leave_if_idle(&mut self, source: usize, effects: &mut Vec<Effect>) {
        if !self.sources[source].leaving || !self.sources[source].settling.is_idle() {
            return;
        }
        let Some(epoch) = self.sources[source].term.as_ref().map(Term::epoch) else { return };
        let is_here = |slot: Slot| self.runs.get(slot).is_some_and(|run| run.source as usize == source);
        if self.dispatch.batches.values().flat_map(|held| &held.items).any(|item| is_here(item.run)) {
            return;
        }
        self.forget_source(source);
        effects.push(Effect::Left(HeldLease { lease: self.plan.sources[source].lease.clone(), epoch }));
    }

    fn on_trust(&mut self, source: SourceId, until: Moment) {
        self.sources[source as usize].trust_until = until;
        self.requeue_stalled(source as usize);
    }

    /// Puts the stalled entries back into their queues: it may be possible to draw a stamp again.
    fn requeue_stalled(&mut self, source: usize) {
        for (queue, ready) in std::mem::take(&mut self.sources[source].stalled).into_iter().rev() {
            if let Some(run) = self.runs.get(ready.run) {
                self.ready.push(queue, run.level, ready, true);
            }
        }
    }

    fn on_lease_granted(&mut self, term: Term, effects: &mut Vec<Effect>) {
        let Some(source) = self.plan.sources.iter().position(|source| source.lease == *term.lease()) else { return };
        let state = &mut self.sources[source];
        let minted = state.minting && state.recovered;
        state.minting = false;
        state.minting_ahead = false;
        state.sequence = 0;
        // The request to leave was for the term before this one.
        state.leaving = false;
        state.term = Some(term);
        if minted {
            state.settling.retry_at = self.now;
            self.requeue_stalled(source);
        } else {
            state.recovering = true;
            state.recovery += 1;
            let shard = self.plan.sources[source].shard;
            effects.push(Effect::Recover { source: id(source), shard, recovery: state.recovery });
        }
    }

    fn on_lease_lost(&mut self, lease: &str) {
        let Some(source) = self.plan.sources.iter().position(|source| &*source.lease == lease) else { return };
        self.counters.leases_lost += 1;
        self.forget_source(source);
    }

    fn on_recovered(
        &mut self,
        source: SourceId,
        recovery: u64,
        result: Result<honeyflow_store::RecoveredState, Failure>,
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
        state.counted_attempts.clear();
        for charged in found.failures {
            state.counted_attempts.entry(charged.run.clone()).or_default().push(charged);
        }
        state.checkpoints.clear();
        state.stranded.clear();
        self.file_checkpoints(source, found.checkpoints, effects);
        for pause in found.paused {
            if pause.noun == "workflow" {
                self.gates.pause(&pause.name, true);
            }
        }
        self.sources[source as usize].poll.begin(self.now);
    }

    /// The lease has gone: the shard causes no further effect. Its rows are still in the table; the next owner finds
    /// them.
    fn forget_source(&mut self, source: usize) {
        let gone: Vec<Slot> =
            self.runs.iter().filter(|(_, run)| run.source as usize == source).map(|(slot, _)| slot).collect();
        for slot in gone {
            self.stop_waiting(slot);
            self.forget_deadline(slot);
            if let Some(run) = self.runs.remove(slot) {
                self.counters.forgotten += 1;
                self.counters.count_closed(&run);
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
        let (trust_until, recovery, poll) =
            (before.trust_until, before.recovery, PollState::for_next_term(&before.poll));
        self.sources[source] = SourceState { trust_until, recovery, poll, ..SourceState::new() };
    }

    pub(crate) fn random(&mut self) -> u64 {
        // xorshift64*: fast, and good enough to spread retries.
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a stamp for a load that begins now; none without a term or while a new epoch is awaited.
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
        // The caller can no longer use the old epoch.
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
        // The term itself knows first that it has ended; the input that reports the loss may still be queued.
        self.now < state.trust_until && state.term.as_ref().is_some_and(|term| term.lives_at(self.now))
    }
}

/// Whether the journal of an earlier owner has a run for a row's key.
enum EarlierRun {
    Nothing,
    Covers,
    /// A run of the key was begun without this row, and goes first.
    WithoutIt,
}

pub(crate) fn payload_bytes(event: &Event) -> usize {
    event.payload.as_ref().map_or(0, |payload| payload.len())
}

pub(crate) fn id(index: usize) -> u16 {
    u16::try_from(index).expect("configurations have fewer than 65,536 of anything")
}

impl SourceState {
    /// No stamp can be drawn before the new epoch is granted.
    pub fn awaits_epoch(&self) -> bool {
        self.minting && !self.minting_ahead
    }

    /// Looks up the run that an earlier owner has begun for one of the row's targets and left in the journal.
    fn earlier_run(&self, event: &Event, owed: &[(&Target, u16, usize)], plan: &Plan) -> EarlierRun {
        if self.checkpoints.is_empty() {
            return EarlierRun::Nothing;
        }
        let mut begun = EarlierRun::Nothing;
        for (target, _, workflow) in owed {
            let run = RunKey {
                tenant: event.tenant.clone(),
                entity: target.entity.clone(),
                key: target.key.clone(),
                workflow: plan.workflows[*workflow].name.clone(),
            };
            match self.checkpoints.get(&run).and_then(|all| all.first()) {
                Some(first) if first.covers.contains(&event.id) => return EarlierRun::Covers,
                Some(_) => begun = EarlierRun::WithoutIt,
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
            in_flight: hashbrown::HashMap::new(),
            lingering: hashbrown::HashSet::new(),
            crowded: false,
            poll: PollState::default(),
            settling: Settling::default(),
            counted_attempts: BTreeMap::new(),
            checkpoints: BTreeMap::new(),
            stranded: BTreeMap::new(),
            unconfigured: Vec::new(),
            store_ahead_ms: 0,
            schema_version: None,
            leaving: false,
            stalled: Vec::new(),
        }
    }
}
