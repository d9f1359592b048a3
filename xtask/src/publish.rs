//! `cargo xtask publish`: whether the crates that others use could be published, without doing it. Each is packed, and
//! compiled from what is in the package and from the others' packages alone.

use crate::error::Error;
use crate::metadata::Metadata;
use crate::{Command, process};

pub const COMMAND: Command = Command {
    name: "publish",
    usage: "publish [--allow-dirty]",
    about: "pack the crates that others use and compile them from their packages alone; nothing is uploaded",
    run,
};

fn run(arguments: &[String]) -> Result<(), Error> {
    if let Some(word) = arguments.iter().find(|word| *word != "--allow-dirty") {
        return Err(Error::unknown("option of publish", word, ["--allow-dirty"]));
    }
    let members = Metadata::of_members()?;
    let mut command = process::cargo(["publish", "--dry-run"]);
    command.args(arguments);
    for package in members.published() {
        command.args(["--package", package]);
    }
    process::stage("publish", || process::run(command))
}
