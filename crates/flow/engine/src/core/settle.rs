//! Fenced writes in groups: while one write is under way, the operations of the next are collected. The key of a run
//! stays held until the run's own write has committed.

use std::collections::BTreeMap;

use hashbrown::HashSet;
use honeyflow_event::{Document, Epoch, EventId, Kind};
use honeyflow_runtime::{Class, Failure, Moment};
use honeyflow_store::{Op, Reply, Write, write::ParkRequest};
use honeyflow_workflow::{End, Verdict};
use smallvec::SmallVec;

use super::{
    Core,
    fact::Fact,
    input::{Effect, WriteId},
    plan::SourceId,
    run::{RunPhase, RunState},
    timer::{Timer, WaitingStep},
};
use crate::{codes, slots::Slot};

/// What the core does once an operation has committed.
pub(crate) enum OnCommit {
    Nothing,
    RowGone(Slot),
    /// One obligation of the row has ended.
    ObligationEnded(Slot),
    RowParked(EventId),
    Finished(WaitingStep, Document),
    Sleeping(WaitingStep, Moment),
    /// The wait for an event is stored: the signals stored before it are looked up.
    Awaiting(WaitingStep),
    Skipped(WaitingStep),
    /// The list of a `for-each` step is stored: its instances may start.
    ListStored(WaitingStep),
    /// The event's signal is stored.
    SignalStored(EventId),
    Failed(WaitingStep, Failure),
    RunGone(Slot),
    Many(Vec<OnCommit>),
}

#[derive(Default)]
pub(crate) struct Settling {
    ops: Vec<Op>,
    after: Vec<OnCommit>,
    /// Runs that have succeeded, each with the rows that owe nothing more after it.
    runs: Vec<(Slot, SmallVec<[EventId; 2]>)>,
    /// Rows that owe nothing more because no workflow or wait needs their event.
    pub rows: Vec<(Slot, EventId)>,
    pending: BTreeMap<WriteId, PendingWrite>,
    /// Pages of fan-outs and all other operations take turns.
    page_is_next: bool,
    pub parking_rows: HashSet<EventId>,
    pub retry_at: Moment,
    failures: u32,
}

struct PendingWrite {
    epoch: Epoch,
    ops: Vec<Op>,
    after: Vec<OnCommit>,
}

/// A page of a fan-out executes a statement of the configuration. It is sent alone, so that no other operation fails or
/// is slow with it.
fn is_page(op: &Op) -> bool {
    matches!(op, Op::FanOut(_))
}

impl Settling {
    /// Takes the operations of the next write: one page of a fan-out, or up to `limit` other operations, in turn.
    fn next_ops(&mut self, limit: usize) -> (Vec<Op>, Vec<OnCommit>) {
        let has_page = self.ops.iter().any(is_page);
        let has_other = !self.runs.is_empty() || !self.rows.is_empty() || !self.ops.iter().all(is_page);
        let page = has_page && (self.page_is_next || !has_other);
        self.page_is_next = has_page && !page;
        if !has_page && self.ops.len() <= limit {
            return (std::mem::take(&mut self.ops), std::mem::take(&mut self.after));
        }
        let (mut ops, mut after) = (Vec::new(), Vec::new());
        let limit = if page { 1 } else { limit };
        for (op, then) in std::mem::take(&mut self.ops).into_iter().zip(std::mem::take(&mut self.after)) {
            let (ops, after) = if is_page(&op) == page && ops.len() < limit {
                (&mut ops, &mut after)
            } else {
                (&mut self.ops, &mut self.after)
            };
            ops.push(op);
            after.push(then);
        }
        (ops, after)
    }

