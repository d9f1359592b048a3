//! `model [--faults N] [--first MS] [--next MS] [--bug NAME]`: explores the hive's futures; exits with 1 if a rule
//! breaks.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use honeyflow_model::{Beginning, Depth, Futures, TESTED, explore};

const USAGE: &str = "usage: model [--faults N] [--first MS] [--next MS] [--bug NAME]";

fn main() -> ExitCode {
    let (beginnings, bug) = match read(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(message) => {
            eprintln!("model: {message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if bug.is_some() && !cfg!(feature = "planted") {
        eprintln!("model: planted bugs need a build with `--features planted`, which a release refuses");
        return ExitCode::from(2);
    }
    let began = Instant::now();
    let explored = explore(Futures { beginnings: beginnings.clone(), bug });
    for (rule, choices, breach) in &explored.broken {
        println!("{rule} is broken: {breach}\n  by {choices:?}");
    }
    for missed in &explored.missed {
        println!("never happened: {missed}");
    }
    let took = began.elapsed().as_secs_f64();
    for Beginning { drifts, queen_died, depth: Depth { faults, first_within, next_within } } in beginnings {
        let from = if queen_died { "the queen's death" } else { "rest" };
        println!(
            "from {from}, clocks {drifts:?}: {faults} faults, the first in {first_within:?}, others in {next_within:?}"
        );
    }
    println!("{} states, {} rules broken; {took:.1} s", explored.states, explored.broken.len());
    if explored.holds() { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

fn read(mut words: impl Iterator<Item = String>) -> Result<(Vec<Beginning>, Option<&'static str>), String> {
    let (mut beginnings, mut bug) = (TESTED.to_vec(), None);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u32>().map_err(|_| format!("`{value}` is not a number"));
        match word.as_str() {
            "--faults" => each(&mut beginnings, |depth, number| depth.faults = number, number()?),
            "--first" => each(&mut beginnings, |depth, number| depth.first_within = millis(number), number()?),
            "--next" => each(&mut beginnings, |depth, number| depth.next_within = millis(number), number()?),
            "--bug" => bug = Some(&*Box::leak(value.into_boxed_str())),
            other => return Err(format!("unknown option `{other}`")),
        }
    }
    Ok((beginnings, bug))
}

fn each(beginnings: &mut [Beginning], set: impl Fn(&mut Depth, u32), number: u32) {
    beginnings.iter_mut().for_each(|beginning| set(&mut beginning.depth, number));
}

fn millis(number: u32) -> Duration {
    Duration::from_millis(number.into())
}
