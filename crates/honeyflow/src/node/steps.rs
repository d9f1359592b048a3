//! Builds the steps of a workflow from their configuration.

use std::{path::Path, sync::Arc};

use honeyflow_evaluate::Pool;
use honeyflow_event::Name;
use honeyflow_runtime::Failure;
use honeyflow_sink::{IndexStep, Sink};
use honeyflow_step::Step;
use honeyflow_step_control::Inline;
use honeyflow_step_http::{HttpStep, SystemLookup};
use honeyflow_step_sql::LoadStep;
use honeyflow_step_transform::TransformStep;
use honeyflow_store::{Statement, Store};
use honeyflow_workflow::{Expression, Graph, Problem, Role};
use serde_json::Value;

use super::source::OpenSource;
use crate::{
    codes,
    config::{Config, Url},
};

/// Threads of each `transform` step.
const TRANSFORM_THREADS: usize = 2;
/// Threads of each `http.call` step that render its templates.
const RENDER_THREADS: usize = 1;

/// The number of batches of a kind that this node processes at the same time.
pub fn concurrency(kind: &str) -> u32 {
    match kind {
        // One batch is read while the next one is passed on: the database has a single reader connection.
        "sql.load" => 2,
        // The batches wait for a common commit.
        "search.index" => 16,
        // Each batch has many requests in flight.
        "cassandra.write" => 4,
        "http.call" => 8,
        _ => 2,
    }
}

/// Builds all steps of a graph. `folder` is the base of references to secret files.
pub fn build(
    folder: &Path,
    graph: &Graph,
    sources: &[OpenSource],
    sinks: &[(Name, Arc<dyn Sink>)],
    pool: &Pool,
) -> Result<Vec<Arc<dyn Step>>, Failure> {
    let sources: Vec<&OpenSource> = sources.iter().collect();
    graph.steps.iter().map(|step| build_one(folder, graph, step, &sources, sinks, pool)).collect()
}

fn build_one(
    folder: &Path,
    graph: &Graph,
    step: &honeyflow_workflow::Step,
    sources: &[&OpenSource],
    sinks: &[(Name, Arc<dyn Sink>)],
    pool: &Pool,
) -> Result<Arc<dyn Step>, Failure> {
    let place = format!("workflow.{}.step.{}", graph.name, step.name);
    let text = |name: &str| step.settings.get(name).and_then(|value| value.as_str());
    let bad = |message: String| Failure::fatal(codes::BAD_STEP, format!("{place}: {message}"));
    if matches!(step.role, Role::Sleep | Role::Emit | Role::Wait) {
        return Ok(Arc::new(Inline));
    }
    Ok(match &*step.kind {
        "sql.load" => {
            let on = graph.on.first().ok_or_else(|| bad("sql.load needs an entity in `on`".to_owned()))?;
            let source = sources
                .iter()
                .find(|source| source.name == on.source)
                .ok_or_else(|| bad(format!("no source {}", on.source)))?;
            let own = source.document(&on.entity).ok_or_else(|| bad(format!("no entity {}", on.entity)))?;
            let statement = match text("query") {
                Some(query) => Arc::new(Statement { place, text: query.to_owned(), ..(**own).clone() }),
                None => own.clone(),
            };
            let store: Arc<dyn Store> = source.database.store.clone();
            Arc::new(LoadStep::new(store, statement))
        }
        "search.index" | "cassandra.write" => {
            let into = text("into").unwrap_or_default();
            let (_, sink) =
                sinks.iter().find(|(name, _)| &**name == into).ok_or_else(|| bad(format!("no sink {into}")))?;
            Arc::new(IndexStep::new(sink.clone()))
        }
        "transform" => {
            let expression = text("expression").unwrap_or(".");
            let expression = Expression::parse(expression).map_err(|error| bad(error.to_string()))?;
            Arc::new(TransformStep::on(Arc::new(pool.beside(TRANSFORM_THREADS)), expression))
        }
        "http.call" => {
            let secret = |reference: &str| {
                let secret = Url::read(reference, folder).resolve().map_err(|unresolved| unresolved.to_string())?;
                Ok(secret.reveal().to_owned())
            };
            let config = honeyflow_step_http::Config::read(&step.settings, &secret);
            let config = config.map_err(|error| bad(error.to_string()))?;
            let pool = Arc::new(pool.beside(RENDER_THREADS));
            let step = HttpStep::on(pool, &config, Arc::new(SystemLookup));
            Arc::new(step.map_err(|error| bad(error.to_string()))?)
        }
        other => return Err(bad(format!("this build has no step kind {other}"))),
    })
}

/// Builds every step except those of sinks, which have no settings of their own. The sources need not be installed.
pub fn try_build(folder: &Path, graphs: &[Arc<Graph>], sources: &[&OpenSource]) -> Result<(), Failure> {
    let pool = Pool::new(1);
    for graph in graphs {
        for step in graph.steps.iter().filter(|step| !matches!(&*step.kind, "search.index" | "cassandra.write")) {
            build_one(folder, graph, step, sources, &[], &pool)?;
        }
    }
    Ok(())
}

/// The references to secrets in the headers of `http.call`, each with the key that contains it.
pub fn secrets(config: &Config, folder: &Path) -> Vec<(String, Url)> {
    let mut found = Vec::new();
    for workflow in &config.workflows {
        for step in workflow.steps.iter().filter(|step| &*step.kind == "http.call") {
            for (name, value) in step.settings.get("headers").and_then(Value::as_object).into_iter().flatten() {
                if let Some(reference) = value.as_str().and_then(honeyflow_step_http::secret_reference) {
                    let path = format!("workflow.{}.step.{}.headers.{name}", workflow.name, step.name);
                    found.push((path, Url::read(reference, folder)));
                }
            }
        }
    }
    found
}

/// The problems that would stop a start, as far as they can be found without opening anything. Secrets are not
/// resolved: they may be available only to the node.
pub fn problems(config: &Config) -> Vec<Problem> {
    let refused = |settings| {
        let config = honeyflow_step_http::Config::read(settings, &|_| Ok("secret".to_owned()))?;
        HttpStep::new(&config).map(drop)
    };
    let mut problems = Vec::new();
    for workflow in &config.workflows {
        for step in workflow.steps.iter().filter(|step| &*step.kind == "http.call") {
            if let Err(error) = refused(&step.settings) {
                let path = format!("workflow.{}.step.{}", workflow.name, step.name);
                problems.push(Problem::error(path, codes::problem::BAD_STEP, error.to_string()));
            }
        }
    }
    problems
}
