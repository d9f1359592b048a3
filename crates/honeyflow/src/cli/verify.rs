//! `honeyflow verify`: compares every row with its document, and every document with its row.

use honeyflow_event::Name;
use honeyflow_workflow::Graph;

use super::{Context, Fault, Outcome, no_such, progress::ProgressLine};
use crate::{
    config::{Config, SinkConfig},
    escape,
    node::{
        command_node::CommandNode,
        plan,
        source::OpenSource,
        verify::{self, NotRepaired, Repairs, Stage, Verification, VerifyReport},
    },
    registry::{self, BoundEntity},
};

/// The largest number of keys that are listed for people; JSON lists all.
const LISTED_MAX: usize = 20;

#[derive(clap::Args)]
pub struct Arguments {
    /// Entity, as in [entity.NAME] [default: all entities]
    entity: Option<String>,
    /// Queue an event for every difference, wait for these events, and compare again
    #[arg(long)]
    repair: bool,
}

/// One comparison: the rows of an entity with the documents that a workflow writes into a sink.
struct Comparison<'a> {
    bound: &'a BoundEntity,
    graph: &'a Graph,
    sink: &'a SinkConfig,
}

pub async fn run(arguments: Arguments, context: &Context) -> Result<Outcome, Fault> {
    let config = context.config()?;
    if let Some(name) = &arguments.entity
        && config.entity(name).is_none()
    {
        return Err(no_such("entity", name, config.entities.iter().map(|entity| &*entity.name)));
    }
    let graphs = plan::graphs(&config)?;
    let (mut all, mut complete) = (Vec::new(), true);
    for source in &config.sources {
        let open = OpenSource::open(&config, source).await?;
        open.install_id().await?;
        let mut compared = Vec::new();
        for bound in &open.bound {
            let name = &bound.entity.name;
            if arguments.entity.as_ref().is_some_and(|wanted| **wanted != **name) {
                continue;
            }
            for graph in graphs.iter().filter(|graph| graph.on.iter().any(|on| on.entity == *name)) {
                let into = graph.steps.iter().find_map(|step| step.settings.get("into")?.as_str());
                let Some(sink) = into.and_then(|into| config.sink(into)) else { continue };
                let comparison = Comparison { bound, graph, sink };
                match comparison.run(&config, &open, arguments.repair, context).await? {
                    Compared::Done(report, repairs) => compared.push((comparison, *report, repairs)),
                    Compared::Impossible => {}
                    Compared::NoIndex => complete = false,
                }
            }
        }
        repair(&config, &open, &mut compared, context).await?;
        all.extend(compared.into_iter().map(|(_, report, _)| report));
    }
    let is_fine = |report: &VerifyReport| report.is_equal() || (arguments.repair && report.is_repaired());
    print(&all, arguments.repair, context)?;
    Ok(if all.iter().all(is_fine) && complete { Outcome::Success } else { Outcome::Negative })
}

enum Compared {
    Done(Box<VerifyReport>, Repairs),
    /// The documents are built from events, not from rows.
    Impossible,
    NoIndex,
}

impl Comparison<'_> {
    async fn run(
        &self,
        config: &Config,
        open: &OpenSource,
        is_repair: bool,
        context: &Context,
    ) -> Result<Compared, Fault> {
        let Comparison { bound, graph, sink } = *self;
        if !verify::is_possible(graph) {
            let name = &graph.name;
            eprintln!("workflow {name} builds its documents from events, not from rows: nothing to compare");
            return Ok(Compared::Impossible);
        }
        let Some(index) = registry::reading_sink(sink, config)? else {
            eprintln!("the index of {} does not exist yet: `honeyflow start` creates it", sink.name);
            return Ok(Compared::NoIndex);
        };
        if registry::is_building(sink, &config.node)? {
            let name = &sink.name;
            eprintln!("the next generation of {name} is being built; comparing the current one");
        }
        let verification = Verification { store: &open.database.store, bound, sink: &*index, graph };
        let mut progress = ProgressLine::new(&context.output);
        let name = &bound.entity.name;
        let mut report = verification.run(|stage| progress.say(sentence(name, stage))).await?;
        progress.end();
        let repairs = if is_repair { verification.queue_repairs(&mut report).await? } else { Repairs::default() };
        Ok(Compared::Done(Box::new(report), repairs))
    }
}

