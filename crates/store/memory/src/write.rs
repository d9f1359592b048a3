//! The operations of a write, executed after the fence was found valid. Every operation is idempotent.

use std::time::Duration;

use honeyflow_event::{Changes, Event, EventId, Key, Kind, PRIORITY_FAN_OUT};
use honeyflow_store::{Idempotency, NewEvent, Op, Reply, Write, write::FanOut};
use serde_json::json;

use crate::{
    Tables,
    journal::{DEDUPE_MS, Entry, StoredRequest},
};

/// Returns one page of the containers of `causes`, distinct and in order.
pub(crate) fn page(
    containers: &(dyn Fn(&str) -> Vec<Key> + Send + Sync),
    causes: &[Key],
    after: Option<&Key>,
    limit: u32,
) -> Vec<Key> {
    let mut found: Vec<Key> = causes.iter().flat_map(|cause| containers(cause)).collect();
    found.retain(|key| after.is_none_or(|after| key > after));
    found.sort_unstable();
    found.dedup();
    found.truncate(limit as usize);
    found
}

/// Returns the pages of all fan-outs among the operations. The caller needs them before it takes a lock.
pub(crate) fn pages(write: &Write, containers: &(dyn Fn(&str) -> Vec<Key> + Send + Sync)) -> Vec<Vec<Key>> {
    let fan_outs = write.ops.iter().filter_map(|op| match op {
        Op::FanOut(fan_out) => Some(page(containers, &fan_out.causes, fan_out.after.as_ref(), fan_out.page)),
        _ => None,
    });
    fan_outs.collect()
}

pub(crate) fn write(tables: &mut Tables, ops: Vec<Op>, pages: Vec<Vec<Key>>, now_ms: i64) {
    let mut pages = pages.into_iter();
    for op in ops {
        match op {
            Op::Settle { events, runs } => {
                for event in events {
                    if let Some(event) = tables.outbox.remove(event) {
                        tables.journal.mark_done(event, now_ms);
                    }
                }
                for run in &runs {
                    tables.journal.clear(run);
                }
            }
            Op::Charge { run, step, index, attempts, due_in, failure } => {
                tables.journal.charge(run, step, index, attempts, now_ms.saturating_add(millis(due_in)), failure);
            }
            Op::Park(parked) => {
                tables.journal.park(Entry {
                    event: parked.message.unwrap_or(0),
                    tenant: parked.run.tenant,
                    entity: parked.run.entity,
                    key: parked.run.key,
                    workflow: Some(parked.run.workflow),
                    step: parked.step,
                    format: 1,
                    kind: parked.kind,
                    priority: parked.priority,
                    version: parked.version,
                    attempts: parked.attempts,
                    failure: parked.failure,
                    change: parked.change,
                    columns: parked.columns,
                    payload: parked.payload,
                    parked_ms: now_ms,
                });
                for event in parked.events {
                    tables.outbox.remove(event);
                }
            }
            Op::ParkRow { event, failure } => {
                if let Some(row) = tables.outbox.remove(event) {
                    tables.journal.park(Entry {
                        tenant: row.tenant,
                        entity: row.entity,
                        key: row.key,
                        workflow: row.workflow,
                        step: "".into(),
                        event,
                        format: row.format,
                        kind: row.kind,
                        priority: row.priority,
                        version: 0,
                        attempts: 0,
                        failure,
                        change: row.change,
                        columns: row.columns,
                        payload: row.payload,
                        parked_ms: now_ms,
                    });
                }
            }
            Op::Checkpoint(mut checkpoint) => {
                let emit = std::mem::take(&mut checkpoint.emit);
                if tables.journal.put_checkpoint(*checkpoint) {
                    insert_all(tables, emit, now_ms);
                }
            }
            Op::Signal { event, keep } => {
                tables.journal.put_signal(event.stored(), now_ms, now_ms.saturating_add(millis(keep)));
            }
            Op::Replace { event, by } => {
                if tables.outbox.remove(event).is_some() {
                    insert_all(tables, by, now_ms);
                }
            }
            Op::FanOut(fan_out) => fan_out_page(tables, &fan_out, pages.next().unwrap_or_default(), now_ms),
            Op::History(history) => {
                let run = &history.run;
                let ended = json!({
                    "tenant": *run.tenant, "entity": *run.entity, "key": *run.key, "workflow": *run.workflow,
                    "version": history.version, "verdict": history.verdict, "steps": history.steps,
                });
                tables.journal.put_history(ended, now_ms);
            }
        }
    }
}

