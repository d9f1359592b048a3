//! `honeyflow verify`: compares every row with its document, and every document with its row.

use indicatif::ProgressBar;

use super::{Context, Fault, Outcome, no_such};
use crate::{
    config::Config,
    node::{
        command_node::CommandNode,
        plan,
        source::OpenSource,
        verify::{self, Verification, VerifyReport},
    },
    registry,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Entity, as in [entity.NAME] [default: all entities]
    entity: Option<String>,
    /// Queue an event for every difference and wait until it is processed
    #[arg(long)]
    repair: bool,
}

pub async fn run(arguments: Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    if let Some(name) = &arguments.entity
        && config.entity(name).is_none()
    {
        return Err(no_such("entity", name, config.entities.iter().map(|entity| &*entity.name)));
    }
    let (mut all, mut complete) = (Vec::new(), true);
    for source in &config.sources {
        let open = OpenSource::open(&config, source).await?;
        open.install_id().await?;
        let (verified, all_there) = verify_source(&arguments, &config, &open).await?;
        complete &= all_there;
        if arguments.repair && verified.iter().any(|verified| verified.repaired > 0) {
            let bar = ProgressBar::new_spinner();
            let worker = CommandNode::begin(&config).await?;
            worker.finish(&config, &open, |left| bar.set_message(format!("{left} repairs left"))).await?;
            bar.finish_and_clear();
        }
        all.extend(verified);
    }
    let equal = all.iter().all(|verified| verified.is_equal() || (arguments.repair && verified.held == 0));
    print(&all, arguments.repair, context)?;
    Ok(if equal && complete { Outcome::Success } else { Outcome::Negative })
}

/// Verifies the entities of one source. The second value says whether every index existed and could be compared.
async fn verify_source(
    arguments: &Arguments,
    config: &Config,
    open: &OpenSource,
) -> Result<(Vec<VerifyReport>, bool), Fault> {
    let graphs = plan::graphs(config)?;
    let (mut verified, mut all_there) = (Vec::new(), true);
    for bound in &open.bound {
        let name = &bound.entity.name;
        if arguments.entity.as_ref().is_some_and(|wanted| **wanted != **name) {
            continue;
        }
        for graph in graphs.iter().filter(|graph| graph.on.iter().any(|on| on.entity == *name)) {
            let into = graph.steps.iter().find_map(|step| step.settings.get("into")?.as_str());
            let Some(sink) = into.and_then(|into| config.sink(into)) else { continue };
            if !verify::is_possible(graph) {
                eprintln!(
                    "workflow {} builds its documents from events, not from rows: nothing to compare",
                    graph.name
                );
                continue;
            }
            let Some(index) = registry::reading_sink(sink, config)? else {
                eprintln!("the index of {} does not exist yet: `honeyflow start` creates it", sink.name);
                all_there = false;
                continue;
            };
            if registry::is_building(sink, &config.node)? {
                let name = &sink.name;
                eprintln!("the next generation of {name} is being built; comparing the current one");
            }
            let bar = ProgressBar::new_spinner();
            let store = &open.database.store;
            let verification = Verification { store, bound, sink: &*index, graph };
            verified.push(
                verification
                    .run(arguments.repair, |seen| {
                        bar.set_message(format!("{name}: {seen} rows and documents compared"));
                    })
                    .await?,
            );
            bar.finish_and_clear();
        }
    }
    Ok((verified, all_there))
}

fn print(all: &[VerifyReport], is_repair: bool, context: &Context) -> Result<(), Fault> {
    if context.output.is_json() {
        for verified in all {
            context.output.object(verified)?;
        }
        return Ok(());
    }
    for verified in all {
        let VerifyReport { entity, rows, documents, missing, stale, extra, .. } = verified;
        let verdict = if verified.is_equal() { "equal" } else { "DIFFERENT" };
        let how = if verified.compared == "content" { "" } else { " (compared only whether a document exists)" };
        context.output.print(&format!(
            "{entity}: {verdict}: {rows} rows, {documents} documents; {missing} missing, {stale} stale, {extra} extra{how}\n"
        ))?;
        for (key, kind) in verified.differences.iter().take(20) {
            let key = crate::escape::line(key);
            context.output.print(&format!("  {key}: {}\n", format!("{kind:?}").to_lowercase()))?;
        }
        if verified.held > 0 {
            context.output.print(&format!("  {} documents without a row are held\n", verified.held))?;
            context
                .output
                .note(&format!("if their rows were deleted on purpose, run: honeyflow source confirm SOURCE {entity}"));
        }
        if verified.repaired > 0 {
            context.output.print(&format!("  {} repaired\n", verified.repaired))?;
        } else if !verified.is_equal() && !is_repair {
            context.output.note("repair it with: honeyflow verify --repair");
        }
    }
    Ok(())
}
