//! `honeyflow workflow show`: the definition, and its graph drawn as text: needs before what needs them.

use honeyflow_workflow::{Edge, Graph, compile, definition::write};

use crate::{
    cli::{Context, Done, Fault, no_such},
    escape, registry,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// The workflow, as in [workflow.NAME]
    workflow: String,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Done, Fault> {
    let config = context.config()?;
    let names = || config.workflows.iter().map(|workflow| &*workflow.name);
    let workflow = config
        .workflows
        .iter()
        .find(|workflow| *workflow.name == *arguments.workflow)
        .ok_or_else(|| no_such("workflow", &arguments.workflow, names()))?;
    if context.output.is_json() {
        context.output.object(&write(workflow))?;
        return Ok(Done::Well);
    }
    // the configuration has been checked, so that it compiles
    let Ok(graph) = compile(workflow, 0, &registry::kinds()) else {
        return Err(Fault::usage("the workflow cannot be drawn", "honeyflow check"));
    };
    context.output.print(&escape::lines(&draw(&graph)))?;
    Ok(Done::Well)
}

fn draw(graph: &Graph) -> String {
    let mut text = format!("{}  {:016x}\n", graph.name, graph.hash);
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

/// Steps on the longest way to it.
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
