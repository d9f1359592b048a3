//! Builds the engine's plan from the configuration; the plan refers to names by numbers.

use std::sync::Arc;

use honeyflow_engine::core::plan::{EntityPlan, Limits, Plan, SourcePlan, Version, WorkflowPlan};
use honeyflow_event::Name;
use honeyflow_hive::member::traits::shard_lease;
use honeyflow_runtime::Failure;
use honeyflow_workflow::{Graph, Problem, Role, compile};

use super::source::OpenSource;
use crate::{
    codes,
    config::Config,
    registry::{self, Installation},
};

/// Compiles the workflows of the configuration, without version numbers.
pub fn graphs(config: &Config) -> Result<Vec<Arc<Graph>>, Failure> {
    graphs_numbered(config, |_| 0)
}

/// Compiles the workflows with the version numbers that `number` gives.
pub fn graphs_numbered(config: &Config, number: impl Fn(&str) -> u32) -> Result<Vec<Arc<Graph>>, Failure> {
    let kinds = registry::kinds();
    let mut graphs = Vec::new();
    for definition in &config.workflows {
        let graph = compile(definition, number(&definition.name), &kinds).map_err(|problems| unsound(&problems))?;
        graphs.push(Arc::new(graph));
    }
    // Runs of one key are started in this order.
    graphs.sort_by(|a: &Arc<Graph>, b| {
        (a.definition.priority.unwrap_or(4), &a.name).cmp(&(b.definition.priority.unwrap_or(4), &b.name))
    });
    Ok(graphs)
}

pub fn unsound(problems: &[Problem]) -> Failure {
    let text: Vec<String> = problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
    Failure::fatal(codes::BAD_WORKFLOW, text.join("; "))
}

/// Builds the plan. `versions` and `installed` have one entry per source: the meaning of the version numbers in its
/// store, and its installation.
pub fn plan(
    config: &Config,
    current: &[Arc<Graph>],
    older: &[Arc<Graph>],
    versions: Vec<Vec<Version>>,
    sources: &[OpenSource],
    installed: &[Installation],
) -> Plan {
    let mut kinds: Vec<Name> = vec!["expression".into()];
    let mut targets: Vec<Name> = Vec::new();
    let number = |names: &mut Vec<Name>, name: &str| -> u16 {
        let at = names.iter().position(|known| &**known == name).unwrap_or_else(|| {
            names.push(name.into());
            names.len() - 1
        });
        u16::try_from(at).unwrap_or(u16::MAX)
    };
    let workflows: Vec<Arc<WorkflowPlan>> = current
        .iter()
        .map(|graph| (graph, false))
        .chain(older.iter().map(|graph| (graph, true)))
        .map(|(graph, older)| {
            Arc::new(WorkflowPlan {
                name: graph.name.clone(),
                older,
                graph: graph.clone(),
                priority: graph.definition.priority,
                exclusion: graph.definition.exclusion,
                order: graph.definition.order,
                kinds: graph.steps.iter().map(|step| number(&mut kinds, &step.kind)).collect(),
                targets: graph.steps.iter().map(|step| number(&mut targets, &target(graph, step))).collect(),
            })
        })
        .collect();
    let mut planned = Vec::new();
    let opened = sources.iter().zip(installed);
    for (port, ((source, versions), (open, installed))) in config.sources.iter().zip(versions).zip(opened).enumerate() {
        let first = SourcePlan {
            name: source.name.clone(),
            install_id: installed.install_id.as_u128(),
            port,
            lease: "".into(),
            shard: 0,
            payload_bytes_max: source.payload_bytes_max,
            entities: entities(open, current, older),
            leads: leads(config, &source.name),
            versions,
        };
        planned.extend((0..installed.shards).map(|shard| SourcePlan {
            lease: shard_lease(&source.name, u32::from(shard)),
            shard,
            ..first.clone()
        }));
    }
    let limits = Limits {
        runs_max: config.engine.max_runs,
        rows_max: config.engine.rows_max,
        rows_per_key_max: config.engine.rows_per_key_max,
        waiting_runs_max: config.engine.waiting_runs_max,
        poll_rows_max: config.engine.poll_rows_max,
        poll_idle: config.engine.poll_idle,
        parked_per_minute_max: config.engine.parked_per_minute_max,
        fan_out_page: config.engine.fan_out_page,
        fan_out_pending_max: config.engine.fan_out_pending_max,
        ..Limits::default()
    };
    Plan { sources: planned, workflows, kinds, targets, limits }
}

/// The name of the step's target; each target has a breaker.
fn target(graph: &Graph, step: &honeyflow_workflow::Step) -> String {
    let text = |name: &str| step.settings.get(name).and_then(|value| value.as_str());
    match step.role {
        Role::Sink => format!("sink {}", text("into").unwrap_or("?")),
        Role::Load => format!("source {}", graph.on.first().map_or("?", |on| &*on.source)),
        _ => match text("url") {
            Some(url) => format!("host {}", url.split('/').nth(2).unwrap_or(url)),
            None => format!("step {}.{}", graph.name, step.name),
        },
    }
}

/// Maps the name in an outbox row to entities. A row names an entity or a captured table; a table leads to every entity
/// whose document reads it.
fn leads(config: &Config, source: &str) -> Vec<(Name, Vec<Name>)> {
    let mut leads: Vec<(Name, Vec<Name>)> = Vec::new();
    let mut add = |name: &str, entity: &Name| match leads.iter_mut().find(|(known, _)| &**known == name) {
        Some((_, entities)) if entities.contains(entity) => {}
        Some((_, entities)) => entities.push(entity.clone()),
        None => leads.push((name.into(), vec![entity.clone()])),
    };
    for name in config.messages_of(source) {
        add(name, name);
    }
    for entity in config.entities_of(source) {
        add(&entity.name, &entity.name);
        add(&entity.table, &entity.name);
        entity.edges.iter().for_each(|edge| add(&edge.table, &entity.name));
    }
    leads
}

/// The entities of a source with the workflows that they start. Entities of earlier definition versions are included,
/// so that their runs can continue, but they start no new runs.
fn entities(source: &OpenSource, current: &[Arc<Graph>], older: &[Arc<Graph>]) -> hashbrown::HashMap<Name, EntityPlan> {
    let mut names: Vec<Name> = source.bound.iter().map(|bound| bound.entity.name.clone()).collect();
    for on in current.iter().chain(older).flat_map(|graph| &graph.on).filter(|on| on.source == source.name) {
        if !names.contains(&on.entity) {
            names.push(on.entity.clone());
        }
    }
    let starts =
        |graph: &Graph, entity: &Name| graph.on.iter().any(|on| on.source == source.name && on.entity == *entity);
    let key = |name: &Name| source.entity(name).map(|bound| bound.entity.key.iter().map(|part| part.kind).collect());
    names
        .into_iter()
        .enumerate()
        .map(|(id, name)| {
            let workflows =
                current.iter().enumerate().filter(|(_, graph)| starts(graph, &name)).map(|(at, _)| at).collect();
            let (id, key) = (u16::try_from(id).unwrap_or(u16::MAX), key(&name).unwrap_or_default());
            (name, EntityPlan { id, key, workflows })
        })
        .collect()
}
