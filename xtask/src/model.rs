//! `cargo xtask model`: every future of a small hive to a stated depth. Arguments go to the model as they are.

use crate::error::Error;
use crate::{Command, metadata, process};

pub const COMMAND: Command = Command {
    name: "model",
    usage: "model [--faults N] [--first MS] [--next MS]",
    about: "explore every way in which so many faults can fall into a small hive",
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
