//! `sim [--hive | --limits] [--seeds N] [--start S] [--seed X [--set OPTION=N]… [--watch KEY]] [--bug PB-n]`
//!
//! Plays seeds; exits with 1 if one of them fails. It minimises failing seeds before it shows them. `--hive` plays only
//! hives without an engine, under more faults of clocks and store; `--limits` plays only limiters.

use std::{process::ExitCode, time::Instant};

use honeyflow_sim::{
    campaign::{describe, play, play_with},
    hive,
    limit::faults,
    minimise,
    options::Options,
    world,
};

const USAGE: &str = "usage: sim [--seeds N] [--start S] [--seed X [--set OPTION=N]… [--watch KEY]] [--bug NAME]\n       \
                     sim --hive | --limits [--seeds N] [--start S] [--seed X] [--bug NAME]";
#[cfg(not(feature = "planted"))]
const NO_BUGS: &str = "sim: bugs are only in builds with `--features planted`, which a release refuses";
/// How many failing seeds are minimised; the others are shown as they are.
const CUT_DOWN_MAX: usize = 3;

struct Arguments {
    hive: bool,
    limits: bool,
    start: u64,
    seeds: u64,
    bug: Option<String>,
    watch: Option<String>,
    /// Options that override what the seed draws.
    set: Vec<(String, u64)>,
}

impl Arguments {
    fn options(&self, seed: u64) -> Result<Options, String> {
        let mut options = Options::draw(seed);
        self.set.iter().try_for_each(|(name, value)| options.set(name, *value))?;
        Ok(options)
    }
}

