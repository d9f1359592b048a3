//! One page of a fan-out: stores rows for the containers and replaces the fan-out's row by one with the next position.

use honeyflow_event::{Key, PRIORITY_FAN_OUT};
use honeyflow_store::write::FanOut;

use super::OpenTransaction;
use crate::{
    append,
    driver::{self, Error},
    row, session,
};

/// Stores one page. The next position gets a new row: with the same row, a repeated write would store the page again.
pub(super) async fn page(
    transaction: &mut OpenTransaction<'_>,
    fan_out: &FanOut,
    containers: &[Key],
) -> Result<(), Error> {
    transaction.flush().await?;
    let FanOut { event, pending_max, .. } = fan_out;
    // The containers can be in any shard, so the pending rows of all shards are counted.
    let look = format!(
        "select payload from honeyflow_outbox where id = {event} for update;
         select count(*) from (select 1
           from generate_series(0, (select value::int from honeyflow_meta where name = 'shards') - 1) as s(shard),
           lateral (select 1 from honeyflow_outbox o where o.shard = s.shard and o.priority = {PRIORITY_FAN_OUT}
             and o.ready_at is null and o.kind = 'row' limit {pending_max}) r limit {pending_max}) l"
    );
    let answers = session::run(transaction.connection, look).await?;
    let Some(position) = answers.first().and_then(|rows| rows.first()) else { return Ok(()) };
    let pending: u32 = match answers.get(1).and_then(|rows| rows.first()) {
        Some(row) => row::number(row, 0)?,
        None => 0,
    };
    if pending >= *pending_max {
        return Ok(());
    }
    let payload = row::text(position, 0)?.map(str::to_owned);
    if !containers.is_empty() {
        let statement = driver::query(
            "insert into honeyflow_outbox(tenant, entity, entity_key, priority, workflow, root, change, payload)
             select $1, $2, key, $4, $5, $6, 'related', $7 from unnest($3::text[]) with ordinality as c(key, n) order by n",
        )
        .bind(&*fan_out.tenant)
        .bind(&*fan_out.entity)
        .bind(containers.iter().map(|key| &**key).collect::<Vec<_>>())
        .bind(i16::from(PRIORITY_FAN_OUT))
        .bind(fan_out.workflow.as_deref())
        .bind(fan_out.root)
        .bind(&*fan_out.payload);
        transaction.bound(statement).await?;
    }
    let full = u32::try_from(containers.len()).is_ok_and(|count| count >= fan_out.page);
    if let (true, Some(last)) = (full, containers.last()) {
        let statement = driver::query(
            "insert into honeyflow_outbox(format, kind, tenant, entity, entity_key, shard, priority, workflow, created_at,
               dedupe, traceparent, root, payload)
             select 1, kind, tenant, entity, entity_key, shard, priority, workflow, created_at, dedupe, traceparent, root,
               $2 from honeyflow_outbox where id = $1",
        )
        .bind(*event)
        .bind(append::with_position(payload.as_deref(), last));
        transaction.bound(statement).await?;
    }
    transaction.later(&format!("delete from honeyflow_outbox where id = {event}"));
    Ok(())
}
