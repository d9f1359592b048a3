//! `cargo xtask test`: runs `check`, then starts the servers and runs all tests of the workspace, several programs at a
//! time. The last line says how many tests passed, failed and were skipped.
//!
//! A suite that cannot run prints `SKIPPED <suite>: <reason>` on a line of standard output. With
//! `--require-all`, or with `CI=true`, a skipped suite is a failure.

mod lanes;
mod programs;
mod servers;
mod tally;

use std::time::Instant;

use crate::error::Error;
use crate::metadata::Metadata;
use crate::{Command, check, process, tools};
use servers::Servers;
use tally::Tally;

pub const COMMAND: Command = Command {
    name: "test",
    usage: "test [--require-all] [--no-services]",
    about: "check, then every test; with --require-all (or CI=true) nothing may be skipped; --no-services starts none",
    run,
};

const OPTIONS: [&str; 2] = ["--require-all", "--no-services"];

/// Compiles all tests before the first server starts, so that servers do not compete with the compiler.
const COMPILE: &[&str] =
    &["test", "--workspace", "--all-features", "--no-run", "--message-format", "json-render-diagnostics"];

fn run(arguments: &[String]) -> Result<(), Error> {
    if let Some(word) = arguments.iter().find(|word| !OPTIONS.contains(&word.as_str())) {
        return Err(Error::unknown("option of test", word, OPTIONS));
    }
    let has = |option: &str| arguments.iter().any(|word| word == option);
    let all_required = has("--require-all") || process::in_ci();
    let begun = Instant::now();
    let mut tally = Tally::default();
    let result = run_stages(&mut tally, !has("--no-services"));
    // A failed build has no failed test, but the run has failed.
    if result.is_err() && tally.failed() == 0 {
        tally.count_failed();
    }
    if all_required {
        tally.fail_skipped_suites();
    }
    for suite in tally.skipped_suites() {
        eprintln!("skipped: {suite}");
    }
    eprintln!("── all in {:.1} s", begun.elapsed().as_secs_f64());
    println!("{tally}");
    match result {
        Ok(()) if tally.failed() == 0 => Ok(()),
        Ok(()) => Err(Error::failed("not everything passed")),
        Err(error) => Err(error),
    }
}

fn run_stages(tally: &mut Tally, with_services: bool) -> Result<(), Error> {
    process::stage("check", || check::run(&[]))?;
    process::stage("tools", || {
        tools::provide();
        Ok(())
    })?;
    let programs = process::stage("compile", || programs::of_messages(&process::output(process::cargo(COMPILE))?))?;
    let members = Metadata::of_members()?;
    // Dropping it stops the servers, also when this function returns an error.
    let _servers = if with_services {
        Some(process::stage("services", || Servers::start(&members.services()?, tally))?)
    } else {
        None
    };
    let said = members.target_directory.join("test-output");
    process::stage("tests", || lanes::run(programs, lanes::lanes(), &said, tally, &mut std::io::stdout()))
}
