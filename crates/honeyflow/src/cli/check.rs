//! `honeyflow check`: reports every problem of the configuration at once, then a summary: which tables are read, how
//! effects are delivered, and whether the set-up is secure.

use std::fmt::Write;

use honeyflow_workflow::Problem;

use super::{Context, Fault, Outcome, block_on};
use crate::{
    check::{self, SourceReport, delivery, setup},
    config::{Config, reference},
    escape, failures,
    node::{
        fill,
        secrets::{self, UnreadableSecret},
        steps,
    },
    registry,
};

#[derive(clap::Args)]
pub struct Arguments {
    /// Check only the file; do not connect to the databases
    #[arg(long)]
    offline: bool,
    /// Print a page of the reference as Markdown
    #[arg(long, hide = true, value_enum, num_args = 0..=1, require_equals = true, value_name = "PAGE")]
    #[arg(default_missing_value = "configuration")]
    reference: Option<Page>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum Page {
    Configuration,
    Failures,
}

pub fn run(arguments: &Arguments, context: &Context) -> Result<Outcome, Fault> {
    if let Some(page) = arguments.reference {
        context.output.print(&match page {
            Page::Configuration => reference::markdown(&registry::kinds()),
            Page::Failures => failures::markdown(),
        })?;
        return Ok(Outcome::Success);
    }
    let loaded = match context.load() {
        Ok(loaded) => loaded,
        // A file that is not TOML is a negative result of this command (exit code 1), not wrong usage (2).
        Err(Fault::Config(report)) => return conclude(context, &report, ""),
        Err(fault) => return Err(fault),
    };
    let mut problems = Vec::new();
    let mut summary = String::new();
    if let Some(config) = &loaded.config {
        problems.extend(steps::problems(config));
        let examined = if arguments.offline { Vec::new() } else { block_on(examine(config, &mut problems))? };
        summary = block_on(summarise(config, &examined, &mut problems))?;
    }
    conclude(context, &loaded.report(problems), &summary)
}

fn conclude(context: &Context, report: &crate::config::Report, summary: &str) -> Result<Outcome, Fault> {
    let output = &context.output;
    if output.is_json() {
        output.print(&format!("{:#}\n", report.json()))?;
    } else {
        let text = report.text(output.colours_out());
        let gap = if text.is_empty() { "" } else { "\n" };
        let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
        let verdict = match (report.errors(), report.warnings()) {
            (0, 0) => format!("{} is fine", context.file.display()),
            (0, warnings) => format!("{} is fine, with {}", context.file.display(), count(warnings, "warning")),
            (errors, 0) => format!("{} has {}", context.file.display(), count(errors, "error")),
            (errors, warnings) => {
                format!("{} has {} and {}", context.file.display(), count(errors, "error"), count(warnings, "warning"))
            }
        };
        output.print(&format!("{text}{gap}{summary}{}\n", escape::line(&verdict)))?;
    }
    Ok(if report.errors() == 0 { Outcome::Success } else { Outcome::Negative })
}

/// Examines every source whose address can be read here.
async fn examine(config: &Config, problems: &mut Vec<Problem>) -> Vec<SourceReport> {
    problems.extend(secrets::unreadable(config).iter().map(UnreadableSecret::finding));
    let mut all = Vec::new();
    for source in config.sources.iter().filter(|source| source.url.resolve().is_ok()) {
        let mut examined = check::examine(config, source).await;
        problems.append(&mut examined.problems);
        all.push(examined);
    }
    all
}

async fn summarise(config: &Config, examined: &[SourceReport], problems: &mut Vec<Problem>) -> String {
    let mut text = String::new();
    for source in examined {
        let Some(database) = &source.database else { continue };
        let state = match database.installed().await {
            Ok(Some(installed)) => format!("capture installed (tables of version {})", installed.version),
            Ok(None) => "not installed yet: honeyflow source install".into(),
            Err(failure) => failure.message,
        };
        let _ = writeln!(text, "source {}: {}; {state}", source.source, escape::line(&database.place()));
        for (entity, reads) in &source.reads {
            let tables = reads.tables.iter().map(|table| {
                let columns = database.catalogue.table(table).into_iter().flat_map(|table| &table.columns);
                let used: Vec<&str> = columns
                    .filter(|column| reads.uses(table, &column.name))
                    .map(|column| column.name.as_str())
                    .collect();
                format!("{table} ({})", used.join(", "))
            });
            let _ = writeln!(text, "  {entity} reads {}", escape::line(&tables.collect::<Vec<_>>().join(", ")));
        }
        let expected = fill::expected_effects(config, database, &source.bound).await;
        for line in expected.unwrap_or_else(|failure| vec![failure.message]) {
            let _ = writeln!(text, "  {}", escape::line(&line));
        }
    }
    let effects = delivery::effects(config, &registry::kinds());
    if !effects.is_empty() {
        let _ = writeln!(text, "delivery: at least once, idempotent by version");
    }
    for effect in effects {
        let _ = writeln!(text, "  {}.{} → {}: {}", effect.workflow, effect.step, effect.target, effect.delivery);
    }
    let lines = setup::report(config, examined, problems).await;
    let _ = writeln!(text, "set-up:");
    for line in lines {
        let _ = writeln!(text, "  {:<10} {}", line.what, escape::line(&line.found));
    }
    text.push('\n');
    text
}
