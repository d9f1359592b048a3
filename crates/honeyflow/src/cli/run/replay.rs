//! `honeyflow run replay`: queues a parked key again, with all its attempts. A run that has checkpoints continues from
//! them, under the definition version with which it began; a run without checkpoints begins with the newest version.

use honeyflow_event::Name;
use honeyflow_store::{
    Admin, AdminReply,
    admin::{ParkedFilter, ParkedRow, RetryMode},
};
use serde_json::Value;

use crate::{
    cli::{Context, Fault, Outcome, block_on, no_such, open, unexpected, workflow::stored},
    node::versions,
    registry::Database,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Workflow, as in [workflow.NAME]
    workflow: String,
    /// Entity, as in [entity.NAME]
    entity: String,
    /// Key, as `parked list` shows it
    key: String,
    /// Run this step and all steps that depend on it again, even if they have checkpoints
    #[arg(long, value_name = "STEP", conflicts_with = "newest")]
    from: Option<String>,
    /// Start again with the configured version and without checkpoints
    #[arg(long)]
    newest: bool,
}

const ROWS_MAX: u32 = 10_000;

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    let filter = ParkedFilter {
        workflow: Some(arguments.workflow.as_str().into()),
        entity: Some(arguments.entity.as_str().into()),
        key: Some(arguments.key.as_str().into()),
        ..ParkedFilter::default()
    };
    let mut replayed = 0;
    for source in &config.sources {
        let database = block_on(open(&config, source))??;
        replayed += match &arguments.from {
            Some(from) => from_step(&database, &arguments.workflow, from, &filter)?,
            None if arguments.newest => retry(&database, filter.clone(), RetryMode::FromStart)?,
            None => retry(&database, filter.clone(), RetryMode::Continue)?,
        };
    }
    if replayed == 0 {
        context
            .output
            .note("no event of this key is parked for this workflow; `honeyflow parked list` lists the parked events");
        return Ok(Outcome::Negative);
    }
    context.output.note(&format!("{replayed} replayed"));
    Ok(Outcome::Success)
}

fn retry(database: &Database, filter: ParkedFilter, again: RetryMode) -> Result<u64, Fault> {
    match block_on(database.admin(Admin::RetryParked { filter, mode: again }))?? {
        AdminReply::Count(count) => Ok(count),
        other => Err(unexpected(&other).into()),
    }
}

/// Replays each parked event from a step on. The dependencies between steps are those of the event's definition
/// version.
fn from_step(database: &Database, workflow: &str, from: &str, filter: &ParkedFilter) -> Result<u64, Fault> {
    let parked = block_on(database.admin(Admin::Parked { filter: filter.clone(), after: 0, limit: ROWS_MAX }))??;
    let AdminReply::Parked(rows) = parked else { return Err(unexpected(&parked).into()) };
    let versions = block_on(versions::stored(database, workflow))??;
    let again = rows.iter().map(|ParkedRow { id, version, .. }| {
        // The event was parked before a run began, so there is nothing to repeat.
        if *version == 0 {
            return Ok((*id, Vec::new()));
        }
        let content = &stored::find(workflow, *version, &versions)?.content;
        let definition: Value = serde_json::from_str(content).unwrap_or_default();
        let again = with_dependents(&definition, from).map_err(|steps| no_such("step", from, steps.into_iter()))?;
        Ok((*id, again))
    });
    // Check all events before changing the first one.
    let again: Vec<(i64, Vec<Name>)> = again.collect::<Result<_, Fault>>()?;
    let mut replayed = 0;
    for (id, steps) in again {
        let one = ParkedFilter { id: Some(id), ..filter.clone() };
        replayed += retry(database, one, RetryMode::Without(steps))?;
    }
    Ok(replayed)
}

/// The step and all steps that depend on it, directly or indirectly. If there is no such step: the names of all steps.
fn with_dependents<'d>(definition: &'d Value, from: &str) -> Result<Vec<Name>, Vec<&'d str>> {
    let steps: Vec<(&str, &Value)> =
        definition["step"].as_object().into_iter().flatten().map(|(name, step)| (name.as_str(), step)).collect();
    if !steps.iter().any(|(name, _)| *name == from) {
        return Err(steps.into_iter().map(|(name, _)| name).collect());
    }
    let needs = |step: &Value, other: &str| {
        let names = step["needs"].as_array().into_iter().flatten();
        names.filter_map(|need| need.as_str().or_else(|| need["step"].as_str())).any(|name| name == other)
    };
    let mut found = vec![from];
    let mut at = 0;
    while at < found.len() {
        let next = found[at];
        let new = |name: &&str| !found.contains(name);
        let dependents: Vec<&str> =
            steps.iter().filter(|(_, step)| needs(step, next)).map(|(name, _)| *name).filter(new).collect();
        found.extend(dependents);
        at += 1;
    }
    Ok(found.into_iter().map(Into::into).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wf_74_what_depends_on_a_step_runs_again() {
        let definition = json!({ "step": {
            "load": {}, "call": { "needs": ["load"] }, "mail": { "needs": [{ "step": "call", "on": "done" }] },
            "index": { "needs": ["load"] }, "end": { "needs": ["mail", "index"] },
        }});
        let again = |from: &str| {
            let mut steps = with_dependents(&definition, from).unwrap();
            steps.sort();
            steps.join(" ")
        };
        assert_eq!(again("call"), "call end mail");
        assert_eq!(again("end"), "end");
        assert_eq!(again("load"), "call end index load mail");
        assert_eq!(with_dependents(&definition, "none").unwrap_err().len(), 5);
    }
}
