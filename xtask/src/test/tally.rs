//! Sums the results of all test programs from the lines they print.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Debug, Default)]
pub struct Tally {
    passed: u64,
    failed: u64,
    /// Tests marked `#[ignore]`.
    ignored: u64,
    /// Skipped suites with their reason; each counts once.
    skipped: BTreeMap<String, String>,
    /// Inside the output of passing tests, of which only the `SKIPPED` lines matter.
    in_successes: bool,
}

impl Tally {
    /// Counts one line; returns whether to print it.
    pub fn hear(&mut self, line: &str) -> bool {
        let line = line.trim_end();
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.add_result(counts);
            self.in_successes = false;
            return true;
        }
        if let Some((suite, reason)) = line.trim_start().strip_prefix("SKIPPED ").and_then(|rest| rest.split_once(": "))
        {
            return self.skip(suite, reason);
        }
        match line {
            "successes:" => self.in_successes = true,
            "failures:" => self.in_successes = false,
            _ => {}
        }
        !self.in_successes
    }

    /// The first reason stays, because the command that tried to start a server knows it better than the suite. True if it is new.
    pub fn skip(&mut self, suite: &str, reason: &str) -> bool {
        if self.skipped.contains_key(suite) {
            return false;
        }
        self.skipped.insert(suite.to_owned(), reason.to_owned());
        true
    }

    /// `ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s`
    fn add_result(&mut self, counts: &str) {
        let counts = counts.split_once(". ").map_or(counts, |(_, rest)| rest);
        for part in counts.split(';') {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next().and_then(|word| word.parse::<u64>().ok()), words.next())
            else {
                continue;
            };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }

    pub fn count_passed(&mut self) {
        self.passed += 1;
    }

    pub fn count_failed(&mut self) {
        self.failed += 1;
    }

    /// Counts skipped suites as failed, where all are required.
    pub fn fail_skipped_suites(&mut self) {
        for (suite, reason) in std::mem::take(&mut self.skipped) {
            eprintln!("required but skipped: {suite}: {reason}");
            self.failed += 1;
        }
    }

    pub fn failed(&self) -> u64 {
        self.failed
    }

    pub fn skipped_suites(&self) -> Vec<String> {
        self.skipped.iter().map(|(suite, reason)| format!("{suite}: {reason}")).collect()
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.ignored + self.skipped.len() as u64;
        write!(f, "{} passed, {} failed, {skipped} skipped", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(text: &str) -> (Tally, Vec<&str>) {
        let mut tally = Tally::default();
        let shown = text.lines().filter(|line| tally.hear(line)).collect();
        (tally, shown)
    }

    #[test]
    fn results_of_all_binaries_are_summed() {
        let (tally, _) = heard(
            "running 3 tests\ntest a ... ok\n\
             test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
             test result: FAILED. 4 passed; 3 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.20s\n",
        );
        assert_eq!(tally.to_string(), "6 passed, 3 failed, 1 skipped");
        assert_eq!(tally.failed(), 3);
    }

    #[test]
    fn a_skipped_suite_counts_once() {
        let (tally, _) = heard("SKIPPED postgres: not installed\n  SKIPPED postgres: not running\nSKIPPED nats: no\n");
        assert_eq!(tally.to_string(), "0 passed, 0 failed, 2 skipped");
        assert_eq!(tally.skipped_suites(), ["nats: no", "postgres: not installed"]);
    }

    #[test]
    fn where_all_are_required_skipped_is_failed() {
        let (mut tally, _) =
            heard("SKIPPED postgres: not installed\ntest result: ok. 1 passed; 0 failed; 2 ignored;\n");
        tally.fail_skipped_suites();
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 2 skipped");
    }

    #[test]
    fn chatter_of_passing_tests_is_hidden_but_heard() {
        let (tally, shown) = heard(
            "test a ... ok\n\nsuccesses:\n\n---- a stdout ----\nchatter\nSKIPPED redis: gone\n\nsuccesses:\n    a\n\n\
             failures:\n\n---- b stdout ----\nwhy b failed\n\ntest result: FAILED. 1 passed; 1 failed;\nafter\n",
        );
        assert!(!shown.contains(&"chatter"));
        assert!(shown.contains(&"why b failed") && shown.contains(&"after"));
        assert!(shown.contains(&"SKIPPED redis: gone"));
        assert_eq!(tally.to_string(), "1 passed, 1 failed, 1 skipped");
    }

    #[test]
    fn a_line_that_only_resembles_a_result_counts_nothing() {
        let (tally, _) = heard("the test result: ok. 9 passed\nSKIPPED without reason\n");
        assert_eq!(tally.to_string(), "0 passed, 0 failed, 0 skipped");
    }
}