fn main() -> ExitCode {
    let asked = match parse_arguments(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(message) => {
            eprintln!("sim: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if asked.hive || asked.limits {
        return play_part(&asked);
    }
    let options = match asked.options(asked.start) {
        Ok(options) => options,
        Err(message) => {
            let names: Vec<&str> = Options::draw(1).knobs().iter().map(|(name, ..)| *name).collect();
            eprintln!("sim: {message}; options are {}", names.join(", "));
            return ExitCode::from(2);
        }
    };
    if let Some(bug) = &asked.bug {
        return with_bug(bug, &asked);
    }
    if asked.watch.is_some() {
        let outcome = world::run_watching(&options, asked.watch);
        println!("{}", describe(&outcome));
        return if outcome.is_good() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    }
    let began = Instant::now();
    let shown = |done| print_progress(done, asked.seeds);
    let report = match asked.set.is_empty() {
        true => play(asked.start, asked.seeds, 25, shown),
        false => play_with(asked.start, asked.seeds, 25, shown, |seed| {
            world::run_with(&asked.options(seed).unwrap_or_else(|_| options.clone()))
        }),
    };
    for (number, outcome) in report.failed.iter().enumerate() {
        if number < CUT_DOWN_MAX && !outcome.breaches.is_empty() {
            eprintln!("minimising seed {} …", outcome.options.seed);
            println!("{}", describe(&minimise::smallest(outcome, world::run_with)));
        } else {
            println!("{}", describe(outcome));
        }
    }
    let took = began.elapsed();
    println!("{report}; {:.1} seeds/s", report.seeds as f64 / took.as_secs_f64().max(0.001));
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn print_progress(done: u64, of: u64) {
    if done.is_multiple_of((of / 20).max(1)) {
        eprintln!("{done} of {of} seeds");
    }
}

/// Plays hives or limits without the engine.
fn play_part(asked: &Arguments) -> ExitCode {
    if asked.watch.is_some() || !asked.set.is_empty() {
        eprintln!("sim: --hive and --limits cannot be combined with --set or --watch\n{USAGE}");
        return ExitCode::from(2);
    }
    if let Some(bug) = &asked.bug {
        return alone_with_bug(bug, asked);
    }
    let (began, shown) = (Instant::now(), |done| print_progress(done, asked.seeds));
    let (failed, told, seeds, is_good) = if asked.limits {
        let report = faults::campaign::play(asked.start, asked.seeds, 25, shown);
        let failed: Vec<String> = report.failed.iter().map(faults::campaign::describe).collect();
        (failed, report.to_string(), report.seeds, report.is_good())
    } else {
        let report = hive::campaign::play(asked.start, asked.seeds, 25, shown);
        let failed: Vec<String> = report.failed.iter().map(hive::campaign::describe).collect();
        (failed, report.to_string(), report.seeds, report.is_good())
    };
    failed.iter().for_each(|outcome| println!("{outcome}"));
    println!("{told}; {:.1} seeds/s", seeds as f64 / began.elapsed().as_secs_f64().max(0.001));
    if is_good { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

/// Plays with a planted bug until a seed finds it.
#[cfg(feature = "planted")]
fn alone_with_bug(bug: &str, asked: &Arguments) -> ExitCode {
    honeyflow_hive::planted::plant(Some(Box::leak(bug.to_owned().into_boxed_str())));
    let breaches = |seed| if asked.limits { faults::run(seed).breaches } else { hive::check::run(seed).breaches };
    for seed in asked.start..asked.start + asked.seeds {
        if let Some(breach) = breaches(seed).first() {
            println!("{bug} is found by seed {seed}: {breach}");
            return ExitCode::SUCCESS;
        }
    }
    println!("{bug} was not found by {} seeds from {} on", asked.seeds, asked.start);
    ExitCode::from(1)
}

#[cfg(not(feature = "planted"))]
fn alone_with_bug(_: &str, _: &Arguments) -> ExitCode {
    eprintln!("{NO_BUGS}");
    ExitCode::from(2)
}

fn parse_arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let mut asked =
        Arguments { hive: false, limits: false, start: 1, seeds: 1000, bug: None, watch: None, set: Vec::new() };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("`{text}` is not a number"));
        match word.as_str() {
            "--hive" => asked.hive = true,
            "--limits" => asked.limits = true,
            "--seeds" => asked.seeds = number(value()?)?,
            "--start" => asked.start = number(value()?)?,
            "--seed" => (asked.start, asked.seeds) = (number(value()?)?, 1),
            "--set" => {
                let text = value()?;
                let (name, value) = text.split_once('=').ok_or_else(|| format!("`{text}` is not OPTION=N"))?;
                asked.set.push((name.to_owned(), number(value.to_owned())?));
            }
            "--watch" => asked.watch = Some(value()?),
            "--bug" => asked.bug = Some(value()?),
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    Ok(asked)
}

/// Plays seeds with a planted bug until one of them finds it.
#[cfg(feature = "planted")]
fn with_bug(bug: &str, asked: &Arguments) -> ExitCode {
    let bug: &'static str = Box::leak(bug.to_owned().into_boxed_str());
    honeyflow_sim::campaign::plant(Some(bug));
    for seed in asked.start..asked.start + asked.seeds {
        let Ok(options) = asked.options(seed) else { return ExitCode::from(2) };
        let outcome = world::run_with(&options);
        if !outcome.breaches.is_empty() {
            let first = &outcome.breaches[0];
            println!("{bug} is found by seed {seed}: {first} ({} breaches)", outcome.breaches.len());
            let smallest = minimise::smallest(&outcome, world::run_with);
            let command = honeyflow_sim::campaign::command(&smallest.options);
            let (_, arguments) = command.split_once(" --seed").unwrap_or_default();
            println!("cut down to: cargo run -p honeyflow-sim -F planted --bin sim -- --bug '{bug}' --seed{arguments}");
            return ExitCode::SUCCESS;
        }
    }
    println!("{bug} was not found by {} seeds from {} on", asked.seeds, asked.start);
    ExitCode::from(1)
}

#[cfg(not(feature = "planted"))]
fn with_bug(_: &str, _: &Arguments) -> ExitCode {
    eprintln!("{NO_BUGS}");
    ExitCode::from(2)
}
