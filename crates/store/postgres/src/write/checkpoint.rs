//! Checkpoints: stored outputs of steps, so that a repeated run does not execute those steps again.

use hashbrown::HashSet;
use honeyflow_store::{
    NewEvent,
    write::{Checkpoint, CheckpointOutcome},
};

use super::{OpenTransaction, integer, settle::failure_text, smallint};
use crate::{
    append,
    driver::{self, Error, PgRow, Row},
};

/// Stores checkpoints. The first outcome stays; only the start of a wait is replaced by its end. The emitted events are
/// stored in the same transaction.
pub(super) async fn put(
    transaction: &mut OpenTransaction<'_>,
    checkpoints: &[(u16, &Checkpoint)],
) -> Result<(), Error> {
    let (outcomes, outputs): (Vec<&str>, Vec<Option<String>>) =
        checkpoints.iter().map(|(_, checkpoint)| outcome(&checkpoint.outcome)).unzip();
    // PostgreSQL requires all rows of an array of arrays to have the same length, so each list is sent as text.
    let covers: Vec<String> =
        checkpoints.iter().map(|(_, checkpoint)| append::array_text(&checkpoint.covers)).collect();
    let statement = driver::query(
        "insert into honeyflow_checkpoint(shard, tenant, entity, entity_key, workflow, phase, step, instance, version,
           covers, attempt, stamp, outcome, output)
         select shard, tenant, entity, entity_key, workflow, phase, step, instance, version, covers::bigint[], attempt,
           stamp, outcome, output
         from unnest($1::smallint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[], $8::int[],
           $9::int[], $10::text[], $11::int[], $12::bigint[], $13::text[], $14::text[])
           as c(shard, tenant, entity, entity_key, workflow, phase, step, instance, version, covers, attempt, stamp,
             outcome, output)
         on conflict (shard, tenant, entity, entity_key, workflow, parked, phase, step, instance) do update
         set attempt = excluded.attempt, stamp = excluded.stamp, outcome = excluded.outcome, output = excluded.output
         where honeyflow_checkpoint.outcome = 'until' and excluded.outcome <> 'until'
         returning shard, tenant, entity, entity_key, workflow, phase, step, instance",
    )
    .bind(checkpoints.iter().map(|(shard, _)| smallint(*shard)).collect::<Vec<_>>())
    .bind(checkpoints.iter().map(|(_, checkpoint)| &*checkpoint.run.tenant).collect::<Vec<_>>())
    .bind(checkpoints.iter().map(|(_, checkpoint)| &*checkpoint.run.entity).collect::<Vec<_>>())
    .bind(checkpoints.iter().map(|(_, checkpoint)| &*checkpoint.run.key).collect::<Vec<_>>())
    .bind(checkpoints.iter().map(|(_, checkpoint)| &*checkpoint.run.workflow).collect::<Vec<_>>())
    .bind(checkpoints.iter().map(|(_, checkpoint)| integer(checkpoint.phase)).collect::<Vec<_>>())
    .bind(checkpoints.iter().map(|(_, checkpoint)| &*checkpoint.step).collect::<Vec<_>>())
    .bind(checkpoints.iter().map(|(_, checkpoint)| integer(checkpoint.index)).collect::<Vec<_>>())
    .bind(checkpoints.iter().map(|(_, checkpoint)| integer(checkpoint.version)).collect::<Vec<_>>())
    .bind(covers)
    .bind(checkpoints.iter().map(|(_, checkpoint)| integer(checkpoint.attempt)).collect::<Vec<_>>())
    .bind(checkpoints.iter().map(|(_, checkpoint)| checkpoint.stamp.0.cast_signed()).collect::<Vec<_>>())
    .bind(outcomes)
    .bind(outputs);
    let rows = transaction.bound(statement).await?;
    if checkpoints.iter().all(|(_, checkpoint)| checkpoint.emit.is_empty()) {
        return Ok(());
    }
    let stored: HashSet<CheckpointKey> = rows.iter().map(checkpoint_key).collect::<Result<_, _>>()?;
    let stored_now = |(shard, checkpoint): &&(u16, &Checkpoint)| {
        let run = &checkpoint.run;
        let texts = [&run.tenant, &run.entity, &run.key, &run.workflow, &checkpoint.step].map(ToString::to_string);
        stored.contains(&(smallint(*shard), texts, integer(checkpoint.phase), integer(checkpoint.index)))
    };
    let emitted: Vec<&NewEvent> =
        checkpoints.iter().filter(stored_now).flat_map(|(_, checkpoint)| &checkpoint.emit).collect();
    append::insert_all(transaction.connection, &emitted).await.map(drop)
}

/// The key of a checkpoint: shard, names, phase, index.
type CheckpointKey = (i16, [String; 5], i32, i32);

fn checkpoint_key(row: &PgRow) -> Result<CheckpointKey, Error> {
    let texts = [row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?, row.try_get(6)?];
    Ok((row.try_get(0)?, texts, row.try_get(5)?, row.try_get(7)?))
}

fn outcome(outcome: &CheckpointOutcome) -> (&'static str, Option<String>) {
    match outcome {
        CheckpointOutcome::Done(document) => ("done", document.as_ref().map(ToString::to_string)),
        CheckpointOutcome::Failed(failure) => ("failed", Some(failure_text(failure))),
        CheckpointOutcome::Skipped => ("skipped", None),
        CheckpointOutcome::Until(at_ms) => ("until", Some(at_ms.to_string())),
    }
}
