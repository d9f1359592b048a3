//! Signals: stored events for which a run waits, or may wait later. Expired signals are not returned; the removal of
//! expired rows deletes them.

use std::sync::Arc;

use honeyflow_event::{Changes, Event, Kind};
use honeyflow_store::{Signal, SignalQuery};

use crate::{
    append,
    driver::{self, Error, PgConnection, PgRow, Row},
    load, row, session,
    write::{OpenTransaction, plan::NewSignal},
};

/// Stores each signal once: a repeated write finds it already stored.
pub(crate) async fn put(transaction: &mut OpenTransaction<'_>, signals: &[NewSignal<'_>]) -> Result<(), Error> {
    let statement = driver::query(
        "insert into honeyflow_signal(tenant, name, signal_key, event, kind, priority, event_at, payload, change, columns,
           until_at)
         select tenant, name, signal_key, event, kind, priority, to_timestamp(event_ms / 1000.0), payload, change, columns,
           statement_timestamp() + keep_ms * interval '1 millisecond'
         from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::smallint[], $7::bigint[],
           $8::text[], $9::text[], $10::text[], $11::bigint[]) with ordinality
           as k(tenant, name, signal_key, event, kind, priority, event_ms, payload, change, columns, keep_ms, n)
         order by n on conflict (tenant, name, signal_key, event) do nothing",
    )
    .bind(signals.iter().map(|signal| &*signal.event.newest.tenant).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| &*signal.event.target.entity).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| &*signal.event.target.key).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| signal.event.newest.id).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| row::kind_name(signal.event.newest.kind)).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| i16::from(signal.event.newest.priority)).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| signal.event.newest.created_ms).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| signal.event.stored_payload().map(|text| text.to_string())).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| signal.event.change.text()).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| signal.event.stored_columns().map(|text| text.to_string())).collect::<Vec<_>>())
    .bind(signals.iter().map(|signal| append::millis(signal.keep)).collect::<Vec<_>>());
    transaction.bound(statement).await.map(drop)
}

/// Returns one list of signals per query, all from one snapshot.
pub(crate) async fn find(connection: &mut PgConnection, wanted: &[SignalQuery]) -> Result<Vec<Vec<Signal>>, Error> {
    session::run(connection, load::begin(crate::ADMIN_TIMEOUT)).await?;
    let statement = driver::query(
        "select w.n, s.id, s.signal_key, s.event, s.kind, s.priority, (extract(epoch from s.event_at) * 1000)::bigint,
           s.payload, s.change, s.columns
         from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::bigint[]) with ordinality
           as w(tenant, name, signal_key, since_ms, after, room, n),
         lateral (select * from honeyflow_signal s where s.tenant = w.tenant and s.name = w.name
           and (w.signal_key is null or s.signal_key = w.signal_key) and s.until_at > statement_timestamp()
           and (extract(epoch from s.created_at) * 1000)::bigint >= w.since_ms and s.id > w.after
           order by s.id limit w.room) s
         order by w.n, s.id",
    )
    .bind(wanted.iter().map(|wanted| &*wanted.tenant).collect::<Vec<_>>())
    .bind(wanted.iter().map(|wanted| &*wanted.name).collect::<Vec<_>>())
    .bind(wanted.iter().map(|wanted| wanted.key.as_deref()).collect::<Vec<_>>())
    .bind(wanted.iter().map(|wanted| wanted.since_ms).collect::<Vec<_>>())
    .bind(wanted.iter().map(|wanted| wanted.after).collect::<Vec<_>>())
    .bind(wanted.iter().map(|wanted| i64::from(wanted.limit)).collect::<Vec<_>>());
    let rows = session::run_bound(connection, statement).await?;
    session::run(connection, "commit".to_owned()).await?;
    let mut found: Vec<Vec<Signal>> = wanted.iter().map(|_| Vec::new()).collect();
    for row in &rows {
        // `with ordinality` counts from 1.
        let n = usize::try_from(row.try_get::<i64, _>(0)?).unwrap_or(0).wrapping_sub(1);
        if let (Some(wanted), Some(found)) = (wanted.get(n), found.get_mut(n)) {
            found.push(read(row, wanted)?);
        }
    }
    Ok(found)
}

fn read(row: &PgRow, wanted: &SignalQuery) -> Result<Signal, Error> {
    let event = Event {
        id: row.try_get(3)?,
        format: 1,
        kind: row::kind(row.try_get(4)?).unwrap_or(Kind::Message),
        tenant: wanted.tenant.clone(),
        entity: wanted.name.clone(),
        key: row.try_get::<&str, _>(2)?.into(),
        priority: row::priority(row.try_get(5)?),
        workflow: None,
        created_ms: row.try_get(6)?,
        dedupe: None,
        traceparent: None,
        root: None,
        change: row.try_get::<Option<&str>, _>(8)?.map_or(Changes::UNKNOWN, Changes::parse),
        columns: row.try_get::<Option<&str>, _>(9)?.map(Into::into),
        payload: row.try_get::<Option<&str>, _>(7)?.map(Into::into),
    };
    Ok(Signal { id: row.try_get(1)?, event: Arc::new(event) })
}
