//! Benchmark: how many nanoseconds each provider of pool settings needs, compared with a section of a TOML file.
//! `load-…` reads and checks the settings, `read-…` is the call that the pool makes once per second. Both sides take
//! turns in slices; the value of a run is the median of its slices.

use std::{hint::black_box, time::Instant};

use honeyflow_pool::{CompiledSettings, Functions, Provider, Section, Settings};

use crate::{
    Result,
    figure::{Better, Measurement, Reporter, median},
};

#[derive(clap::Args)]
pub struct Options {
    /// Calls per run, for the measured provider and for the section
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(100..10_000_000))]
    times: u32,
}

const SLICES: u32 = 20;

/// Typical settings: a few keys are set, the rest have their defaults.
fn settings() -> Settings {
    Settings {
        name: "search".to_owned(),
        servers: ["10.0.0.1:9200", "10.0.0.2:9200", "10.0.0.3:9200"].map(str::to_owned).to_vec(),
        local_datacentre: Some("north".to_owned()),
        connections_per_server: Some(4),
        ..Settings::default()
    }
}

pub fn measure(options: &Options, reporter: &mut Reporter) -> Result<()> {
    let settings = settings();
    let text = Section::try_from(&settings)?.to_toml("search")?;
    let bytes: std::sync::Arc<[u8]> = CompiledSettings::build(&settings)?.bytes().into();
    let section = Section::from_toml(&text, "search")?;
    let compiled = CompiledSettings::shared(bytes.clone())?;
    let functions = Functions({
        let settings = settings.clone();
        move || Ok(settings.clone())
    });
    let load_section = || Section::from_toml(&text, "search").is_ok();
    let load_compiled = || CompiledSettings::shared(bytes.clone()).is_ok();
    let load_functions = || functions.settings().is_ok_and(|settings| settings.check().is_ok());
    let comparison = Comparison { runs: reporter.runs, times: options.times };
    if reporter.wants("load-compiled") {
        report(reporter, "load-compiled", comparison.run(load_compiled, load_section)?);
    }
    if reporter.wants("load-functions") {
        report(reporter, "load-functions", comparison.run(load_functions, load_section)?);
    }
    let read = |provider: &dyn Provider| black_box(provider.settings()).is_ok();
    if reporter.wants("read-compiled") {
        report(reporter, "read-compiled", comparison.run(|| read(&compiled), || read(&section))?);
    }
    if reporter.wants("read-functions") {
        report(reporter, "read-functions", comparison.run(|| read(&functions), || read(&section))?);
    }
    Ok(())
}

fn report(reporter: &mut Reporter, figure: &'static str, [ours, theirs]: [Vec<f64>; 2]) {
    let peer = Some(("section", theirs));
    reporter.report(&Measurement { figure, unit: "ns", better: Better::Lower, ours, peer });
}

#[derive(Clone, Copy)]
struct Comparison {
    runs: u32,
    times: u32,
}

impl Comparison {
    /// Returns the nanoseconds per call of each side, one value per run; the sides take turns.
    fn run(self, ours: impl Fn() -> bool, theirs: impl Fn() -> bool) -> Result<[Vec<f64>; 2]> {
        let mut values = [Vec::new(), Vec::new()];
        for _ in 0..self.runs {
            let mut slices = [Vec::new(), Vec::new()];
            for _ in 0..SLICES {
                slices[0].push(self.slice(&ours)?);
                slices[1].push(self.slice(&theirs)?);
            }
            for (values, slices) in values.iter_mut().zip(slices) {
                values.push(median(&slices));
            }
        }
        Ok(values)
    }

    fn slice(self, side: impl Fn() -> bool) -> Result<f64> {
        let times = (self.times / SLICES).max(1);
        let begun = Instant::now();
        for _ in 0..times {
            if !black_box(side()) {
                return Err("valid settings were refused".into());
            }
        }
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(times))
    }
}
