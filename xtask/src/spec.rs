//! `cargo xtask spec`: lists requirements of `docs/spec` that no test names, and tests that name an unknown
//! requirement. Gaps are a failure only with `--strict`.

mod id;
mod requirements;
mod scan;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Serialize;

use crate::error::Error;
use crate::{Command, files, process};
use id::Id;
use requirements::Requirements;
use scan::Mention;

pub const COMMAND: Command = Command {
    name: "spec",
    usage: "spec [--output text|json] [--strict]",
    about: "requirements without a test, and tests of unknown requirements",
    run,
};

/// Folders whose Rust files may hold tests.
const TESTED: &[&str] = &["crates", "lib", "tests", "bench", "xtask"];

#[derive(Default)]
struct Options {
    json: bool,
    strict: bool,
}

/// The findings, as `--output json` prints them.
#[derive(Debug, Serialize)]
struct Report {
    requirements: usize,
    tested: usize,
    untested: Vec<String>,
    /// Tests that the specification names and the tree does not have.
    missing_tests: Vec<String>,
    unknown: Vec<Mention>,
}

fn run(arguments: &[String]) -> Result<(), Error> {
    let options = parse(arguments)?;
    let root = process::root();
    let mut requirements = Requirements::default();
    let mut mentions = Vec::new();
    let mut functions = BTreeSet::new();
    for path in files::of_repository(&root)? {
        let is = |extension: &str| path.extension().is_some_and(|found| found == extension);
        let read = || {
            fs::read_to_string(root.join(&path)).map_err(|error| Error::failed(format!("{}: {error}", path.display())))
        };
        if path.starts_with("docs/spec") && is("md") {
            requirements.read(&path.display().to_string(), &read()?).map_err(Error::Failed)?;
        } else if is("rs") && TESTED.iter().any(|folder| path.starts_with(folder)) {
            scan::scan(&path.display().to_string(), &read()?, &mut mentions, &mut functions);
        }
    }
    let report = compare(&requirements, mentions, &functions);
    if options.json {
        println!("{}", serde_json::to_string(&report).map_err(|error| Error::failed(error.to_string()))?);
    } else {
        print(&report, &requirements);
    }
    let complete = report.untested.is_empty() && report.unknown.is_empty() && report.missing_tests.is_empty();
    if options.strict && !complete { Err(Error::failed("docs/spec and the tests do not agree")) } else { Ok(()) }
}

fn parse(arguments: &[String]) -> Result<Options, Error> {
    let mut options = Options::default();
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--strict" => options.strict = true,
            "--output" => match words.next().map(String::as_str) {
                Some("json") => options.json = true,
                Some("text") => options.json = false,
                other => return Err(Error::unknown("output", other.unwrap_or_default(), ["text", "json"])),
            },
            other => return Err(Error::unknown("option of spec", other, ["--strict", "--output"])),
        }
    }
    Ok(options)
}

fn compare(requirements: &Requirements, mentions: Vec<Mention>, functions: &BTreeSet<String>) -> Report {
    let named: BTreeSet<Id> = mentions.iter().map(|mention| mention.id).collect();
    let untested: Vec<String> =
        requirements.living().filter(|(id, _)| !named.contains(id)).map(|(id, _)| id.to_string()).collect();
    let missing_tests = requirements.tests().filter(|name| !functions.contains(*name)).map(str::to_owned).collect();
    let count = requirements.living().count();
    let unknown = mentions.into_iter().filter(|mention| !requirements.has(mention.id)).collect();
    Report { requirements: count, tested: count - untested.len(), untested, missing_tests, unknown }
}

fn print(report: &Report, requirements: &Requirements) {
    let untested: BTreeSet<&str> = report.untested.iter().map(String::as_str).collect();
    let mut by_file: BTreeMap<&str, (usize, Vec<String>)> = BTreeMap::new();
    for (id, file) in requirements.living() {
        let (count, gaps) = by_file.entry(file).or_default();
        *count += 1;
        if untested.contains(id.to_string().as_str()) {
            gaps.push(id.to_string());
        }
    }
    for (file, (count, gaps)) in by_file {
        println!("{file}: {} of {count} tested", count - gaps.len());
        if !gaps.is_empty() {
            println!("  without a test: {}", gaps.join(" "));
        }
    }
    if !report.missing_tests.is_empty() {
        println!("named in docs/spec and not there: {}", report.missing_tests.join(" "));
    }
    for mention in &report.unknown {
        println!(
            "{}:{}: {} names {}, which docs/spec does not know",
            mention.file, mention.line, mention.test, mention.id
        );
    }
    println!("{} requirements, {} tested, {} not", report.requirements, report.tested, report.untested.len());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_and_strangers_are_told_apart() {
        let mut requirements = Requirements::default();
        requirements.read("docs/spec/a.md", "- **OB-7** One.\n- **OB-8** Two.\n  Tests: `two_by_name`.\n").unwrap();
        let mut mentions = Vec::new();
        let mut functions = BTreeSet::new();
        let code = "#[test]\nfn ob_7_key_change() {}\n#[test]\nfn ob_99_stranger() {}\n";
        scan::scan("a.rs", code, &mut mentions, &mut functions);
        let report = compare(&requirements, mentions, &functions);
        assert_eq!((report.requirements, report.tested), (2, 1));
        assert_eq!(report.untested, ["OB-8"]);
        assert_eq!(report.missing_tests, ["two_by_name"]);
        assert_eq!(report.unknown.len(), 1);
        assert_eq!((report.unknown[0].line, report.unknown[0].id.to_string()), (4, "OB-99".to_owned()));
    }

    #[test]
    fn options_are_read() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(parse(&words("--output json --strict")).is_ok_and(|options| options.json && options.strict));
        assert!(matches!(parse(&words("--output")), Err(Error::Usage(_))));
    }

    /// Every line of the documents that begins like a requirement can be parsed, and no id occurs twice.
    #[test]
    fn documents_of_the_tree_are_readable() {
        let root = process::root();
        let mut requirements = Requirements::default();
        for path in files::of_repository(&root).unwrap() {
            if path.starts_with("docs/spec") {
                requirements.read(&path.display().to_string(), &fs::read_to_string(root.join(&path)).unwrap()).unwrap();
            }
        }
        assert!(requirements.living().count() > 400, "only {} requirements", requirements.living().count());
    }
}
