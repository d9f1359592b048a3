//! `cargo xtask bench <name>`: runs a benchmark, built with the profile of published binaries. Only figures go to standard output.

use crate::error::Error;
use crate::{Command, metadata, process};

pub const COMMAND: Command = Command {
    name: "bench",
    usage: "bench <name> [--output json] …",
    about: "measure ours and its peer in turn; one figure per line",
    run,
};

const PACKAGE: &str = "honeyflow-bench";
const BINARY: &str = "bench";

fn run(arguments: &[String]) -> Result<(), Error> {
    let Some(name) = arguments.first().filter(|word| !word.starts_with('-')) else {
        return Err(Error::Usage(format!("which bench? cargo xtask {}", COMMAND.usage)));
    };
    metadata::require_binary(PACKAGE, BINARY)?;
    let mut command = process::cargo(["run", "--profile", "dist", "--package", PACKAGE, "--bin", BINARY, "--"]);
    command.args(arguments);
    process::stage(&format!("bench {name}"), || process::run(command))
}