/// Stores one page of a fan-out. The next position gets a new row: with the same row, a repeated write would store the
/// page again.
fn fan_out_page(tables: &mut Tables, fan_out: &FanOut, containers: Vec<Key>, now_ms: i64) {
    let pending = tables.outbox.level(usize::from(PRIORITY_FAN_OUT)).values();
    let pending = pending.filter(|event| event.kind == Kind::Row).take(fan_out.pending_max as usize).count();
    if tables.outbox.get(fan_out.event).is_none() || pending >= fan_out.pending_max as usize {
        return;
    }
    let Some(row) = tables.outbox.remove(fan_out.event) else { return };
    let last = containers.last().filter(|_| containers.len() >= fan_out.page as usize).cloned();
    for container in containers {
        let event = Event {
            id: 0,
            format: 1,
            kind: Kind::Row,
            tenant: fan_out.tenant.clone(),
            entity: fan_out.entity.clone(),
            key: container,
            priority: PRIORITY_FAN_OUT,
            workflow: fan_out.workflow.clone(),
            created_ms: now_ms,
            dedupe: None,
            traceparent: None,
            root: Some(fan_out.root),
            change: Changes::RELATED,
            columns: None,
            payload: Some(fan_out.payload.clone()),
        };
        tables.outbox.insert(event, None);
    }
    if let Some(last) = last {
        let position = row.payload.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let mut position = position.filter(serde_json::Value::is_object).unwrap_or_else(|| json!({}));
        position["after"] = json!(*last);
        tables.outbox.insert(Event { id: 0, payload: Some(position.to_string().into()), ..row }, None);
    }
}

pub(crate) fn append(
    tables: &mut Tables,
    events: Vec<NewEvent>,
    idempotency: Option<Idempotency>,
    now_ms: i64,
) -> Reply {
    let Some(Idempotency { key, body_hash }) = idempotency else {
        return Reply::Appended { ids: insert_all(tables, events, now_ms), repeated: false };
    };
    if let Some(stored) = tables.journal.requests.get(&key).filter(|stored| stored.until_ms > now_ms) {
        return if stored.body_hash == body_hash {
            Reply::Appended { ids: stored.ids.clone(), repeated: true }
        } else {
            Reply::Conflict
        };
    }
    let ids = insert_all(tables, events, now_ms);
    let stored = StoredRequest { body_hash, ids: ids.clone(), until_ms: now_ms + DEDUPE_MS };
    tables.journal.requests.insert(key, stored);
    Reply::Appended { ids, repeated: false }
}

fn insert_all(tables: &mut Tables, events: Vec<NewEvent>, now_ms: i64) -> Vec<EventId> {
    let insert = |new: NewEvent| {
        let ready_ms = new.delay.map(|delay| now_ms.saturating_add(millis(delay)));
        let event = Event {
            id: 0,
            format: 1,
            kind: new.kind,
            tenant: new.tenant,
            entity: new.entity,
            key: new.key,
            priority: new.priority,
            workflow: new.workflow,
            created_ms: now_ms,
            dedupe: new.dedupe,
            traceparent: new.traceparent,
            root: new.root,
            change: new.change,
            columns: new.columns,
            payload: new.payload,
        };
        tables.outbox.insert(event, ready_ms)
    };
    events.into_iter().map(insert).collect()
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
