//! `cargo xtask publish`: whether the crates that others use could be published, without doing it. Each is packed, and
//! compiled from what is in the package and from the others' packages alone.
//!
//! In a folder of its own each time: cargo never looks again at a package of a version that it has seen at the same place.

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
    let folder = members.target_directory.join(format!("publish-{}", std::process::id()));
    let mut command = process::cargo(["publish", "--dry-run"]);
    command.arg("--target-dir").arg(&folder).args(arguments);
    for package in members.published() {
        command.args(["--package", package]);
    }
    let result = process::stage("publish", || process::run(command));
    // What is left there is of no use to anybody.
    let _ = std::fs::remove_dir_all(&folder);
    result
}
