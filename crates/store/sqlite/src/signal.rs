//! Signals: stored events for which a run waits, or may wait later. Expired signals are not returned; the removal of
//! expired rows deletes them.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Changes, Event, EventView};
use honeyflow_runtime::Failure;
use honeyflow_store::{Signal, SignalQuery};
use rusqlite::{Connection, Row, params};

use crate::{append, outcome, row, write};

pub(crate) fn put(connection: &Connection, view: &EventView, keep: Duration, now_ms: i64) -> rusqlite::Result<()> {
    let (event, target) = (&view.newest, &view.target);
    connection
        .prepare_cached(
            "insert or ignore into honeyflow_signal(tenant, name, signal_key, event, kind, priority, event_at, payload,
               created_at, until_ms, change, columns) values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
        )?
        .execute(params![
            event.tenant,
            target.entity,
            target.key,
            event.id,
            row::kind_name(event.kind),
            event.priority,
            event.created_ms,
            view.stored_payload(),
            now_ms,
            now_ms.saturating_add(append::millis(keep)),
            view.change.text(),
            view.stored_columns()
        ])?;
    Ok(())
}

pub(crate) fn find(connection: &Connection, wanted: &[SignalQuery]) -> Result<Vec<Vec<Signal>>, Failure> {
    let found = write::now_ms(connection)
        .and_then(|now_ms| wanted.iter().map(|wanted| find_one(connection, wanted, now_ms)).collect());
    found.map_err(|error| outcome::failure(&error, "look for signals"))
}

fn find_one(connection: &Connection, wanted: &SignalQuery, now_ms: i64) -> rusqlite::Result<Vec<Signal>> {
    let SignalQuery { tenant, name, key, since_ms, after, limit } = wanted;
    let read = |row: &Row<'_>| {
        let event = Event {
            id: row.get(2)?,
            format: 1,
            kind: row::kind(row.get_ref(3)?.as_str()?).unwrap_or(honeyflow_event::Kind::Message),
            tenant: tenant.clone(),
            entity: name.clone(),
            key: row.get(1)?,
            priority: row.get(4)?,
            workflow: None,
            created_ms: row.get(5)?,
            dedupe: None,
            traceparent: None,
            root: None,
            change: row.get::<_, Option<String>>(7)?.map_or(Changes::UNKNOWN, |text| Changes::parse(&text)),
            columns: row.get(8)?,
            payload: row.get(6)?,
        };
        Ok(Signal { id: row.get(0)?, event: Arc::new(event) })
    };
    const COLUMNS: &str = "select id, signal_key, event, kind, priority, event_at, payload, change, columns
       from honeyflow_signal
       where tenant = ?1 and name = ?2 and created_at >= ?3 and until_ms > ?4 and id > ?5";
    match key {
        Some(key) => connection
            .prepare_cached(&format!("{COLUMNS} and signal_key = ?7 order by id limit ?6"))?
            .query_map(params![tenant, name, since_ms, now_ms, after, limit, key], read)?
            .collect(),
        None => connection
            .prepare_cached(&format!("{COLUMNS} order by id limit ?6"))?
            .query_map(params![tenant, name, since_ms, now_ms, after, limit], read)?
            .collect(),
    }
}
