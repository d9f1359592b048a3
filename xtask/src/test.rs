//! `cargo xtask test`: everything. First `check`, then all tests of the workspace beside the servers they need, then the
//! suites that need a built binary; at the end one line says how many passed, failed and were skipped.
//!
//! A suite that cannot run prints `SKIPPED <suite>: <reason>` on a line of standard output. Where all are required
//! (`--require-all`, or `CI=true`) that is a failure.

mod servers;
mod tally;

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
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

/// Everything the tests are made of, so that no server waits beside a compiler.
const COMPILE: &[&str] = &["test", "--workspace", "--all-features", "--no-run"];

/// `--show-output` brings out what passing tests printed: the lines by which suites say that they were skipped.
const TESTS: &[&str] = &["test", "--workspace", "--all-features", "--no-fail-fast", "--", "--show-output"];

/// Built like the tests, with all features, so that what was compiled for them is used again.
const BINARIES: &[&str] = &["build", "--workspace", "--all-features", "--bins"];

/// A suite that is a program of its own; it runs as soon as the tree has it.
struct Suite {
    package: &'static str,
    binary: &'static str,
    arguments: &'static [&'static str],
}

const SUITES: &[Suite] = &[Suite { package: "honeyflow-sim", binary: "sim", arguments: &["--seeds", "200"] }];

fn run(arguments: &[String]) -> Result<(), Error> {
    if let Some(word) = arguments.iter().find(|word| !OPTIONS.contains(&word.as_str())) {
        return Err(Error::unknown("option of test", word, OPTIONS));
    }
    let has = |option: &str| arguments.iter().any(|word| word == option);
    let all_required = has("--require-all") || process::in_ci();
    let begun = Instant::now();
    let mut tally = Tally::default();
    let result = run_stages(&mut tally, !has("--no-services"));
    // What did not even compile has no failed test, and has failed all the same.
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
    process::stage("compile", || process::run(process::cargo(COMPILE)))?;
    // Stopped when this function is left, whichever way.
    let _servers = if with_services {
        Some(process::stage("services", || Servers::start(&Metadata::of_members()?.services()?, tally))?)
    } else {
        None
    };
    let tests = process::stage("tests", || listen(process::cargo(TESTS), tally, &mut std::io::stdout()));
    // A failed test is no reason to leave the suites out.
    run_suites(tally).and(tests)
}

fn run_suites(tally: &mut Tally) -> Result<(), Error> {
    let members = Metadata::of_members()?;
    let suites: Vec<&Suite> = SUITES.iter().filter(|suite| members.has_binary(suite.package, suite.binary)).collect();
    if suites.is_empty() {
        return Ok(());
    }
    process::stage("binaries", || process::run(process::cargo(BINARIES)))?;
    for suite in suites {
        let program = members.target_directory.join("debug").join(suite.binary);
        let mut command = std::process::Command::new(program);
        command.args(suite.arguments).current_dir(process::root());
        let skipped_before = tally.skipped_suites().len();
        match process::stage(suite.binary, || listen(command, tally, &mut std::io::stdout())) {
            Err(error) => {
                eprintln!("{error}");
                tally.count_failed();
            }
            Ok(()) if tally.skipped_suites().len() == skipped_before => tally.count_passed(),
            Ok(()) => {}
        }
    }
    Ok(())
}

/// Runs a program and reads its standard output along, line by line, while it is shown.
fn listen(mut command: std::process::Command, tally: &mut Tally, shown: &mut dyn Write) -> Result<(), Error> {
    command.stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| process::cannot_start(&command, &error))?;
    if let Some(output) = child.stdout.take() {
        for line in BufReader::new(output).split(b'\n') {
            let line = line.map_err(|error| Error::failed(format!("reading the output: {error}")))?;
            let line = String::from_utf8_lossy(&line);
            if tally.hear(&line) {
                writeln!(shown, "{line}").map_err(|error| Error::failed(format!("printing the output: {error}")))?;
            }
        }
    }
    let status = child.wait().map_err(|error| Error::failed(format!("waiting for its end: {error}")))?;
    process::succeeded(&command, status)
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn shell(script: &str, tally: &mut Tally) -> Result<(), Error> {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", script]);
        // Into nothing: these tests are themselves heard by the command they test.
        listen(command, tally, &mut std::io::sink())
    }

    #[test]
    fn output_is_counted_and_the_exit_code_kept() {
        let mut tally = Tally::default();
        assert!(shell("echo 'test result: ok. 2 passed; 0 failed; 0 ignored'", &mut tally).is_ok());
        assert!(shell("echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101", &mut tally).is_err());
        assert_eq!(tally.to_string(), "2 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_last_line_without_newline_and_bytes_that_are_no_text_are_heard() {
        let mut tally = Tally::default();
        shell(r"printf '\377\nSKIPPED kafka: not here'", &mut tally).unwrap();
        assert_eq!(tally.skipped_suites(), ["kafka: not here"]);
    }
}
