//! Handles the results of a step's expressions before its dispatch: go, skip, one instance per element, sleep, wait or
//! emit.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Changes, Key, Kind, Name, PRIORITY_DEFAULT, key::KEY_BYTES_MAX};
use honeyflow_runtime::{Class, Failure};
use honeyflow_store::{NewEvent, statement::impossible_key, write::CheckpointOutcome};
use honeyflow_workflow::{End, Otherwise, Role};
use serde_json::Value;

use super::{
    Core,
    input::{BatchId, Effect, Evaluation},
    outcome::Cause,
    ready::ReadyItem,
    run::RunPhase,
    settle::OnCommit,
    timer::{Timer, WaitingStep},
};
use crate::codes;

/// The most events that one step may emit: they are stored in one transaction.
const EMITTED_MAX: usize = 1_000;
/// The wait before an expression that was not reached in time is evaluated again.
const EVALUATE_AGAIN_AFTER: Duration = Duration::from_millis(200);

impl Core {
    pub(crate) fn on_evaluated(&mut self, batch: BatchId, results: Vec<Evaluation>, effects: &mut Vec<Effect>) {
        let Some(held) = self.close_batch(batch) else {
            self.counters.stale_answers += 1;
            return;
        };
        self.ready.queues[held.queue].finished += 1;
        let (workflow, step) = (self.ready.queues[held.queue].workflow, self.ready.queues[held.queue].step);
        if results.len() != held.items.len() {
            self.suspect(&held, Cause::Unclear);
            return;
        }
        for (item, result) in held.items.iter().zip(results) {
            let Some(run) = self.runs.get_mut(item.run) else { continue };
            run.leased -= 1;
            let waiting = WaitingStep { run: item.run, step, index: item.index };
            if run.phase != RunPhase::Open {
                self.on_attempt_ended(waiting, item.attempt, None);
                continue;
            }
            match result {
                Evaluation::Failed(failure) if failure.class == Class::Fatal => {
                    let until = self.stop_workflow(workflow, failure, effects);
                    self.timers.set(until, Timer::Gate);
                    self.enqueue(waiting, true);
                }
                Evaluation::Failed(failure) if failure.class != Class::Reject => {
                    self.timers.set(self.now.after(EVALUATE_AGAIN_AFTER), Timer::Cohort(vec![waiting]));
                }
                result => self.on_decided(waiting, item.attempt, result),
            }
        }
    }

    fn on_decided(&mut self, waiting: WaitingStep, attempt: u32, result: Evaluation) {
        let WaitingStep { run: slot, step, index } = waiting;
        let Some(run) = self.runs.get_mut(slot) else { return };
        let definition = run.plan.graph.steps[step as usize].clone();
        let level = run.level;
        match result {
            Evaluation::Go(input) => {
                let extra = run.extra(step, index);
                (extra.evaluated, extra.input) = (true, Some(input));
                let queue = self.ready.queue(run.workflow, step, false);
                self.ready.push(queue, level, ReadyItem { run: slot, index, since: self.now, level }, false);
            }
            Evaluation::Skip if definition.role == Role::Sink && definition.otherwise == Otherwise::Delete => {
                let extra = run.extra(step, index);
                (extra.evaluated, extra.input) = (true, Some(None));
                let queue = self.ready.queue(run.workflow, step, false);
                self.ready.push(queue, level, ReadyItem { run: slot, index, since: self.now, level }, false);
            }
            Evaluation::Skip => self.finish(waiting, End::Skipped, None),
            Evaluation::Each { inputs, items } => self.begin_for_each(waiting, attempt, inputs, items),
            Evaluation::Failed(failure) => self.fail(waiting, failure),
            Evaluation::Sleep(millis) => {
                run.extra(step, index).evaluated = true;
                let source = &self.sources[run.source as usize];
                let local_ms = i64::try_from(self.now.0 / 1000).unwrap_or(i64::MAX);
                let until = local_ms + source.store_ahead_ms + i64::try_from(millis).unwrap_or(i64::MAX / 4);
                let early = if crate::planted::on("early end of a sleep") { 2 } else { 1 };
                let at = self.now.after(Duration::from_millis(millis / early));
                if millis <= 1000 {
                    self.timers.set(at, Timer::Cohort(vec![waiting]));
                } else {
                    self.checkpoint(
                        waiting,
                        attempt,
                        CheckpointOutcome::Until(until),
                        Vec::new(),
                        OnCommit::Sleeping(waiting, at),
                    );
                }
            }
            Evaluation::Wait { millis, key } => self.begin_wait(waiting, attempt, millis, key.as_ref()),
            Evaluation::Emit(values) => self.emit(waiting, attempt, &values),
        }
    }

