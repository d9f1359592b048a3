//! `cargo xtask chaos embedded|hive|pool …` runs one campaign with real processes and real faults, and prints its
//! report as JSON.

use std::{path::PathBuf, process::ExitCode};

use honeyflow_chaos::{embedded, hive, pool};
use serde::Serialize;

const USAGE: &str = "usage: cargo xtask chaos embedded [--rounds N] [--signal kill|term] [--seed N] [--binary PATH]
       cargo xtask chaos hive [--backend NAME] [--rounds N] [--hives N] [--seed N] [--unfenced]
       cargo xtask chaos hive --soak MINUTES [--backend NAME] [--bees N] [--seed N]
       cargo xtask chaos pool [--part scripted|proxy|nodes|steps] [--rounds N] [--callers N] [--seed N]
  hive: without --backend, every backend runs. --rounds counts the rounds in which a leader was paused and then
        tried a stale write; a tenth as many rounds of every other fault are added. A control campaign without the
        fence follows; --unfenced runs only that one.
        --soak: one large hive under random faults; at the end it must be stable again
  pool: without --part, all three parts run: 87 of 100 rounds on scripted servers in this process, 10 on a proxy in
        front of three Cassandra nodes, 3 on the nodes themselves. `--part steps`: one fault after the other on
        three nodes, each with its expected result";
/// One round in this number is played again with the fence off.
const CONTROL_PART: u32 = 20;
const CONTROL_ROUNDS_MIN: u32 = 10;

struct Arguments(Vec<String>);

impl Arguments {
    fn value(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|word| word == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> Result<T, String> {
        self.value(name)
            .map_or(Ok(default), |text| text.parse().map_err(|_| format!("{name}: `{text}` is not a number")))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| word == name)
    }

    /// Returns the first word that the campaign does not know. A campaign takes minutes, so a typing error must end it
    /// before it begins.
    fn first_unknown(&self, options: &[&str], flags: &[&str]) -> Option<&str> {
        let mut words = self.0.iter().skip(1).map(String::as_str);
        while let Some(word) = words.next() {
            let has_value = options.contains(&word) && words.next().is_some();
            if !has_value && !flags.contains(&word) {
                return Some(word);
            }
        }
        None
    }
}

/// Runs a campaign, prints its report, and returns whether the campaign passed.
type Campaign = fn(&Arguments) -> Result<bool, String>;

fn main() -> ExitCode {
    let words = Arguments(std::env::args().skip(1).collect());
    if words.has("--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let (campaign, options, flags): (Campaign, &[_], &[_]) = match words.0.first().map(String::as_str) {
        Some("bee") => return hive::node_process::run(&words.0[1..]),
        Some("embedded") => (embedded, &["--rounds", "--signal", "--seed", "--binary"], &[]),
        Some("hive") => (hives, &["--backend", "--rounds", "--hives", "--seed", "--soak", "--bees"], &["--unfenced"]),
        Some("pool") => (pools, &["--part", "--rounds", "--callers", "--seed"], &[]),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(word) = words.first_unknown(options, flags) {
        eprintln!("unknown option `{word}`, or its value is missing\n{USAGE}");
        return ExitCode::from(2);
    }
    match campaign(&words) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn print(report: &impl Serialize) {
    println!("{}", serde_json::to_string_pretty(report).unwrap_or_default());
}

fn embedded(words: &Arguments) -> Result<bool, String> {
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join("honeyflow")));
    let binary = words.value("--binary").map(PathBuf::from).or(beside);
    let options = embedded::Options {
        binary: binary.ok_or("honeyflow binary not found; pass --binary PATH")?,
        rounds: words.number("--rounds", 50)?,
        kill: match words.value("--signal") {
            None | Some("kill") => true,
            Some("term") => false,
            Some(other) => return Err(format!("--signal: `{other}` is neither kill nor term")),
        },
        seed: words.number("--seed", 1)?,
    };
    let report = embedded::run(&options)?;
    print(&report);
    // A kill of an idle node proves nothing: in four of five rounds the node must have had open runs.
    Ok(report.holds() && report.rounds_with_open_runs * 5 >= report.rounds * 4)
}

fn hives(words: &Arguments) -> Result<bool, String> {
    let backends = match words.value("--backend") {
        Some(word) => vec![word.parse()?],
        None => hive::Backend::WITH_POOLER.to_vec(),
    };
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let clocks = hive::Clocks::install();
    if let Err(reason) = &clocks {
        eprintln!("skipping the rounds with wrong wall clocks: {reason}");
    }
    let (clocks, seed) = (clocks.ok(), words.number("--seed", 1)?);
    let mut passed = true;
    for backend in backends {
        let (program, clocks) = (program.clone(), clocks.clone());
        if words.has("--soak") {
            let (minutes, bees) = (words.number("--soak", 10)?, words.number("--bees", 40)?);
            let report = hive::soak::run(&hive::soak::Options { backend, program, minutes, bees, seed, clocks })?;
            passed &= print_report(backend, &report, &report.faults());
            continue;
        }
        let (rounds, hives) = (words.number("--rounds", 1000)?, words.number("--hives", 24)?);
        let mut options = hive::Options { backend, program, rounds, hives, fenced: true, seed, clocks };
        if !words.has("--unfenced") {
            passed &= play_hives(&options)?;
            options.rounds = (rounds / CONTROL_PART).max(CONTROL_ROUNDS_MIN);
        }
        options.fenced = false;
        passed &= play_hives(&options)?;
    }
    Ok(passed)
}

fn pools(words: &Arguments) -> Result<bool, String> {
    if words.value("--part") == Some("steps") {
        let steps = pool::steps::run()?;
        print(&steps);
        return Ok(steps.iter().all(|step| step.holds));
    }
    let all: u32 = words.number("--rounds", 1000)?;
    let parts = match words.value("--part") {
        // A part that runs alone gets all the rounds.
        Some(word) => vec![(word.parse()?, all)],
        None => pool::Part::ALL.map(|part| (part, part.share(all))).to_vec(),
    };
    let mut passed = true;
    for (part, rounds) in parts.into_iter().filter(|(_, rounds)| *rounds > 0) {
        let options =
            pool::Options { part, rounds, callers: words.number("--callers", 64)?, seed: words.number("--seed", 1)? };
        let report = pool::run(&options)?;
        print(&report);
        if !report.holds() {
            eprintln!("{}: failed", part.name());
        }
        passed &= report.holds();
    }
    Ok(passed)
}

fn play_hives(options: &hive::Options) -> Result<bool, String> {
    let report = hive::run(options)?;
    Ok(print_report(options.backend, &report, &report.faults()))
}

/// Prints the report and the faults that it found. Returns true if there are none.
fn print_report(backend: hive::Backend, report: &impl Serialize, faults: &[String]) -> bool {
    print(report);
    for fault in faults {
        eprintln!("{}: failed: {fault}", backend.name());
    }
    faults.is_empty()
}
