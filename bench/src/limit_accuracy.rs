//! Requests that all nodes together admit, as a share of what one central bucket would have admitted of the same
//! requests. Every node runs the shipped code on a simulated clock, 5 ms from the store. There is one figure per
//! scenario; the worst window and the store's operations go to standard error. A breach of the limit ends the run; a
//! value outside its scenario's promise is reported as a failure at the end.

pub mod fleet;

use honeyflow_sim::limit::{Figures, SCENARIOS, Scenario, run};

use crate::{
    Result,
    figure::{Better, Measurement, Reporter, median},
};

#[derive(clap::Args)]
pub struct Options {
    /// Simulated time of each run, in seconds
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(20..100_000))]
    seconds: u64,
    /// Number of seeds for each scenario
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..1000))]
    seeds: u64,
}

const RATE: u64 = 1_000;
const LARGE_RATE: u64 = 100_000;
const LARGE_SECONDS: u64 = 10;
/// Store operations per request.
const LARGE_CALLS: f64 = 0.025;

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let mut missed = Vec::new();
    for scenario in SCENARIOS {
        if reporter.wants(scenario.name) {
            let runs: Vec<Figures> =
                (1..=options.seeds).map(|seed| run(scenario, RATE, options.seconds, seed)).collect();
            missed.extend(one(scenario.name, scenario, options.seconds, &runs, reporter)?);
        }
    }
    let even = &SCENARIOS[0];
    if reporter.wants("even-100k") {
        let figures = run(even, LARGE_RATE, LARGE_SECONDS, 1);
        let calls_max = figures.requests as f64 / LARGE_SECONDS as f64 * LARGE_CALLS;
        let large = Scenario { share_min: 0.98, calls_max, ..*even };
        missed.extend(one("even-100k", &large, LARGE_SECONDS, &[figures], reporter)?);
    }
    fleet::measure(reporter)?;
    if missed.is_empty() { Ok(()) } else { Err(format!("not as promised: {}", missed.join("; ")).into()) }
}

/// Reports a scenario and returns what is not as promised.
fn one(
    name: &'static str,
    scenario: &Scenario,
    seconds: u64,
    runs: &[Figures],
    reporter: &mut Reporter,
) -> Result<Vec<String>> {
    let Scenario { share_min, window_max, calls_max, .. } = *scenario;
    let ours: Vec<f64> = runs.iter().map(|figures| figures.share() * 100.0).collect();
    let share = median(&ours);
    let window = runs.iter().map(|figures| figures.window).fold(0.0, f64::max);
    let calls: Vec<f64> = runs.iter().map(|figures| figures.calls as f64 / seconds as f64).collect();
    let calls = median(&calls);
    let promised = format!(
        "share {share:.2} % (at least {:.1}), window {window:.3} (at most {window_max}), {calls:.0} store operations a \
         second (at most {calls_max:.0})",
        share_min * 100.0
    );
    eprintln!("  {name}: {promised}");
    if let Some(breach) = runs.iter().flat_map(|figures| &figures.breaches).next() {
        return Err(format!("{name}: {breach}").into());
    }
    reporter.report(&Measurement {
        figure: name,
        unit: "%",
        better: Better::Higher,
        peer: Some(("central", vec![100.0; ours.len()])),
        ours,
    });
    let kept = share >= share_min * 100.0 && window <= window_max && calls <= calls_max;
    Ok(if kept { Vec::new() } else { vec![format!("{name}: {promised}")] })
}