    /// Adds to `found` the runs that a pending write or a collected operation belongs to.
    pub fn collect_runs(&self, found: &mut HashSet<Slot>) {
        found.extend(self.runs.iter().map(|(slot, _)| *slot));
        let under_way = self.pending.values().flat_map(|write| &write.after);
        let mut after: Vec<&OnCommit> = self.after.iter().chain(under_way).collect();
        while let Some(one) = after.pop() {
            match one {
                OnCommit::Finished(waiting, _)
                | OnCommit::Sleeping(waiting, _)
                | OnCommit::Awaiting(waiting)
                | OnCommit::Skipped(waiting)
                | OnCommit::ListStored(waiting)
                | OnCommit::Failed(waiting, _) => _ = found.insert(waiting.run),
                OnCommit::RunGone(slot) => _ = found.insert(*slot),
                OnCommit::Many(many) => after.extend(many),
                OnCommit::Nothing
                | OnCommit::RowGone(_)
                | OnCommit::ObligationEnded(_)
                | OnCommit::RowParked(_)
                | OnCommit::SignalStored(_) => {}
            }
        }
    }

    pub fn is_idle(&self) -> bool {
        self.is_empty() && self.pending.is_empty()
    }

    pub fn wake_at(&self) -> Moment {
        if self.pending.is_empty() && !self.is_empty() { self.retry_at } else { Moment::FAR }
    }

    fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.runs.is_empty() && self.rows.is_empty()
    }
}

impl Core {
    pub(crate) fn push_op(&mut self, source: SourceId, op: Op, after: OnCommit) {
        let settling = &mut self.sources[source as usize].settling;
        settling.ops.push(op);
        settling.after.push(after);
    }

    /// If all steps have ended, the verdict decides between acknowledgement and park.
    pub(crate) fn conclude_if_ended(&mut self, slot: Slot) {
        let Some(run) = self.runs.get_mut(slot) else { return };
        if run.phase != RunPhase::Open {
            return;
        }
        let graph = run.plan.graph.clone();
        let Some(verdict) = run.run.verdict(&graph) else { return };
        run.phase = RunPhase::Settling;
        self.stop_waiting(slot);
        self.forget_deadline(slot);
        let Some(run) = self.runs.get_mut(slot) else { return };
        self.facts.note(|| Fact::Concluded {
            run: run.number,
            workflow: run.workflow,
            succeeded: verdict == Verdict::Succeeded,
            states: graph.ids().map(|step| run.run.state(&graph, step)).collect(),
        });
        run.outputs = None;
        self.store_history(slot, verdict);
        let Some(run) = self.runs.get(slot) else { return };
        let source = run.source as usize;
        let workflow = run.workflow;
        let mut paid: SmallVec<[EventId; 2]> = SmallVec::new();
        for row in &self.runs.get(slot).expect("just seen").rows {
            if let Some(row) = self.rows.get_mut(*row) {
                row.owes -= 1;
                if row.owes == 0 || crate::planted::on("ack-before-second-workflow") {
                    paid.push(row.event.id);
                }
            }
        }
        if crate::planted::on("PB-14") {
            let key = self.keys.get(self.runs.get(slot).expect("just seen").key);
            let later = key.owed.iter().flat_map(|owed| &owed.rows).filter_map(|row| self.rows.get(*row));
            paid.extend(later.map(|row| row.event.id));
        }
        match verdict {
            Verdict::Succeeded => {
                self.gates.on_success(workflow);
                self.sources[source].settling.runs.push((slot, paid));
            }
            Verdict::Failed => self.park(slot, paid.into_vec()),
        }
    }

    fn park(&mut self, slot: Slot, paid: Vec<EventId>) {
        let random = self.random();
        let Some(run) = self.runs.get(slot) else { return };
        let view = self.event_view(run);
        let event = view.newest.clone();
        let failed = run.extras.as_ref().and_then(|extras| extras.failed.first().cloned());
        let (step, _, attempts, failure) =
            failed.unwrap_or_else(|| (0, 0, 0, Failure::reject(codes::FAILED, "the run failed")));
        let (source, workflow) = (run.source, run.workflow);
        let parked = ParkRequest {
            run: self.run_identity(run),
            message: (event.kind == Kind::Message).then_some(event.id),
            events: if crate::planted::on("PB-20") { Vec::new() } else { paid },
            priority: event.priority,
            version: self.plan.number(run.source, run.workflow),
            step: run.plan.graph.steps[step as usize].name.clone(),
            attempts,
            failure,
            change: view.change,
            columns: view.stored_columns(),
            payload: view.stored_payload(),
            kind: event.kind,
        };
        self.counters.parked += 1;
        let max = self.plan.limits.parked_per_minute_max;
        if let Some(until) = self.gates.on_park(workflow, max, self.now, random) {
            self.timers.set(until, Timer::Gate);
        }
        self.push_op(source, Op::Park(Box::new(parked)), OnCommit::RunGone(slot));
    }

