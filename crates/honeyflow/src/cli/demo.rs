//! `honeyflow demo`: shows Honeyflow at work, without a server and without a configuration.

use std::path::PathBuf;

use super::{Context, Fault, Outcome, output::Format};
use crate::demo::{self, Report};

#[derive(clap::Args)]
pub struct Arguments {
    /// Stop after --changes changes and prove that every document equals its row
    #[arg(long)]
    once: bool,
    /// Number of changes to commit with --once
    #[arg(long, default_value_t = 20_000, value_name = "N")]
    changes: u64,
    /// Keep database, configuration and index in this folder, as a starting point
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
    /// Seed of the generated shop and changes; the same seed gives the same data
    #[arg(long, default_value_t = 1, hide = true)]
    seed: u64,
}

pub async fn run(arguments: Arguments, context: &Context) -> Result<Outcome, Fault> {
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
        eprintln!("kept in {0}; continue with `honeyflow start --config {0}/honeyflow.toml`", folder.display());
    }
    Ok(if holds { Outcome::Success } else { Outcome::Negative })
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
