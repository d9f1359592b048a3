//! `cargo xtask check`: format, lints, where dependencies come from and under which licence, and that the tree stands
//! alone. Every stage runs, so that one call shows everything that is wrong.

mod licence;
mod reason;
mod source;
mod wording;

use crate::Command;
use crate::error::Error;
use crate::metadata::Metadata;
use crate::process::{self, cargo, stage};

pub const COMMAND: Command = Command {
    name: "check",
    usage: "check [--quick]",
    about: "format, wording, sources and licences, clippy without warnings; --quick leaves clippy out",
    run,
};

const CLIPPY: &[&str] = &["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];

pub fn run(arguments: &[String]) -> Result<(), Error> {
    if let Some(word) = arguments.iter().find(|word| *word != "--quick") {
        return Err(Error::unknown("option of check", word, ["--quick"]));
    }
    // The quick ones first: whoever waits for clippy should know the rest already.
    let mut results = vec![
        ("format", stage("format", || process::run(cargo(["fmt", "--all", "--check"])))),
        ("wording", stage("wording", || no_findings(&wording::findings(&process::root())?))),
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
    Ok(findings)
}

fn text_of(name: &str) -> Result<String, Error> {
    std::fs::read_to_string(process::root().join(name)).map_err(|error| Error::failed(format!("{name}: {error}")))
}

fn no_findings(findings: &[String]) -> Result<(), Error> {
    if findings.is_empty() { Ok(()) } else { Err(Error::Failed(findings.join("\n"))) }
}