    pub(crate) fn flush_writes(&mut self, source: usize, effects: &mut Vec<Effect>) {
        let limit = self.plan.limits.settle_rows_max;
        let state = &self.sources[source];
        let settling = &state.settling;
        if !settling.pending.is_empty() || state.awaits_epoch() || self.now < settling.retry_at {
            return;
        }
        if settling.is_empty() {
            return;
        }
        if !self.is_trusted(super::id(source)) {
            return;
        }
        let now = self.now;
        let Some(fence) = self.sources[source].term.as_ref().and_then(|term| term.fence_at(now)) else { return };
        let settling = &mut self.sources[source].settling;
        let (mut ops, mut after) = settling.next_ops(limit);
        // The run that ends a row's last obligation deletes the row. A park that ended another obligation of the row
        // must not come later than that.
        let clear = settling.ops.iter().all(is_page) && !ops.iter().any(is_page);
        let count = if clear { settling.runs.len().min(limit) } else { 0 };
        let done: Vec<_> = settling.runs.drain(..count).collect();
        // These rows go after the runs that have ended their other obligations.
        let unowed = if clear && settling.runs.is_empty() { settling.rows.len().min(limit) } else { 0 };
        let unowed: Vec<_> = settling.rows.drain(..unowed).collect();
        if !done.is_empty() || !unowed.is_empty() {
            let of_runs = done.iter().flat_map(|(_, rows)| rows.iter().copied());
            let events = of_runs.chain(unowed.iter().map(|(_, event)| *event)).collect();
            let runs =
                done.iter().filter_map(|(slot, _)| self.runs.get(*slot)).map(|run| self.run_identity(run)).collect();
            ops.push(Op::Settle { events, runs });
            let done = done.into_iter().map(|(slot, _)| OnCommit::RunGone(slot));
            after.push(OnCommit::Many(
                done.chain(unowed.into_iter().map(|(row, _)| OnCommit::ObligationEnded(row))).collect(),
            ));
        }
        self.counters.writes += 1;
        let write = self.counters.writes;
        let under_way = PendingWrite { epoch: fence.epoch(), ops: ops.clone(), after };
        self.sources[source].settling.pending.insert(write, under_way);
        effects.push(Effect::Write { source: super::id(source), write, request: Write { fence, ops } });
    }

    pub(crate) fn on_written(&mut self, write: WriteId, result: Result<Reply, Failure>, effects: &mut Vec<Effect>) {
        let Some(source) = self.sources.iter().position(|source| source.settling.pending.contains_key(&write)) else {
            return;
        };
        let random = self.random();
        let backoff = self.plan.limits.store_backoff;
        let now = self.now;
        let settling = &mut self.sources[source].settling;
        let Some(PendingWrite { epoch, ops, after }) = settling.pending.remove(&write) else { return };
        match result {
            Ok(Reply::Committed) => {
                settling.failures = 0;
                for after in after {
                    self.on_committed(super::id(source), after);
                }
            }
            Err(failure) if matches!(ops[..], [Op::FanOut(_)]) => {
                self.on_page_failed(super::id(source), ops, after, &failure);
            }
            other => {
                // The same operations are sent again: each is idempotent.
                settling.ops.splice(0..0, ops);
                settling.after.splice(0..0, after);
                let fenced = matches!(other, Ok(Reply::Fenced));
                if let Err(failure) = &other {
                    settling.failures += 1;
                    settling.retry_at = now.after(backoff.wait(settling.failures - 1, random));
                    self.counters.write_failures += 1;
                    self.counters.note_store_failure(failure);
                }
                if fenced {
                    self.counters.fenced += 1;
                    // If our own newer epoch fenced the write, it goes out again under that epoch. Otherwise the lease
                    // may be lost: asking for a new epoch finds out.
                    if self.sources[source].term.as_ref().is_none_or(|term| term.epoch() == epoch) {
                        self.mint(super::id(source), Epoch(0), effects);
                    }
                }
            }
        }
    }

