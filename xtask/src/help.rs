//! `cargo xtask help`: lists the commands.

use crate::error::Error;
use crate::{COMMANDS, Command};

pub const COMMAND: Command = Command { name: "help", usage: "help", about: "print this list", run };

pub fn run(_arguments: &[String]) -> Result<(), Error> {
    println!("cargo xtask <command>\n");
    for command in COMMANDS {
        println!("  {:<36} {}", command.usage, command.about);
    }
    Ok(())
}
