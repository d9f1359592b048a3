//! The first fill: queues the rows that were there before a workflow, for the workflows that they reach. Each workflow
//! has its own progress, so that a new entity or workflow runs nothing else again.

use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_sink_tantivy::TantivySink;
use honeyflow_workflow::{Definition, Requeue};

use super::{
    reindex::{self, Position, Rows},
    shape,
    source::OpenSource,
};
use crate::{
    codes,
    config::{Config, SinkConfig, existing, sinks_of},
    registry::{self, BoundEntity, Database},
};

/// Queues an event with the reindex priority for every row that a workflow has not had: rows from before the triggers
/// were installed, rows from before the workflow, and all rows if an index of the workflow is empty.
pub async fn fill(config: &Config, open: &OpenSource) -> Result<(), Failure> {
    for bound in &open.bound {
        let all: Vec<&Name> = of_entity(config, &bound.entity.name).map(|workflow| &workflow.name).collect();
        reindex::adopt_entity_position(&open.database, &bound.entity, &all).await?;
    }
    for line in expected_effects(config, &open.database, &open.bound).await? {
        tracing::warn!("{line}");
    }
    for bound in &open.bound {
        for workflow in filled(config, &bound.entity.name) {
            let (entity, workflow_name) = (&bound.entity, &workflow.name);
            let rows = Rows { database: &open.database, entity, workflow: workflow_name };
            let Some(position) = due(config, workflow, &rows).await? else { continue };
            let events = rows.queue_all(position).await?;
            tracing::info!(entity = %entity.name, workflow = %workflow_name, events, "queued the rows that already existed");
        }
        reindex::note_filled(&open.database, &bound.entity).await?;
    }
    Ok(())
}

/// Returns one line for each workflow with side effects that a fill would run now, with the number of rows: for the
/// question before a first start, for `check` and for the log.
pub async fn expected_effects(
    config: &Config,
    database: &Database,
    bound: &[BoundEntity],
) -> Result<Vec<String>, Failure> {
    let kinds = registry::kinds();
    let is_installed = database.installed().await?.is_some();
    let mut lines = Vec::new();
    for bound in bound {
        for workflow in filled(config, &bound.entity.name) {
            let effects = existing::side_effects(workflow, &kinds, &config.sinks);
            let rows = Rows { database, entity: &bound.entity, workflow: &workflow.name };
            if effects.is_empty() || (is_installed && due(config, workflow, &rows).await?.is_none()) {
                continue;
            }
            let count = rows.count().await?;
            if count > 0 {
                let (entity, name, effects) = (&bound.entity.name, &workflow.name, effects.join(", "));
                let rows = if count == 1 { "row" } else { "rows" };
                let count = grouped(count);
                lines.push(format!("{count} {rows} of {entity} will run workflow {name}, with {effects}"));
            }
        }
    }
    Ok(lines)
}

/// The workflows of the entity.
fn of_entity<'a>(config: &'a Config, entity: &str) -> impl Iterator<Item = &'a Definition> {
    config.workflows.iter().filter(move |workflow| workflow.on.iter().any(|on| *on.entity == *entity))
}

/// The workflows that rows of the entity reach by a first fill.
fn filled<'a>(config: &'a Config, entity: &str) -> Vec<&'a Definition> {
    let kinds = registry::kinds();
    config.workflows.iter().filter(|workflow| workflow.is_reached(entity, Requeue::FirstFill, &kinds)).collect()
}

/// The workflows that rows of the entity reach by a reindex.
pub fn reindexed<'a>(config: &'a Config, entity: &str) -> Vec<&'a Definition> {
    let kinds = registry::kinds();
    config.workflows.iter().filter(|workflow| workflow.is_reached(entity, Requeue::Again, &kinds)).collect()
}

/// Returns the position at which a fill that is due begins.
async fn due(config: &Config, workflow: &Definition, rows: &Rows<'_>) -> Result<Option<Position>, Failure> {
    let position = rows.position().await?;
    let is_due = match position.is_done() {
        true => has_empty_sink(config, workflow).await?,
        false => !is_left_to_generations(config, workflow).await?,
    };
    Ok(is_due.then_some(position))
}

/// Whether a sink of the workflow is missing or empty, for example after its folder was removed.
async fn has_empty_sink(config: &Config, workflow: &Definition) -> Result<bool, Failure> {
    for sink in sinks_of(workflow).filter_map(|(_, into)| config.sink(into)) {
        if is_empty(config, sink).await? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether every sink of the workflow is an index with documents for which the next generation will be built: that
/// reads all rows, too.
async fn is_left_to_generations(config: &Config, workflow: &Definition) -> Result<bool, Failure> {
    let mut is_left = false;
    for sink in sinks_of(workflow).filter_map(|(_, into)| config.sink(into)) {
        if sink.table.is_some() || shape::feeds(config, &sink.name).is_none() {
            return Ok(false);
        }
        let mut options = registry::sink_options(sink, &config.node)?;
        options.shape = shape::lines(config, &sink.name);
        // An index that cannot be opened is reported when the node opens it.
        if !TantivySink::looks_outdated(&options).unwrap_or(false) || is_empty(config, sink).await? {
            return Ok(false);
        }
        is_left = true;
    }
    Ok(is_left)
}

/// Whether the sink is missing or empty. An index that must be rebuilt does not count as empty: opening it reports the
/// failure.
async fn is_empty(config: &Config, sink: &SinkConfig) -> Result<bool, Failure> {
    match registry::reading_sink(sink, config) {
        Ok(Some(opened)) => match opened.list(None, 1).await {
            Ok((hits, next)) => Ok(hits.is_empty() && next.is_none()),
            // The cluster is unreachable: `verify` will show what it holds.
            Err(failure) if sink.table.is_some() => {
                tracing::warn!(sink = %sink.name, %failure, "cannot check whether the table is empty");
                Ok(false)
            }
            Err(failure) => Err(failure),
        },
        Ok(None) => Ok(true),
        Err(failure) => Ok(failure.code == codes::INDEX_MISSING),
    }
}

/// `12345` → `12,345`
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (n, digit) in digits.chars().enumerate() {
        if n > 0 && (digits.len() - n).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ob_97_counts_are_grouped_by_thousands() {
        let texts = [0, 999, 1000, 12_000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "12,000", "1,234,567"]);
    }
}
