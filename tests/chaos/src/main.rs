//! `cargo xtask chaos embedded|hive|pool …`: real processes under real faults; what came of it is one JSON object.

use std::{path::PathBuf, process::ExitCode};

use honeyflow_chaos::{embedded, hive, pool};
use serde::Serialize;

const USAGE: &str = "usage: cargo xtask chaos embedded [--rounds N] [--signal kill|term] [--seed N] [--binary PATH]
       cargo xtask chaos hive [--backend NAME] [--rounds N] [--hives N] [--seed N] [--unfenced]
       cargo xtask chaos hive --soak MINUTES [--backend NAME] [--bees N] [--seed N]
       cargo xtask chaos pool [--part scripted|proxy|nodes|steps] [--rounds N] [--callers N] [--seed N]
  hive: without --backend every backend; --rounds are leaders paused that tried something stale, a tenth as many of
        every other fault come on top; the same with the fence off follows, unless --unfenced asks for nothing else;
        --soak: one large hive, faults of all kinds at random, and rest at the end
  pool: without --part all three; of the rounds, 87 in 100 fall to scripted servers in this process, 10 to a proxy
        before three nodes of Cassandra, 3 to the nodes themselves; `--part steps`: one fault after the other on three
        nodes, and what must come of each";
/// Of the rounds, how many are played again with the fence off.
const CONTROL_PART: u32 = 20;
const CONTROL_ROUNDS_MIN: u32 = 10;

struct Words(Vec<String>);

impl Words {
    fn value(&self, name: &str) -> Option<&str> {
        let at = self.0.iter().position(|word| word == name)?;
        self.0.get(at + 1).map(String::as_str)
    }

    fn number<T: std::str::FromStr>(&self, name: &str, otherwise: T) -> Result<T, String> {
        self.value(name)
            .map_or(Ok(otherwise), |text| text.parse().map_err(|_| format!("{name}: `{text}` is no number")))
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|word| word == name)
    }

    /// A campaign takes minutes: a word that it does not know ends it before it begins.
    fn unknown(&self, options: &[&str], flags: &[&str]) -> Option<&str> {
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

/// Whether what it must show held.
type Campaign = fn(&Words) -> Result<bool, String>;

fn main() -> ExitCode {
    let words = Words(std::env::args().skip(1).collect());
    if words.has("--help") {
        println!("{USAGE}");
        return ExitCode::SUCCESS;
    }
    let (campaign, options, flags): (Campaign, &[_], &[_]) = match words.0.first().map(String::as_str) {
        Some("bee") => return hive::bee::run(&words.0[1..]),
        Some("embedded") => (embedded, &["--rounds", "--signal", "--seed", "--binary"], &[]),
        Some("hive") => (hives, &["--backend", "--rounds", "--hives", "--seed", "--soak", "--bees"], &["--unfenced"]),
        Some("pool") => (pools, &["--part", "--rounds", "--callers", "--seed"], &[]),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    if let Some(word) = words.unknown(options, flags) {
        eprintln!("`{word}` is unknown here, or lacks its value\n{USAGE}");
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

fn embedded(words: &Words) -> Result<bool, String> {
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join("honeyflow")));
    let binary = words.value("--binary").map(PathBuf::from).or(beside);
    let options = embedded::Options {
        binary: binary.ok_or("name the node's binary with --binary")?,
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
    // Kills of an idle node prove nothing: four in five must have met open runs.
    Ok(report.holds() && report.rounds_with_open_runs * 5 >= report.rounds * 4)
}

fn hives(words: &Words) -> Result<bool, String> {
    let backends = match words.value("--backend") {
        Some(word) => vec![word.parse()?],
        None => hive::Backend::WITH_POOLER.to_vec(),
    };
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let clocks = hive::Clocks::had();
    if let Err(reason) = &clocks {
        eprintln!("wall clocks are left alone, no round will have wrong ones: {reason}");
    }
    let (clocks, seed) = (clocks.ok(), words.number("--seed", 1)?);
    let mut good = true;
    for backend in backends {
        let (program, clocks) = (program.clone(), clocks.clone());
        if words.has("--soak") {
            let (minutes, bees) = (words.number("--soak", 10)?, words.number("--bees", 40)?);
            let report = hive::soak::run(&hive::soak::Options { backend, program, minutes, bees, seed, clocks })?;
            good &= told(backend, &report, &report.faults());
            continue;
        }
        let (rounds, hives) = (words.number("--rounds", 1000)?, words.number("--hives", 24)?);
        let mut options = hive::Options { backend, program, rounds, hives, fenced: true, seed, clocks };
        if !words.has("--unfenced") {
            good &= played(&options)?;
            options.rounds = (rounds / CONTROL_PART).max(CONTROL_ROUNDS_MIN);
        }
        options.fenced = false;
        good &= played(&options)?;
    }
    Ok(good)
}

fn pools(words: &Words) -> Result<bool, String> {
    if words.value("--part") == Some("steps") {
        let steps = pool::steps::run()?;
        print(&steps);
        return Ok(steps.iter().all(|step| step.holds));
    }
    let all: u32 = words.number("--rounds", 1000)?;
    let parts = match words.value("--part") {
        // Alone, a part has all the rounds.
        Some(word) => vec![(word.parse()?, all)],
        None => pool::Part::ALL.map(|part| (part, part.share(all))).to_vec(),
    };
    let mut good = true;
    for (part, rounds) in parts.into_iter().filter(|(_, rounds)| *rounds > 0) {
        let options =
            pool::Options { part, rounds, callers: words.number("--callers", 64)?, seed: words.number("--seed", 1)? };
        let report = pool::run(&options)?;
        print(&report);
        if !report.holds() {
            eprintln!("{}: it does not hold", part.name());
        }
        good &= report.holds();
    }
    Ok(good)
}

fn played(options: &hive::Options) -> Result<bool, String> {
    let report = hive::run(options)?;
    Ok(told(options.backend, &report, &report.faults()))
}

/// Whether it holds.
fn told(backend: hive::Backend, report: &impl Serialize, faults: &[String]) -> bool {
    print(report);
    for fault in faults {
        eprintln!("{}: it does not hold: {fault}", backend.name());
    }
    faults.is_empty()
}
