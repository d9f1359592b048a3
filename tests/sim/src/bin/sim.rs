//! `sim [--seeds N] [--start S] [--seed X [--watch KEY]] [--bug PB-n]`: plays seeds; exits with 1 if one of them fails.

use std::{process::ExitCode, time::Instant};

use honeyflow_sim::campaign::{describe, play};

struct Asked {
    start: u64,
    seeds: u64,
    bug: Option<String>,
    watch: Option<String>,
}

fn main() -> ExitCode {
    let asked = match read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(message) => {
            eprintln!("sim: {message}\nusage: sim [--seeds N] [--start S] [--seed X [--watch KEY]] [--bug NAME]");
            return ExitCode::from(2);
        }
    };
    if let Some(bug) = &asked.bug {
        return with_bug(bug, &asked);
    }
    if asked.watch.is_some() {
        let outcome = honeyflow_sim::world::run_watching(asked.start, asked.watch);
        println!("{}", describe(&outcome));
        return if outcome.is_good() { ExitCode::SUCCESS } else { ExitCode::from(1) };
    }
    let began = Instant::now();
    let step = (asked.seeds / 20).max(1);
    let report = play(asked.start, asked.seeds, 25, |done| {
        if done.is_multiple_of(step) {
            eprintln!("{done} of {} seeds", asked.seeds);
        }
    });
    for outcome in &report.failed {
        println!("{}", describe(outcome));
    }
    let took = began.elapsed();
    println!("{report}; {:.1} seeds/s", report.seeds as f64 / took.as_secs_f64().max(0.001));
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<Asked, String> {
    let mut asked = Asked { start: 1, seeds: 1000, bug: None, watch: None };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} needs a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("`{text}` is no number"));
        match word.as_str() {
            "--seeds" => asked.seeds = number(value()?)?,
            "--start" => asked.start = number(value()?)?,
            "--seed" => (asked.start, asked.seeds) = (number(value()?)?, 1),
            "--watch" => asked.watch = Some(value()?),
            "--bug" => asked.bug = Some(value()?),
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    Ok(asked)
}

/// Plays seeds with a bug switched on until one of them finds it.
#[cfg(feature = "planted")]
fn with_bug(bug: &str, asked: &Asked) -> ExitCode {
    let bug: &'static str = Box::leak(bug.to_owned().into_boxed_str());
    honeyflow_sim::campaign::plant(Some(bug));
    for seed in asked.start..asked.start + asked.seeds {
        let outcome = honeyflow_sim::run(seed);
        if !outcome.breaches.is_empty() {
            let first = &outcome.breaches[0];
            println!("{bug} is found by seed {seed}: {first} ({} breaches)", outcome.breaches.len());
            return ExitCode::SUCCESS;
        }
    }
    println!("{bug} was not found by {} seeds from {} on", asked.seeds, asked.start);
    ExitCode::from(1)
}

#[cfg(not(feature = "planted"))]
fn with_bug(_: &str, _: &Asked) -> ExitCode {
    eprintln!("sim: bugs are only in builds with `--features planted`, which a release refuses");
    ExitCode::from(2)
}
