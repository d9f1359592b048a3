//! `cargo xtask model`: explores every order of events in a small hive to a given depth. It passes its arguments to the model.

use crate::error::Error;
use crate::{Command, metadata, process};

pub const COMMAND: Command = Command {
    name: "model",
    usage: "model [--faults N] [--first MS] [--next MS]",
    about: "explore every order in which a given number of faults can hit a small hive",
    run,
};

const PACKAGE: &str = "honeyflow-model";
const BINARY: &str = "model";

fn run(arguments: &[String]) -> Result<(), Error> {
    metadata::require_binary(PACKAGE, BINARY)?;
    let mut command = process::cargo(["run", "--release", "--package", PACKAGE, "--bin", BINARY, "--"]);
    command.args(arguments);
    process::stage("model", || process::run(command))
}
