//! What a step's expressions have given, before its dispatch: go, skip, one instance per element, sleep or emit.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Key, Kind, Name, PRIORITY_DEFAULT, key::KEY_BYTES_MAX};
use honeyflow_runtime::{Class, Failure};
use honeyflow_store::{NewEvent, write::Checkpointed};
use honeyflow_workflow::{End, Otherwise, Role};
use serde_json::Value;

use super::{
    Core,
    input::{BatchId, Effect, Evaluated},
    outcome::Cause,
    ready::Ready,
    run::Life,
    settle::After,
    timer::{Timer, Waiting},
};

/// Events of one step: they are stored in one transaction.
const EMITTED_MAX: usize = 1_000;
/// Before expressions are evaluated that were not reached in time.
const AGAIN: Duration = Duration::from_millis(200);

impl Core {
    pub(crate) fn evaluated(&mut self, batch: BatchId, results: Vec<Evaluated>, effects: &mut Vec<Effect>) {
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
            let waiting = Waiting { run: item.run, step, index: item.index };
            if run.life != Life::Open {
                self.came_back(waiting, item.attempt, None);
                continue;
            }
            match result {
                Evaluated::Failed(failure) if failure.class == Class::Fatal => {
                    let until = self.stop_workflow(workflow, failure, effects);
                    self.timers.set(until, Timer::Gate);
                    self.enqueue(waiting, true);
                }
                Evaluated::Failed(failure) if failure.class != Class::Reject => {
                    self.timers.set(self.now.after(AGAIN), Timer::Cohort(vec![waiting]));
                }
                result => self.decided(waiting, item.attempt, result),
            }
        }
    }

    fn decided(&mut self, waiting: Waiting, attempt: u32, result: Evaluated) {
        let Waiting { run: slot, step, index } = waiting;
        let Some(run) = self.runs.get_mut(slot) else { return };
        let definition = run.plan.graph.steps[step as usize].clone();
        let level = run.level;
        match result {
            Evaluated::Go(input) => {
                let extra = run.extra(step, index);
                (extra.evaluated, extra.input) = (true, Some(input));
                let queue = self.ready.queue(run.workflow, step, false);
                self.ready.push(queue, level, Ready { run: slot, index, since: self.now, level }, false);
            }
            Evaluated::Skip if definition.role == Role::Sink && definition.otherwise == Otherwise::Delete => {
                let extra = run.extra(step, index);
                (extra.evaluated, extra.input) = (true, Some(None));
                let queue = self.ready.queue(run.workflow, step, false);
                self.ready.push(queue, level, Ready { run: slot, index, since: self.now, level }, false);
            }
            Evaluated::Skip => self.finish(waiting, End::Skipped, None),
            Evaluated::Each { inputs, items } => self.begin_each(waiting, attempt, inputs, items),
            Evaluated::Failed(failure) => self.fail(waiting, failure),
            Evaluated::Sleep(millis) => {
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
                        Checkpointed::Until(until),
                        Vec::new(),
                        After::Sleeping(waiting, at),
                    );
                }
            }
            Evaluated::Wait { millis, key } => self.begin_wait(waiting, attempt, millis, key.as_ref()),
            Evaluated::Emit(values) => self.emit(waiting, attempt, &values),
        }
    }

    /// Events are stored in the transaction of the step's own checkpoint; their ids make a repeat harmless.
    fn emit(&mut self, waiting: Waiting, attempt: u32, values: &[Value]) {
        let Some(run) = self.runs.get(waiting.run) else { return };
        let event = self.newest_event(run);
        let settled = self.settled(run);
        if values.len() > EMITTED_MAX {
            let message = format!("event.emit was given {} events, the limit is {EMITTED_MAX}", values.len());
            self.fail(waiting, Failure::reject("too-many-events", message));
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
                self.fail(waiting, Failure::reject("bad-event", message));
                return;
            };
            // No database of ours keeps it whole, and a write that it refuses would be tried for ever.
            if [entity, &*key].iter().any(|text| text.contains('\0')) {
                let message = format!("the entity or key of event {number} contains a NUL character");
                self.fail(waiting, Failure::reject("bad-event", message));
                return;
            }
            let payload: Option<Arc<str>> = value.get("payload").map(|payload| payload.to_string().into());
            let bytes = payload.as_ref().map_or(0, |payload| payload.len());
            // Whoever reads it would park it: better the one who wrote it.
            let (code, what, bytes, max) = if key.len() > KEY_BYTES_MAX {
                ("key-too-long", "key", key.len(), KEY_BYTES_MAX as u64)
            } else if entity.len() > KEY_BYTES_MAX {
                ("bad-event", "entity", entity.len(), KEY_BYTES_MAX as u64)
            } else {
                ("payload-too-large", "payload", bytes, payload_bytes_max)
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
                payload,
            });
        }
        let after = After::Finished(waiting, None);
        self.checkpoint(waiting, attempt, Checkpointed::Done(None), events, after);
    }
}
