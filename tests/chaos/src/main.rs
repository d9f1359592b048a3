//! `cargo xtask chaos embedded [--rounds N] [--signal kill|term] [--seed N] [--binary PATH] [--output json]`

use std::process::ExitCode;

use honeyflow_chaos::{Options, run};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let value = |name: &str| {
        let at = arguments.iter().position(|argument| argument == name)?;
        arguments.get(at + 1).cloned()
    };
    if arguments.first().map(String::as_str) != Some("embedded") {
        eprintln!("usage: cargo xtask chaos embedded [--rounds N] [--signal kill|term] [--seed N] [--output json]");
        return ExitCode::from(2);
    }
    let beside = std::env::current_exe().ok().and_then(|path| Some(path.parent()?.join("honeyflow")));
    let Some(binary) = value("--binary").map(Into::into).or(beside) else {
        eprintln!("name the node's binary with --binary");
        return ExitCode::from(2);
    };
    let options = Options {
        binary,
        rounds: value("--rounds").and_then(|text| text.parse().ok()).unwrap_or(50),
        kill: value("--signal").as_deref() != Some("term"),
        seed: value("--seed").and_then(|text| text.parse().ok()).unwrap_or(1),
    };
    match run(&options) {
        Ok(report) => {
            println!("{}", serde_json::to_string_pretty(&report).unwrap_or_default());
            // Kills of an idle node prove nothing: four in five must have met open runs.
            let met = report.rounds_with_open_runs * 5 >= report.rounds * 4;
            if report.holds() && met { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
