//! Answers the requests of an operator.

use honeyflow_event::{Event, PRIORITY_LEVELS};
use honeyflow_runtime::{Class, Failure};
use honeyflow_store::admin::{Admin, AdminReply, Lag, ParkedFilter, ParkedRow, RetryMode, Task};

use crate::{
    Tables,
    journal::{Entry, matches},
};

const HEAD_BYTES: usize = 4096;

pub(crate) fn answer(tables: &mut Tables, admin: Admin, now_ms: i64) -> Result<AdminReply, Failure> {
    Ok(match admin {
        Admin::Lag => AdminReply::Lag(lag(tables, now_ms)),
        Admin::Parked { filter, after, limit } => {
            let entries = tables.journal.parked.range(after.saturating_add(1)..);
            let entries = entries.filter(|(id, entry)| matches(&filter, **id, entry));
            AdminReply::Parked(entries.take(limit as usize).map(|(id, entry)| row(*id, entry)).collect())
        }
        Admin::RetryParked { filter, mode } => {
            let ids = matching(tables, &filter);
            for id in &ids {
                retry(tables, *id, &mode, now_ms);
            }
            AdminReply::Count(ids.len() as u64)
        }
        Admin::DropParked(filter) => {
            let ids = matching(tables, &filter);
            for id in &ids {
                tables.journal.drop_parked(*id);
            }
            AdminReply::Count(ids.len() as u64)
        }
        Admin::Pause(pause) => {
            tables.journal.pause(pause, now_ms);
            AdminReply::Done
        }
        Admin::Resume { noun, name } => {
            tables.journal.resume(noun, name);
            AdminReply::Done
        }
        Admin::Paused => AdminReply::Paused(tables.journal.paused()),
        Admin::Events { entity, key, limit } => {
            let events = tables.outbox.all().filter(|event| event.entity == entity && event.key == key);
            let mut events: Vec<Event> = events.cloned().collect();
            events.sort_by_key(|event| event.id);
            events.truncate(limit as usize);
            AdminReply::Events(events)
        }
        Admin::Waiting { events } => {
            let waiting = tables.outbox.all().map(|event| event.id).filter(|id| events.contains(id));
            AdminReply::Ids(waiting.collect())
        }
        Admin::Failures { limit } => {
            let mut failures: Vec<_> = tables.journal.failures(now_ms).collect();
            failures.sort_by_key(|charged| charged.due_in);
            failures.truncate(limit as usize);
            AdminReply::Failures(failures)
        }
        Admin::History { limit } => {
            AdminReply::History(tables.journal.history.iter().rev().take(limit as usize).cloned().collect())
        }
        Admin::TableKeys { table, .. } => {
            return Err(Failure::fatal(
                honeyflow_hive::codes::MISSING_TABLE,
                format!("the memory store has no table {table}"),
            ));
        }
        Admin::PutTask { noun, name, state } => {
            let tasks = &mut tables.journal.tasks;
            let id = tasks.values().map(|task| task.id).max().unwrap_or(0) + 1;
            let task = Task { id, noun: noun.clone(), name: name.clone(), state: state.clone(), created_ms: now_ms };
            tasks.entry((noun, name)).or_insert(task).state = state;
            AdminReply::Done
        }
        Admin::Tasks => {
            let mut tasks: Vec<Task> = tables.journal.tasks.values().cloned().collect();
            tasks.sort_by_key(|task| task.id);
            AdminReply::Tasks(tasks)
        }
        Admin::PutDefinitions(wanted) => {
            let journal = &mut tables.journal;
            let numbers = journal.definitions.put(wanted, now_ms);
            AdminReply::Versions(
                journal.definitions.versions(&numbers, |workflow, version| journal.names_version(workflow, version)),
            )
        }
        Admin::Definitions { workflow } => {
            AdminReply::Definitions(tables.journal.definitions.list(workflow.as_deref()))
        }
    })
}

fn lag(tables: &Tables, now_ms: i64) -> Lag {
    let mut counts = [0_u64; PRIORITY_LEVELS];
    let mut oldest_at = None;
    for (level, count) in counts.iter_mut().enumerate() {
        let rows = tables.outbox.level(level);
        *count = rows.len() as u64;
        oldest_at = oldest_at.into_iter().chain(rows.values().next().map(|event| event.created_ms)).min();
    }
    let mut delayed = 0;
    for ((ready_ms, _), event) in tables.outbox.delayed() {
        if *ready_ms > now_ms {
            delayed += 1;
        } else {
            counts[usize::from(event.priority).min(PRIORITY_LEVELS - 1)] += 1;
            oldest_at = oldest_at.into_iter().chain([*ready_ms]).min();
        }
    }
    Lag {
        waiting: counts.iter().sum(),
        by_priority: (0..).zip(counts).filter(|(_, count)| *count > 0).collect(),
        delayed,
        parked: tables.journal.parked.len() as u64,
        oldest_ms: oldest_at.map_or(0, |at_ms: i64| (now_ms - at_ms).max(0).cast_unsigned()),
    }
}

fn matching(tables: &Tables, filter: &ParkedFilter) -> Vec<i64> {
    let entries = tables.journal.parked.iter().filter(|(id, entry)| matches(filter, **id, entry));
    entries.map(|(id, _)| *id).collect()
}

/// Turns the parked entry into an event for its one workflow; its attempts start at 0 again, its outputs are kept.
fn retry(tables: &mut Tables, id: i64, mode: &RetryMode, now_ms: i64) {
    let Some(entry) = tables.journal.parked.get(&id).cloned() else { return };
    let event = Event {
        id: 0,
        format: entry.format,
        kind: entry.kind,
        tenant: entry.tenant,
        entity: entry.entity,
        key: entry.key,
        priority: entry.priority,
        workflow: entry.workflow,
        created_ms: now_ms,
        dedupe: None,
        traceparent: None,
        root: None,
        change: entry.change,
        columns: entry.columns,
        payload: entry.payload,
    };
    let event = tables.outbox.insert(event, None);
    tables.journal.take_up(id, event, mode);
}

fn row(id: i64, entry: &Entry) -> ParkedRow {
    let class = match entry.failure.class {
        Class::Retry => "retry",
        Class::RetryAfter => "retry-after",
        Class::Reject => "reject",
        Class::Fatal => "fatal",
    };
    let head = |payload: &str| {
        let end = HEAD_BYTES.min(payload.len());
        String::from_utf8_lossy(&payload.as_bytes()[..end]).into_owned()
    };
    ParkedRow {
        id,
        tenant: entry.tenant.to_string(),
        entity: entry.entity.to_string(),
        key: entry.key.to_string(),
        workflow: entry.workflow.as_ref().map(ToString::to_string),
        step: entry.step.to_string(),
        version: entry.version,
        attempts: entry.attempts,
        class: class.to_owned(),
        code: entry.failure.code.to_string(),
        message: entry.failure.message.clone(),
        parked_ms: entry.parked_ms,
        payload_bytes: entry.payload.as_ref().map_or(0, |payload| payload.len() as u64),
        payload_head: entry.payload.as_deref().map(head),
    }
}
