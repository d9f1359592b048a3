//! Runs several test programs at a time, because most suites wait for servers and clocks. Each writes to its own file,
//! which is shown when it has ended, so that outputs do not mix.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::programs::Program;
use super::tally::Tally;
use crate::error::Error;
use crate::process;

/// One program per processor: with more of them, tests that depend on time become late.
pub fn lanes() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

struct Ended {
    output: Vec<u8>,
    status: ExitStatus,
    took: Duration,
}

/// Runs all programs, also after a failure; the error names those that failed. Their output is kept in `folder`.
pub fn run(
    programs: Vec<Program>,
    lanes: usize,
    folder: &Path,
    tally: &mut Tally,
    shown: &mut (dyn Write + Send),
) -> Result<(), Error> {
    std::fs::create_dir_all(folder).map_err(|error| Error::failed(format!("{}: {error}", folder.display())))?;
    let waiting: Mutex<VecDeque<_>> = Mutex::new(programs.into_iter().enumerate().collect());
    let results = Mutex::new((tally, shown, Vec::new()));
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| {
                while let Some((number, program)) = next() {
                    let ended = run_one(program.command(), &folder.join(format!("{number}.txt")));
                    let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                    let (tally, shown, failed) = &mut *results;
                    if let Err(error) = ended.and_then(|ended| account(&program, &ended, tally, shown)) {
                        eprintln!("{error}");
                        failed.push(program.title);
                    }
                }
            });
        }
    });
    let (tally, _, failed) = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() {
        return Ok(());
    }
    // A program that crashed has printed no counts, but it has failed.
    if tally.failed() == 0 {
        tally.count_failed();
    }
    Err(Error::failed(format!("failed: {}", failed.join(", "))))
}

/// Output goes to a file and not to a pipe: a server that a test left behind would keep a pipe open for ever.
fn run_one(mut command: Command, path: &Path) -> Result<Ended, Error> {
    let begun = Instant::now();
    let unusable = |error: std::io::Error| Error::failed(format!("{}: {error}", path.display()));
    let file = File::create(path).map_err(unusable)?;
    command.stderr(file.try_clone().map_err(unusable)?).stdout(file);
    let status = command.status().map_err(|error| process::cannot_start(&command, &error))?;
    Ok(Ended { output: std::fs::read(path).map_err(unusable)?, status, took: begun.elapsed() })
}

/// Reads the output of a program and prints the lines that matter.
fn account(program: &Program, ended: &Ended, tally: &mut Tally, shown: &mut dyn Write) -> Result<(), Error> {
    let mut show =
        |line: &str| writeln!(shown, "{line}").map_err(|error| Error::failed(format!("printing the output: {error}")));
    show(&format!("\n── {}: {:.1} s", program.title, ended.took.as_secs_f64()))?;
    let skipped_before = tally.skipped_suites().len();
    for line in String::from_utf8_lossy(&ended.output).lines() {
        if tally.hear(line) {
            show(line)?;
        }
    }
    if program.is_suite {
        match ended.status.success() {
            false => tally.count_failed(),
            true if tally.skipped_suites().len() == skipped_before => tally.count_passed(),
            true => {}
        }
    }
    process::succeeded(&program.command(), ended.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Discards output, because the command under test would count it.
    fn ran(programs: Vec<Program>, lanes: usize) -> (Result<(), Error>, Tally) {
        let mut tally = Tally::default();
        let folder = tempfile::tempdir().unwrap();
        let result = run(programs, lanes, folder.path(), &mut tally, &mut std::io::sink());
        (result, tally)
    }

    #[test]
    fn output_is_counted_and_failures_are_named() {
        let good = Program::shell("good", "echo 'test result: ok. 2 passed; 0 failed; 0 ignored'", false);
        let bad = Program::shell("bad", "echo 'test result: FAILED. 0 passed; 1 failed; 0 ignored'; exit 101", false);
        let (result, tally) = ran(vec![good, bad], 2);
        assert_eq!(result.unwrap_err().to_string(), "failed: bad");
        assert_eq!(tally.to_string(), "2 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn one_that_breaks_off_has_failed() {
        let (result, tally) = ran(vec![Program::shell("broken", "kill -9 $$", false)], 1);
        assert!(result.is_err());
        assert_eq!(tally.to_string(), "0 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn a_last_line_without_newline_and_bytes_that_are_no_text_are_heard() {
        let (result, tally) = ran(vec![Program::shell("a", r"printf '\377\nSKIPPED kafka: not here' >&2", true)], 1);
        result.unwrap();
        assert_eq!(tally.skipped_suites(), ["kafka: not here"]);
        assert_eq!(tally.to_string(), "0 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn one_that_leaves_a_process_behind_is_not_waited_for() {
        let (result, tally) = ran(vec![Program::shell("parent", "sleep 5 &", true)], 1);
        result.unwrap();
        assert_eq!(tally.to_string(), "1 passed, 0 failed, 0 skipped");
    }

    #[test]
    fn a_suite_counts_as_one_test() {
        let (result, tally) = ran(vec![Program::shell("good", "true", true), Program::shell("bad", "false", true)], 1);
        assert!(result.is_err());
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 0 skipped");
    }

    #[test]
    fn programs_of_several_lanes_run_at_the_same_time() {
        let folder = tempfile::tempdir().unwrap();
        // Each program waits for the other: in one lane they would wait for ever.
        let meet = |mine: &str, other: &str| {
            let path = |name: &str| folder.path().join(name).display().to_string();
            let script = format!("touch {}; until [ -e {} ]; do sleep 0.01; done", path(mine), path(other));
            Program::shell(mine, &script, true)
        };
        let (result, tally) = ran(vec![meet("a", "b"), meet("b", "a")], 2);
        result.unwrap();
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 0 skipped");
    }
}
