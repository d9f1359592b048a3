//! `honeyflow demo`: see it work, without a server and without configuration.

use std::path::PathBuf;

use super::{Context, Done, Fault, output::Format};
use crate::demo::{self, Report};

#[derive(clap::Args)]
pub struct Arguments {
    /// End by itself, with the proof that every document equals its row
    #[arg(long)]
    once: bool,
    /// With --once: how many changes the application commits
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    changes: u64,
    /// Leave database, configuration and index in this folder, as a starting point of one's own
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// The same seed gives the same shop and the same changes
    #[arg(long, default_value_t = 1, hide = true)]
    seed: u64,
}

pub async fn run(arguments: Arguments, context: &Context) -> Result<Done, Fault> {
    let kept = arguments.keep.clone();
    let options =
        demo::Options { once: arguments.once.then_some(arguments.changes), keep: arguments.keep, seed: arguments.seed };
    let report = demo::run(options).await?;
    let holds = report.proof.holds();
    match context.output.format {
        Format::Json => println!("{}", serde_json::to_string(&report).unwrap_or_default()),
        Format::Table => print(&report),
    }
    if let Some(folder) = kept {
        eprintln!("everything is in {0}: go on with `honeyflow start --config {0}/honeyflow.toml`", folder.display());
    }
    Ok(if holds { Done::Well } else { Done::Negative })
}

fn print(report: &Report) {
    let Report { proof, latency_ms, .. } = report;
    println!(
        "changes committed    {:>10}   ({} rolled back on top)",
        report.changes_committed, report.changes_rolled_back
    );
    println!("events               {:>10}", report.events);
    println!("changes per second   {:>10.0}", report.changes_per_second);
    if let (Some(p50), Some(p99)) = (latency_ms.p50, latency_ms.p99) {
        println!("commit to searchable {p50:>10.1} ms median, {p99:.1} ms at the 99th percentile");
    }
    println!("documents            {:>10} expected, {} found", proof.documents_expected, proof.documents_found);
    println!("missing {}, stale {}, unexpected {}", proof.missing, proof.stale, proof.unexpected);
    for example in &proof.examples {
        println!("  {example}");
    }
    println!("{}", if proof.holds() { "every document equals its row" } else { "THE PROOF FAILED" });
}
