//! What all nodes together admit, as a share of what one central bucket would have admitted of the same requests: the
//! shipped core of every node on a simulated clock, 5 ms from the store. One figure per scenario; the worst window, the
//! store's operations and every breach of the limit are told on standard error.

use honeyflow_sim::limit::{Figures, SCENARIOS, Scenario, run};

use crate::{
    Result,
    figure::{Better, Measured, Reporter, median},
};

#[derive(clap::Args)]
pub struct Options {
    /// Simulated seconds of each run
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(20..100_000))]
    seconds: u64,
    /// Seeds of each scenario
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..1000))]
    seeds: u64,
}

const RATE: u64 = 1_000;
const LARGE_RATE: u64 = 100_000;
const LARGE_SECONDS: u64 = 10;

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    for scenario in SCENARIOS {
        if reporter.wants(scenario.name) {
            let runs: Vec<Figures> =
                (1..=options.seeds).map(|seed| run(scenario, RATE, options.seconds, seed)).collect();
            one(scenario.name, scenario, options.seconds, &runs, reporter)?;
        }
    }
    let even = &SCENARIOS[0];
    if reporter.wants("even-100k") {
        let figures = run(even, LARGE_RATE, LARGE_SECONDS, 1);
        let percent = figures.calls as f64 / figures.requests as f64 * 100.0;
        eprintln!("  even-100k: {percent:.2} store operations per hundred requests, 2.5 allowed");
        one("even-100k", &Scenario { share_min: 0.98, ..*even }, LARGE_SECONDS, &[figures], reporter)?;
    }
    Ok(())
}

fn one(name: &'static str, scenario: &Scenario, seconds: u64, runs: &[Figures], reporter: &mut Reporter) -> Result<()> {
    let ours: Vec<f64> = runs.iter().map(|figures| figures.share() * 100.0).collect();
    let window = runs.iter().map(|figures| figures.window).fold(0.0, f64::max);
    let calls: Vec<f64> = runs.iter().map(|figures| figures.calls as f64 / seconds as f64).collect();
    eprintln!(
        "  {name}: share {:.1} % wanted; worst window {window:.3} of {} allowed; {:.0} store operations a second",
        scenario.share_min * 100.0,
        scenario.window_max,
        median(&calls)
    );
    if let Some(breach) = runs.iter().flat_map(|figures| &figures.breaches).next() {
        return Err(format!("{name}: {breach}").into());
    }
    if window > scenario.window_max {
        return Err(format!("{name}: a window of {window:.3} is above {}", scenario.window_max).into());
    }
    reporter.report(&Measured {
        figure: name,
        unit: "%",
        better: Better::Higher,
        peer: Some(("central", vec![100.0; ours.len()])),
        ours,
    });
    Ok(())
}
