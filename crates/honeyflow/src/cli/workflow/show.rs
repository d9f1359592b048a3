//! `honeyflow workflow show`: draws the graph of a workflow as text, each step after the steps that it needs; or prints
//! a stored version; or the difference between two versions.

use honeyflow_workflow::{Edge, Graph, compile, definition::write};
use serde_json::json;

use super::stored::{self, VersionRange};
use crate::{
    cli::{Context, Fault, Outcome, block_on, no_such},
    config::Config,
    escape, registry,
};

#[derive(clap::Args)]
#[command(disable_version_flag = true)]
pub struct Arguments {
    /// Workflow, as in [workflow.NAME]
    workflow: String,
    /// Show the definition of this version, as TOML
    #[arg(long, value_name = "N", conflicts_with = "diff")]
    version: Option<u32>,
    /// Show the changes from one version to another; `3..` compares with the configuration
    #[arg(long, value_name = "FROM..TO")]
    diff: Option<VersionRange>,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    if let Some(between) = arguments.diff {
        return diff(&arguments.workflow, between, &config, context);
    }
    if let Some(version) = arguments.version {
        return version_of(&arguments.workflow, version, &config, context);
    }
    let names = || config.workflows.iter().map(|workflow| &*workflow.name);
    let workflow = config
        .workflows
        .iter()
        .find(|workflow| *workflow.name == *arguments.workflow)
        .ok_or_else(|| no_such("workflow", &arguments.workflow, names()))?;
    if context.output.is_json() {
        context.output.object(&write(workflow))?;
        return Ok(Outcome::Success);
    }
    // The configuration has been checked, so the workflow compiles.
    let Ok(graph) = compile(workflow, 0, &registry::kinds()) else {
        return Err(Fault::usage("the workflow cannot be drawn", "run `honeyflow check`"));
    };
    // The drawing is useful even if the database cannot be read.
    let versions = block_on(stored::versions(&config, &workflow.name))?.unwrap_or_default();
    let version = stored::version_of(workflow, &versions);
    context.output.print(&escape::lines(&draw(&graph, version)))?;
    Ok(Outcome::Success)
}

fn version_of(workflow: &str, version: u32, config: &Config, context: &Context) -> Result<Outcome, Fault> {
    let versions = block_on(stored::versions(config, workflow))??;
    let found = stored::find(workflow, version, &versions)?;
    if context.output.is_json() {
        let definition: serde_json::Value = serde_json::from_str(&found.content).unwrap_or_default();
        context.output.object(&json!({
            "workflow": workflow, "version": version, "created_ms": found.created_ms, "definition": definition,
        }))?;
    } else {
        context.output.print(&escape::lines(&stored::toml(workflow, &found.content)))?;
    }
    Ok(Outcome::Success)
}

fn diff(workflow: &str, between: VersionRange, config: &Config, context: &Context) -> Result<Outcome, Fault> {
    let versions = block_on(stored::versions(config, workflow))??;
    let (from, to) = stored::both_sides(workflow, between, config, &versions)?;
    let text = stored::diff(workflow, &from, &to);
    if context.output.is_json() {
        context
            .output
            .object(&json!({ "workflow": workflow, "from": between.from, "to": between.to, "diff": text }))?;
    } else if text.is_empty() {
        context.output.note("the versions are equal");
    } else {
        context.output.print(&escape::lines(&text))?;
    }
    Ok(Outcome::Success)
}

fn draw(graph: &Graph, version: Option<u32>) -> String {
    let version = version.map_or_else(|| "not yet in use".to_owned(), |version| format!("version {version}"));
    let mut text = format!("{}  {version}  {:016x}\n", graph.name, graph.hash);
    for on in &graph.on {
        text.push_str(&format!("  ◇ {}.{}\n", on.source, on.entity));
    }
    for step in graph.topological() {
        let needs: Vec<String> = graph
            .needs(*step)
            .iter()
            .map(|(need, edge)| match edge {
                Edge::Success => graph[*need].name.to_string(),
                other => format!("{} ({})", graph[*need].name, other.word()),
            })
            .collect();
        let of = &graph[*step];
        let into = of
            .settings
            .get("into")
            .and_then(|into| into.as_str())
            .map_or_else(String::new, |into| format!(" ⇒ {into}"));
        let after = if needs.is_empty() { String::new() } else { format!("  ← {}", needs.join(", ")) };
        let depth = depth(graph, *step);
        text.push_str(&format!("  {}● {} [{}]{into}{after}\n", "│ ".repeat(depth.min(20)), of.name, of.kind));
    }
    text
}

/// The number of steps on the longest path to the step.
fn depth(graph: &Graph, step: honeyflow_workflow::StepId) -> usize {
    let mut depths = vec![0; graph.steps.len()];
    for at in graph.topological() {
        let above = graph.needs(*at).iter().map(|(need, _)| depths[usize::from(*need)] + 1).max();
        depths[usize::from(*at)] = above.unwrap_or(0);
        if *at == step {
            break;
        }
    }
    depths[usize::from(step)]
}
