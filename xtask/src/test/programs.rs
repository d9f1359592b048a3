//! Lists the test programs: those that `cargo test --no-run` has built, and the doc tests.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::error::Error;
use crate::process;

/// `--show-output` prints the output of passing tests, which has the lines of skipped suites.
const SHOW: &str = "--show-output";

/// Cargo itself compiles and runs the examples in doc comments.
const EXAMPLES: &[&str] = &["test", "--workspace", "--all-features", "--no-fail-fast", "--doc", "--", SHOW];

/// Programs without the test harness: each counts as one test.
const SUITES: &[(&str, &[&str])] = &[("sim", &["--seeds", "200"])];

#[derive(Debug, PartialEq)]
pub struct Program {
    pub title: String,
    program: OsString,
    arguments: Vec<String>,
    folder: PathBuf,
    /// It prints no counts; only its exit code counts.
    pub is_suite: bool,
}

impl Program {
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        // Tests start in the folder of their package, as with `cargo test`.
        command.args(&self.arguments).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }

    #[cfg(test)]
    pub fn shell(title: &str, script: &str, is_suite: bool) -> Self {
        let arguments = vec!["-c".to_owned(), script.to_owned()];
        Self { title: title.to_owned(), program: "sh".into(), arguments, folder: PathBuf::from("/"), is_suite }
    }

    fn examples() -> Self {
        let cargo = process::cargo(EXAMPLES);
        Self {
            title: "examples in documents".to_owned(),
            program: cargo.get_program().to_owned(),
            arguments: EXAMPLES.iter().map(|&word| word.to_owned()).collect(),
            folder: process::root(),
            is_suite: false,
        }
    }
}

#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Reads the messages of `cargo test --no-run --message-format json`. Larger programs usually run longer, so the largest
/// start first.
pub fn of_messages(messages: &str) -> Result<Vec<Program>, Error> {
    let mut programs = vec![Program::examples()];
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message = serde_json::from_str(line)
            .map_err(|error| Error::failed(format!("a message of cargo is not readable: {error}: {line}")))?;
        programs.extend(program_of(message));
    }
    programs[1..].sort_by_key(|program| std::cmp::Reverse(size_of(&program.program)));
    Ok(programs)
}

fn program_of(message: Message) -> Option<Program> {
    let (target, executable) = (message.target?, message.executable?);
    let suite = SUITES.iter().find(|(name, _)| *name == target.name && target.kind.iter().any(|kind| kind == "bin"));
    let is_test = message.profile.is_some_and(|profile| profile.test);
    if message.reason != "compiler-artifact" || !(is_test || suite.is_some()) {
        return None;
    }
    let folder = message.manifest_path?.parent()?.to_owned();
    let package = folder.strip_prefix(process::root()).unwrap_or(&folder).display();
    let (title, words) = match suite {
        Some((name, words)) if !is_test => ((*name).to_owned(), *words),
        _ if target.kind.iter().any(|kind| kind == "test") => (format!("{package}: {}", target.name), &[SHOW][..]),
        _ => (format!("{package}: units"), &[SHOW][..]),
    };
    let arguments = words.iter().map(|&word| word.to_owned()).collect();
    Some(Program { title, program: executable.into(), arguments, folder, is_suite: !is_test })
}

fn size_of(program: impl AsRef<Path>) -> u64 {
    std::fs::metadata(program).map_or(0, |file| file.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(name: &str, kind: &str, test: bool, executable: &str) -> String {
        let executable = if executable.is_empty() { "null".to_owned() } else { format!("{executable:?}") };
        format!(r#"{{"reason":"compiler-artifact","manifest_path":"/tree/crate/Cargo.toml","executable":{executable},"#)
            + &format!(r#""target":{{"name":"{name}","kind":["{kind}"]}},"profile":{{"test":{test}}}}}"#)
    }

    fn titles(messages: &[String]) -> Vec<String> {
        let programs = of_messages(&messages.join("\n")).unwrap();
        programs.into_iter().skip(1).map(|program| program.title).collect()
    }

    #[test]
    fn tests_and_suites_run_and_nothing_else() {
        let messages = [
            artifact("it", "test", true, "/x/it-1"),
            artifact("thing", "lib", true, "/x/thing-1"),
            artifact("thing", "lib", false, ""),
            artifact("other", "bin", false, "/x/other"),
            artifact("sim", "bin", false, "/x/sim"),
            artifact("sim", "bin", true, "/x/sim-1"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "no message".to_owned(),
        ];
        assert_eq!(titles(&messages), ["/tree/crate: it", "/tree/crate: units", "sim", "/tree/crate: units"]);
    }

    #[test]
    fn the_largest_begins() {
        let folder = tempfile::tempdir().unwrap();
        let written = |name: &str, length: usize| {
            let path = folder.path().join(name);
            std::fs::write(&path, vec![0; length]).unwrap();
            artifact(name, "test", true, path.to_str().unwrap())
        };
        let messages = [written("small", 1), written("large", 100), written("middle", 10)];
        assert_eq!(titles(&messages), ["/tree/crate: large", "/tree/crate: middle", "/tree/crate: small"]);
    }

    #[test]
    fn a_message_that_is_none_is_an_error() {
        assert!(of_messages("{broken").unwrap_err().to_string().contains("{broken"));
    }
}
