//! Runs other programs from the root of the repository, and prints the name and time of each stage.

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::error::Error;

/// The root of the repository: the parent of this crate's folder.
pub fn root() -> PathBuf {
    // Cargo sets the variable at run time; the compiled-in path serves a binary that was started by hand.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    here.parent().map_or(here.clone(), PathBuf::from)
}

/// Whether this is continuous integration, where no suite may be skipped and no file changed.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}

/// A command of the cargo that runs this program, in the root of the repository.
pub fn cargo<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs one named stage and prints its time, whether it succeeds or fails.
pub fn stage<T>(name: &str, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    eprintln!("── {name}");
    let begun = Instant::now();
    let result = work();
    let verdict = if result.is_ok() { "ok" } else { "FAILED" };
    eprintln!("── {name}: {verdict} in {:.1} s", begun.elapsed().as_secs_f64());
    result
}

/// Runs a program with this program's standard streams; any exit code but 0 is a failure.
pub fn run(mut command: Command) -> Result<(), Error> {
    let status = command.status().map_err(|error| cannot_start(&command, &error))?;
    succeeded(&command, status)
}

/// Runs a program and returns its standard output; its standard error goes to ours.
pub fn output(mut command: Command) -> Result<String, Error> {
    let output = command.stderr(Stdio::inherit()).output().map_err(|error| cannot_start(&command, &error))?;
    succeeded(&command, output.status)?;
    String::from_utf8(output.stdout).map_err(|error| Error::failed(format!("{}: {error}", shown(&command))))
}

pub fn succeeded(command: &Command, status: ExitStatus) -> Result<(), Error> {
    if status.success() { Ok(()) } else { Err(Error::failed(format!("{} ended with {status}", shown(command)))) }
}

pub fn cannot_start(command: &Command, error: &std::io::Error) -> Error {
    Error::failed(format!("{} cannot be started: {error}", shown(command)))
}

fn shown(command: &Command) -> String {
    let program = PathBuf::from(command.get_program());
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
    std::iter::once(name).chain(words).collect::<Vec<_>>().join(" ")
}