    /// Stores the events in the transaction of the step's own checkpoint; their dedupe ids make a repeat harmless.
    fn emit(&mut self, waiting: WaitingStep, attempt: u32, values: &[Value]) {
        let Some(run) = self.runs.get(waiting.run) else { return };
        let event = self.newest_event(run);
        let settled = self.run_identity(run);
        if values.len() > EMITTED_MAX {
            let message = format!("event.emit was given {} events, the limit is {EMITTED_MAX}", values.len());
            self.fail(waiting, Failure::reject(codes::TOO_MANY_EVENTS, message));
            return;
        }
        let payload_bytes_max = self.plan.sources[run.source as usize].payload_bytes_max;
        let mut events = Vec::with_capacity(values.len());
        for (number, value) in values.iter().enumerate() {
            let text = |name: &str| value.get(name).and_then(Value::as_str);
            let key: Option<Key> = match value.get("key") {
                Some(Value::String(text)) => Some(text.as_str().into()),
                Some(Value::Number(number)) => Some(number.to_string().into()),
                _ => None,
            };
            let (Some(entity), Some(key)) = (text("entity").filter(|entity| !entity.is_empty()), key) else {
                let message = "event.emit needs `entity` and `key` (text or number) in each event";
                self.fail(waiting, Failure::reject(codes::BAD_EVENT, message));
                return;
            };
            // Not every database stores a NUL character, and a write that the database refuses would be retried for
            // ever.
            if [entity, &*key].iter().any(|text| text.contains('\0')) {
                let message = format!("the entity or key of event {number} contains a NUL character");
                self.fail(waiting, Failure::reject(codes::BAD_EVENT, message));
                return;
            }
            let planned = self.plan.sources[run.source as usize].entities.get(entity);
            let types = planned.map(|planned| &planned.key[..]).filter(|types| !types.is_empty());
            if let Some(why) = types.and_then(|types| impossible_key(types, &key)) {
                let message = format!("event {number} has the key `{key}`, which `{entity}` cannot have: {why}");
                self.fail(waiting, Failure::reject(codes::BAD_EVENT, message));
                return;
            }
            let payload: Option<Arc<str>> = value.get("payload").map(|payload| payload.to_string().into());
            let bytes = payload.as_ref().map_or(0, |payload| payload.len());
            // Its reader would park it; it is better to fail the step that writes it.
            let (code, what, bytes, max) = if key.len() > KEY_BYTES_MAX {
                (codes::KEY_TOO_LONG, "key", key.len(), KEY_BYTES_MAX as u64)
            } else if entity.len() > KEY_BYTES_MAX {
                (codes::BAD_EVENT, "entity", entity.len(), KEY_BYTES_MAX as u64)
            } else {
                (codes::PAYLOAD_TOO_LARGE, "payload", bytes, payload_bytes_max)
            };
            if bytes as u64 > max {
                let message = format!("the {what} of event {number} has {bytes} bytes, the limit is {max}");
                self.fail(waiting, Failure::reject(code, message));
                return;
            }
            let priority = value.get("priority").and_then(Value::as_u64).and_then(|level| u8::try_from(level).ok());
            let once = format!(
                "{}/{}/{}/{}/{}/{number}",
                settled.workflow, settled.entity, settled.key, event.id, waiting.step
            );
            events.push(NewEvent {
                kind: if payload.is_some() { Kind::Message } else { Kind::Row },
                tenant: settled.tenant.clone(),
                entity: Name::from(entity),
                key,
                priority: priority.unwrap_or(PRIORITY_DEFAULT).min(9),
                workflow: None,
                delay: value.get("delay-ms").and_then(Value::as_u64).map(Duration::from_millis),
                dedupe: Some(once.into()),
                traceparent: event.traceparent.clone(),
                root: Some(event.root.unwrap_or(event.id)),
                change: Changes::UNKNOWN,
                columns: None,
                payload,
            });
        }
        let after = OnCommit::Finished(waiting, None);
        self.checkpoint(waiting, attempt, CheckpointOutcome::Done(None), events, after);
    }
}