fn sentence(entity: &Name, stage: Stage) -> String {
    match stage {
        Stage::Compared(seen) => format!("{entity}: {seen} rows and documents compared"),
        Stage::Unexplained(count) => format!("{entity}: {count} differences; waiting for events that may explain them"),
    }
}

/// Waits until the queued repairs are processed, and compares their keys again.
async fn repair(
    config: &Config,
    open: &OpenSource,
    compared: &mut [(Comparison<'_>, VerifyReport, Repairs)],
    context: &Context,
) -> Result<(), Fault> {
    let repairs = || compared.iter().map(|(_, _, repairs)| repairs).filter(|repairs| !repairs.is_empty());
    if repairs().next().is_none() {
        return Ok(());
    }
    let worker = CommandNode::begin(config).await?;
    let mut progress = ProgressLine::new(&context.output);
    let waited = tokio::select! {
        waited = verify::until_processed(&open.database.store, repairs(), |left| {
            progress.say(format!("repairs left: {left}; what fails is tried again and then parked"));
        }) => waited,
        ended = worker.ended() => Err(ended),
    };
    progress.end();
    waited?;
    for (comparison, report, repairs) in compared.iter_mut().filter(|(_, _, repairs)| !repairs.is_empty()) {
        let Comparison { bound, graph, sink } = *comparison;
        // Opened again, to see what the repairs have written.
        let Some(index) = registry::reading_sink(sink, config)? else { continue };
        let verification = Verification { store: &open.database.store, bound, sink: &*index, graph };
        verification.check_repairs(repairs, report).await?;
    }
    worker.end(config).await;
    Ok(())
}

fn print(all: &[VerifyReport], is_repair: bool, context: &Context) -> Result<(), Fault> {
    if context.output.is_json() {
        for verified in all {
            context.output.object(verified)?;
        }
        return Ok(());
    }
    for verified in all {
        let VerifyReport { entity, rows, documents, missing, stale, extra, unreadable, .. } = verified;
        let verdict = if verified.is_equal() { "equal" } else { "DIFFERENT" };
        let how = if verified.compared == "content" { "" } else { " (compared only whether a document exists)" };
        context.output.print(&format!(
            "{entity}: {verdict}: {rows} rows, {documents} documents; {missing} missing, {stale} stale, {extra} extra, \
             {unreadable} unreadable{how}\n"
        ))?;
        for (key, kind) in verified.differences.iter().take(LISTED_MAX) {
            let why =
                verified.reasons.get(key).map_or_else(String::new, |why| format!(": {}: {}", why.code, why.message));
            let kind = format!("{kind:?}").to_lowercase();
            context.output.print(&format!("{}\n", escape::line(&format!("  {key}: {kind}{why}"))))?;
        }
        print_repair(verified, context)?;
        if !is_repair && missing + stale + extra > 0 {
            context.output.note("repair it with: honeyflow verify --repair");
        }
        if *unreadable > 0 {
            context.output.note("correct the unreadable rows in the table: that is enough, each change is indexed");
        }
    }
    Ok(())
}

fn print_repair(verified: &VerifyReport, context: &Context) -> Result<(), Fault> {
    let entity = &verified.entity;
    if verified.held > 0 {
        context.output.print(&format!("  {} documents without a row are held\n", verified.held))?;
        context
            .output
            .note(&format!("if their rows were deleted on purpose, run: honeyflow source confirm SOURCE {entity}"));
    }
    if verified.repaired > 0 {
        context.output.print(&format!("  {} repaired\n", verified.repaired))?;
    }
    if verified.not_repaired.is_empty() {
        return Ok(());
    }
    context.output.print(&format!("  {} not repaired\n", verified.not_repaired.len()))?;
    for (key, why) in verified.not_repaired.iter().take(LISTED_MAX) {
        let why = match why {
            NotRepaired::Parked { id, code, message } => format!("parked ({id}, {code}, {message})"),
            NotRepaired::Waiting => format!("still waiting; `honeyflow explain {entity} {key}` says why"),
            NotRepaired::Different => "still different after its run".to_owned(),
        };
        context.output.print(&format!("{}\n", escape::line(&format!("  {key}: not repaired: {why}"))))?;
    }
    Ok(())
}
