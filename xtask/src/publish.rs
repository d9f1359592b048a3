//! `cargo xtask publish`: checks that the crates under `lib` can be published, without publishing them. It packs each
//! crate and compiles it from the packages alone.
//!
//! Each run uses a new folder, because cargo caches a package by version and path.

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
    // The folder has no further use.
    let _ = std::fs::remove_dir_all(&folder);
    result
}
