//! `cargo xtask check`: format, lints, wording, names, and the sources and licences of dependencies. Every stage
//! runs, so that one call shows everything that is wrong.

mod licence;
mod names;
mod prose;
mod reason;
mod source;
mod unused;
mod wording;
mod words;

use crate::Command;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::process::{self, cargo, stage};

pub const COMMAND: Command = Command {
    name: "check",
    usage: "check [--quick] [--lower-baseline]",
    about: "format, wording, names, dependencies and licences, clippy without warnings; --quick leaves clippy out; \
            --lower-baseline writes the counts of plain-words.txt that have fallen",
    run,
};

const OPTIONS: [&str; 2] = ["--quick", "--lower-baseline"];

const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];

pub fn run(arguments: &[String]) -> Result<(), Error> {
    if let Some(word) = arguments.iter().find(|word| !OPTIONS.contains(&word.as_str())) {
        return Err(Error::unknown("option of check", word, OPTIONS));
    }
    if arguments.iter().any(|word| word == "--lower-baseline") {
        return words::lower_baseline(&process::root());
    }
    // The quick stages come first, so that a developer reads their findings while clippy still runs.
    let mut results = vec![
        ("format", stage("format", || process::run(cargo(["fmt", "--all", "--check"])))),
        ("wording", stage("wording", || no_findings(&wording::findings(&process::root())?))),
        ("words", stage("words", || no_findings(&words::findings(&process::root())?))),
        ("names", stage("names", || no_findings(&names::findings(&process::root())?))),
        ("dependencies", stage("dependencies", || no_findings(&dependency_findings()?))),
    ];
    if arguments.is_empty() {
        results.push(("clippy", stage("clippy", || process::run(cargo(CLIPPY)))));
    }
    let mut failed = Vec::new();
    for (name, result) in results {
        if let Err(error) = result {
            eprintln!("{error}");
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(Error::failed(format!("check failed: {}", failed.join(", ")))) }
}

fn dependency_findings() -> Result<Vec<String>, Error> {
    let metadata = Metadata::of_everything()?;
    let allowed = licence::allowed(&text_of("deny.toml")?);
    let mut findings = source::findings(&metadata);
    findings.extend(licence::findings(&metadata, &allowed));
    findings.extend(reason::findings(&text_of("Cargo.toml")?));
    findings.extend(unused::findings(&process::root(), &Metadata::of_members()?)?);
    Ok(findings)
}

fn text_of(name: &str) -> Result<String, Error> {
    std::fs::read_to_string(process::root().join(name)).map_err(|error| Error::failed(format!("{name}: {error}")))
}

fn no_findings(findings: &[String]) -> Result<(), Error> {
    if findings.is_empty() { Ok(()) } else { Err(Error::Failed(findings.join("\n"))) }
}
