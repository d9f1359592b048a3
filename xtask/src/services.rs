//! `cargo xtask services up|down`: private servers for tests and for people, under `target/services`.
//!
//! Everything in this tree is embedded (SQLite, Tantivy), so the list is empty. A server is added here together with
//! the first suite that needs it: its name in `SERVERS`, its recipe in a file of its own beneath this one.

use crate::Command;
use crate::error::Error;

pub const COMMAND: Command = Command {
    name: "services",
    usage: "services up|down [name …]",
    about: "start or stop private servers; none is needed by this tree yet",
    run,
};

/// Names that `up` and `down` accept.
const SERVERS: &[&str] = &[];

fn run(arguments: &[String]) -> Result<(), Error> {
    let Some((verb, names)) = arguments.split_first() else {
        return Err(Error::Usage(format!("up or down? cargo xtask {}", COMMAND.usage)));
    };
    if !["up", "down"].contains(&verb.as_str()) {
        return Err(Error::unknown("verb", verb, ["up", "down"]));
    }
    if let Some(name) = names.iter().find(|name| !SERVERS.contains(&name.as_str())) {
        return Err(Error::Usage(format!(
            "no server `{name}`: every part of this tree is embedded, none is needed yet"
        )));
    }
    println!("no server is needed yet: every part of this tree is embedded; nothing to bring {verb}");
    Ok(())
}
