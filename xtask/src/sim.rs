//! `cargo xtask sim`: runs whole clusters on a simulated clock, one per seed. It passes its arguments to the simulator.

use crate::error::Error;
use crate::{Command, metadata, process};

pub const COMMAND: Command = Command {
    name: "sim",
    usage: "sim [--hive | --limits] [--seeds N] [--start N] [--seed N] …",
    about: "run simulated clusters, or with --hive hives and with --limits limiters alone, one per seed; a failing seed is printed",
    run,
};

const PACKAGE: &str = "honeyflow-sim";
const BINARY: &str = "sim";

fn run(arguments: &[String]) -> Result<(), Error> {
    metadata::require_binary(PACKAGE, BINARY)?;
    let mut command = process::cargo(["run", "--release", "--package", PACKAGE, "--bin", BINARY, "--"]);
    command.args(arguments);
    process::stage("sim", || process::run(command))
}