    /// A page of a fan-out failed. Its row stays in the table; it is tried again after all other operations, or held
    /// until the schema changes.
    fn on_page_failed(&mut self, source: SourceId, ops: Vec<Op>, after: Vec<OnCommit>, failure: &Failure) {
        self.counters.write_failures += 1;
        self.counters.note_store_failure(failure);
        let row = after.iter().find_map(|after| if let OnCommit::RowGone(row) = after { Some(*row) } else { None });
        let state = &mut self.sources[source as usize];
        if failure.class == Class::Retry {
            state.settling.ops.extend(ops);
            state.settling.after.extend(after);
            state.settling.retry_at = self.now.after(self.plan.limits.store_backoff.base);
            return;
        }
        if let Some(slot) = row
            && let Some(row) = self.rows.get(slot)
        {
            state.poll.hold(&row.event, failure.clone());
            self.forget_row(slot);
        }
    }

    fn on_committed(&mut self, source: SourceId, after: OnCommit) {
        match after {
            OnCommit::Nothing => {}
            OnCommit::RowGone(row) => self.forget_row(row),
            OnCommit::ObligationEnded(row) => self.on_obligation_settled(row),
            OnCommit::RowParked(event) => {
                let state = &mut self.sources[source as usize];
                state.settling.parking_rows.remove(&event);
                if state.poll.is_under_way() {
                    state.lingering.insert(event);
                }
            }
            OnCommit::Finished(waiting, output) => self.finish(waiting, End::Succeeded, output),
            OnCommit::Sleeping(waiting, at) => {
                self.timers.set(at, Timer::Cohort(vec![waiting]));
                self.note_dormant(waiting.run);
            }
            OnCommit::Awaiting(waiting) => {
                self.queue_lookup(waiting);
                self.note_dormant(waiting.run);
            }
            OnCommit::SignalStored(event) => self.waits.on_signal_stored(source, event),
            OnCommit::ListStored(waiting) => self.start_listed(waiting),
            OnCommit::Skipped(waiting) => self.finish(waiting, End::Skipped, None),
            OnCommit::Failed(waiting, failure) => self.fail(waiting, failure),
            OnCommit::RunGone(slot) => self.close_run(slot),
            OnCommit::Many(many) => many.into_iter().for_each(|after| self.on_committed(source, after)),
        }
    }

    fn close_run(&mut self, slot: Slot) {
        let Some(run) = self.runs.remove(slot) else { return };
        debug_assert!(!run.dormant, "a run that settles does not wait");
        self.counters.count_closed(&run);
        self.facts.note(|| Fact::Closed { run: run.number });
        self.counters.count_ended_run(&run, self.now);
        for row in &run.rows {
            self.on_obligation_settled(*row);
        }
        self.free_key(&run, slot);
    }

    /// One of the row's obligations has ended and committed.
    fn on_obligation_settled(&mut self, slot: Slot) {
        let Some(row) = self.rows.get_mut(slot) else { return };
        row.unsettled -= 1;
        if row.unsettled == 0 {
            self.forget_row(slot);
        }
    }

    fn free_key(&mut self, run: &RunState, slot: Slot) {
        let Some(key) = self.keys.get_mut(run.key) else { return };
        key.open.retain(|open| *open != slot);
        if std::mem::take(&mut key.overflowed) {
            self.sources[run.source as usize].poll.rewind();
        }
        if !crate::planted::on("forget-held-key") {
            self.start_runs(run.key);
        }
    }

    fn forget_row(&mut self, slot: Slot) {
        let Some(row) = self.rows.remove(slot) else { return };
        self.payload_bytes -= super::payload_bytes(&row.event);
        let state = &mut self.sources[row.source as usize];
        state.in_flight.remove(&row.event.id);
        if state.poll.is_under_way() {
            state.lingering.insert(row.event.id);
        }
    }
}
