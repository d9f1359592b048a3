//! Parks runs and unreadable rows.

use honeyflow_event::EventId;
use honeyflow_runtime::Failure;
use honeyflow_store::write::ParkRequest;

use super::{OpenTransaction, class_name, integer, smallint};
use crate::{
    driver::{self, Error},
    row,
};

/// Parks a run. Its checkpoints move to the parked entry, so that newer runs of the key do not use them; a retry
/// restores them.
pub(super) async fn park(transaction: &mut OpenTransaction<'_>, shard: u16, parked: &ParkRequest) -> Result<(), Error> {
    let run = &parked.run;
    let statement = driver::query(
        "with done as (delete from honeyflow_outbox where id = any ($16::bigint[])),
         entry as (
           insert into honeyflow_parked(tenant, entity, entity_key, workflow, step, event, kind, priority, version,
             attempts, class, code, message, payload, change, columns)
           values ($2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $17, $18)
           on conflict (tenant, entity, entity_key, workflow, phase, step, instance, event) do update
           set kind = excluded.kind, priority = excluded.priority, version = excluded.version,
             attempts = excluded.attempts, class = excluded.class, code = excluded.code, message = excluded.message,
             payload = excluded.payload, change = excluded.change, columns = excluded.columns,
             parked_at = excluded.parked_at
           returning id),
         moved as (
           delete from honeyflow_checkpoint where shard = $1 and tenant = $2 and entity = $3 and entity_key = $4
             and workflow = $5 and parked = 0 returning *),
         kept as (
           insert into honeyflow_checkpoint(shard, tenant, entity, entity_key, workflow, parked, phase, step, instance,
             version, covers, attempt, stamp, outcome, output, created_at)
           select shard, tenant, entity, entity_key, workflow, entry.id, phase, step, instance, version, covers,
             attempt, stamp, outcome, output, created_at from moved, entry
           on conflict (shard, tenant, entity, entity_key, workflow, parked, phase, step, instance) do update
           set version = excluded.version, covers = excluded.covers, attempt = excluded.attempt,
             stamp = excluded.stamp, outcome = excluded.outcome, output = excluded.output)
         delete from honeyflow_failure where shard = $1 and tenant = $2 and entity = $3 and entity_key = $4
           and workflow = $5",
    )
    .bind(smallint(shard))
    .bind(&*run.tenant)
    .bind(&*run.entity)
    .bind(&*run.key)
    .bind(&*run.workflow)
    .bind(&*parked.step)
    .bind(parked.message.unwrap_or(0))
    .bind(row::kind_name(parked.kind))
    .bind(i16::from(parked.priority))
    .bind(integer(parked.version))
    .bind(integer(parked.attempts))
    .bind(class_name(parked.failure.class))
    .bind(&*parked.failure.code)
    .bind(&*parked.failure.message)
    .bind(parked.payload.as_deref())
    .bind(&parked.events)
    .bind(parked.change.text())
    .bind(parked.columns.as_deref());
    transaction.bound(statement).await.map(drop)
}

/// Moves a whole row to the parked entries, inside the database. If the row no longer exists, it is already parked and
/// this does nothing.
pub(super) async fn park_row(
    transaction: &mut OpenTransaction<'_>,
    event: EventId,
    failure: &Failure,
) -> Result<(), Error> {
    let statement = driver::query(
        "with done as (
           delete from honeyflow_outbox where id = $1
           returning tenant, entity, entity_key, coalesce(workflow, '') as workflow, id, format, kind, priority, payload,
             change, columns)
         insert into honeyflow_parked(tenant, entity, entity_key, workflow, event, format, kind, priority, attempts,
           class, code, message, payload, change, columns)
         select tenant, entity, entity_key, workflow, id, format, kind, priority, 0, $2, $3, $4, payload, change, columns
         from done
         on conflict (tenant, entity, entity_key, workflow, phase, step, instance, event) do update
         set format = excluded.format, kind = excluded.kind, priority = excluded.priority, attempts = excluded.attempts,
           class = excluded.class, code = excluded.code, message = excluded.message, payload = excluded.payload,
           change = excluded.change, columns = excluded.columns, parked_at = excluded.parked_at",
    )
    .bind(event)
    .bind(class_name(failure.class))
    .bind(&*failure.code)
    .bind(&*failure.message);
    transaction.bound(statement).await.map(drop)
}
