//! `cargo xtask fuzz`: runs the tests that corrupt what servers send, for a given time instead of for a few seeds. A
//! failing test prints its seed; `--seed` starts there.

use crate::error::Error;
use crate::{Command, process};

pub const COMMAND: Command = Command {
    name: "fuzz",
    usage: "fuzz [--seconds N] [--seed N]",
    about: "spoil what CQL and search servers send, each test for so long [60]; what fails names its seed",
    run,
};

/// Without optimisation, so that integer overflow panics.
const TESTS: &[&[&str]] = &[
    &["test", "--package", "honeyflow-cassandra", "--test", "it", "hostile::", "--", "--nocapture"],
    // What a search server reports about its cluster: these tests count cases instead of seeds.
    &["test", "--package", "honeyflow-sink-search", "--lib", "sniff::"],
];
/// About the number of cases that run in one second.
const CASES_PER_SECOND: u64 = 2000;

fn run(arguments: &[String]) -> Result<(), Error> {
    let (seconds, seed) = read(arguments)?;
    let cases = seconds.saturating_mul(CASES_PER_SECOND).max(1);
    process::stage("fuzz", || {
        TESTS.iter().try_for_each(|tests| {
            let mut command = process::cargo(*tests);
            command.env("FUZZ_SECONDS", seconds.to_string()).env("FUZZ_SEED", seed.to_string());
            command.env("PROPTEST_CASES", cases.to_string());
            process::run(command)
        })
    })
}

/// The duration in seconds, and the first seed.
fn read(arguments: &[String]) -> Result<(u64, u64), Error> {
    let (mut seconds, mut seed) = (60, 0);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let number = match word.as_str() {
            "--seconds" => &mut seconds,
            "--seed" => &mut seed,
            other => return Err(Error::unknown("option of fuzz", other, ["--seconds", "--seed"])),
        };
        let said = words.next().and_then(|text| text.parse().ok());
        *number = said.ok_or_else(|| Error::Usage(format!("{word} wants a number")))?;
    }
    Ok((seconds, seed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_seed_are_read() {
        let read = |line: &str| read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(read("").unwrap(), (60, 0));
        assert_eq!(read("--seed 7 --seconds 5").unwrap(), (5, 7));
        for wrong in ["--seconds", "--seed many", "--minutes 5"] {
            assert!(matches!(read(wrong), Err(Error::Usage(_))), "{wrong}");
        }
    }
}
