//! Acknowledges rows, stores counted attempts, and stores the history of runs.

use honeyflow_event::EventId;
use honeyflow_runtime::Failure;
use honeyflow_store::{RunKey, write::History};

use super::{OpenTransaction, integer, plan::Charge, smallint};
use crate::{
    append::DEDUPE,
    driver::{self, Error},
    literal,
};

/// Acknowledges rows and clears the journal of their runs. The journal is nearly always empty; then one statement is
/// enough.
pub(super) async fn settle(
    transaction: &mut OpenTransaction<'_>,
    events: &[EventId],
    runs: &[(u16, &RunKey)],
) -> Result<(), Error> {
    if !events.is_empty() {
        let ids = literal::integers(events);
        transaction.later(&format!(
            "with done as (delete from honeyflow_outbox where id = any ({ids}::bigint[])
               returning tenant, entity, entity_key, dedupe)
             insert into honeyflow_dedupe(tenant, entity, entity_key, dedupe, until_at)
             select distinct tenant, entity, entity_key, dedupe, statement_timestamp() + interval '{DEDUPE}' from done
             where dedupe is not null and entity <> ''
             on conflict (tenant, entity, entity_key, dedupe) do update set until_at = excluded.until_at"
        ));
    }
    clear(transaction, runs).await
}

/// Clears the journal of runs that have succeeded. A parked message carries its own data, so a later success heals only
/// parked entries that read the current data.
async fn clear(transaction: &mut OpenTransaction<'_>, runs: &[(u16, &RunKey)]) -> Result<(), Error> {
    const HEAL: &str = "with healed as (delete from honeyflow_parked p
           using unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[])
             as r(shard, tenant, entity, entity_key, workflow)
           where p.tenant = r.tenant and p.entity = r.entity and p.entity_key = r.entity_key
             and p.workflow = r.workflow and p.event = 0 returning p.id)
         delete from honeyflow_checkpoint c using healed where c.parked = healed.id";
    const CHECKPOINTS: &str = "delete from honeyflow_checkpoint c
         using unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[])
           as r(shard, tenant, entity, entity_key, workflow)
         where c.shard = r.shard and c.tenant = r.tenant and c.entity = r.entity and c.entity_key = r.entity_key
           and c.workflow = r.workflow and c.parked = 0";
    const FAILURES: &str = "delete from honeyflow_failure f
         using unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[])
           as r(shard, tenant, entity, entity_key, workflow)
         where f.shard = r.shard and f.tenant = r.tenant and f.entity = r.entity and f.entity_key = r.entity_key
           and f.workflow = r.workflow";
    if runs.is_empty() {
        return Ok(());
    }
    let needed = [(transaction.parked, HEAL), (transaction.checkpoints, CHECKPOINTS), (transaction.failures, FAILURES)];
    for (_, statement) in needed.into_iter().filter(|(needed, _)| *needed) {
        let statement = driver::query(statement)
            .bind(runs.iter().map(|(shard, _)| smallint(*shard)).collect::<Vec<_>>())
            .bind(runs.iter().map(|(_, run)| &*run.tenant).collect::<Vec<_>>())
            .bind(runs.iter().map(|(_, run)| &*run.entity).collect::<Vec<_>>())
            .bind(runs.iter().map(|(_, run)| &*run.key).collect::<Vec<_>>())
            .bind(runs.iter().map(|(_, run)| &*run.workflow).collect::<Vec<_>>());
        transaction.bound(statement).await?;
    }
    Ok(())
}

/// Stores counted attempts. A repeated write has the same number of attempts and must not delay the due time.
pub(super) async fn charge(transaction: &mut OpenTransaction<'_>, charges: &[Charge<'_>]) -> Result<(), Error> {
    let failures: Vec<String> = charges.iter().map(|charge| failure_text(charge.failure)).collect();
    let statement = driver::query(
        "insert into honeyflow_failure(shard, tenant, entity, entity_key, workflow, phase, step, instance, attempts,
           ready_at, failure)
         select shard, tenant, entity, entity_key, workflow, 0, step, instance, attempts,
           statement_timestamp() + due_ms * interval '1 millisecond', failure
         from unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::int[],
           $9::bigint[], $10::text[])
           as c(shard, tenant, entity, entity_key, workflow, step, instance, attempts, due_ms, failure)
         on conflict (shard, tenant, entity, entity_key, workflow, phase, step, instance) do update
         set attempts = excluded.attempts, ready_at = excluded.ready_at, failure = excluded.failure
         where excluded.attempts > honeyflow_failure.attempts",
    )
    .bind(charges.iter().map(|charge| smallint(charge.shard)).collect::<Vec<_>>())
    .bind(charges.iter().map(|charge| &*charge.run.tenant).collect::<Vec<_>>())
    .bind(charges.iter().map(|charge| &*charge.run.entity).collect::<Vec<_>>())
    .bind(charges.iter().map(|charge| &*charge.run.key).collect::<Vec<_>>())
    .bind(charges.iter().map(|charge| &*charge.run.workflow).collect::<Vec<_>>())
    .bind(charges.iter().map(|charge| charge.step).collect::<Vec<_>>())
    .bind(charges.iter().map(|charge| integer(charge.index)).collect::<Vec<_>>())
    .bind(charges.iter().map(|charge| integer(charge.attempts)).collect::<Vec<_>>())
    .bind(charges.iter().map(|charge| charge.due_ms).collect::<Vec<_>>())
    .bind(failures);
    transaction.bound(statement).await.map(drop)
}

/// Stores history entries once: a repeated write has the same steps, times included.
pub(super) async fn put_history(transaction: &mut OpenTransaction<'_>, histories: &[&History]) -> Result<(), Error> {
    let steps: Vec<String> = histories.iter().map(|history| history.steps.to_string()).collect();
    let statement = driver::query(
        "insert into honeyflow_run(tenant, entity, entity_key, workflow, version, verdict, steps)
         select distinct h.tenant, h.entity, h.entity_key, h.workflow, h.version, h.verdict, h.steps
         from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::int[], $6::text[], $7::text[])
           as h(tenant, entity, entity_key, workflow, version, verdict, steps)
         where not exists (select 1 from honeyflow_run r where r.entity = h.entity and r.entity_key = h.entity_key
           and r.workflow = h.workflow and r.tenant = h.tenant and r.version = h.version and r.verdict = h.verdict
           and r.steps = h.steps)",
    )
    .bind(histories.iter().map(|history| &*history.run.tenant).collect::<Vec<_>>())
    .bind(histories.iter().map(|history| &*history.run.entity).collect::<Vec<_>>())
    .bind(histories.iter().map(|history| &*history.run.key).collect::<Vec<_>>())
    .bind(histories.iter().map(|history| &*history.run.workflow).collect::<Vec<_>>())
    .bind(histories.iter().map(|history| integer(history.version)).collect::<Vec<_>>())
    .bind(histories.iter().map(|history| history.verdict).collect::<Vec<_>>())
    .bind(steps);
    transaction.bound(statement).await.map(drop)
}

/// Returns the failure as JSON. Serialising a failure cannot fail.
pub(super) fn failure_text(failure: &Failure) -> String {
    serde_json::to_string(failure).unwrap_or_default()
}
