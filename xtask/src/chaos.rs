//! `cargo xtask chaos <name>`: real processes under real faults. The product is built first, so that the campaign
//! measures faults and not the compiler.

use crate::error::Error;
use crate::{Command, metadata, process};

pub const COMMAND: Command = Command {
    name: "chaos",
    usage: "chaos embedded|hive|pool [--backend NAME] [--part NAME] [--rounds N] [--soak MINUTES] …",
    about: "kill, pause and cut off real processes, then check what they left; hive: leaders paused beyond their lease, \
            cut off, told the wrong time, on one backend or all, then without the fence; pool: servers killed, paused, \
            cut off under a session",
    run,
};

const PACKAGE: &str = "honeyflow-chaos";

fn run(arguments: &[String]) -> Result<(), Error> {
    let Some(name) = arguments.first().filter(|word| !word.starts_with('-')) else {
        return Err(Error::Usage(format!("which campaign? cargo xtask {}", COMMAND.usage)));
    };
    if !metadata::Metadata::of_members()?.packages.iter().any(|package| package.name == PACKAGE) {
        return Err(Error::failed(format!("this tree has no package `{PACKAGE}`; nothing was run")));
    }
    // The other campaigns need only their own binary and servers.
    if name == "embedded" {
        process::stage("build", || process::run(process::cargo(["build", "--release", "--package", "honeyflow"])))?;
    }
    let mut command = process::cargo(["run", "--release", "--package", PACKAGE, "--"]);
    command.args(arguments);
    process::stage(&format!("chaos {name}"), || process::run(command))
}
