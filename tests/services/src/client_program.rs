//! Runs a server's own client program, with a time limit.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::wait_until;

/// A server that accepts and then does not answer (paused, overloaded) must not block the caller.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// The limit for programs that set up a server's data; a loaded machine is slow.
pub const SETUP_TIME: Duration = Duration::from_secs(120);

pub fn run(command: Command) -> Result<String, String> {
    run_within(command, ANSWER_TIME)
}

/// Returns the program's output, or the last line of its error output. The output must fit into a pipe.
pub fn run_within(mut command: Command, time: Duration) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot start the client program: {error}"))?;
    let ended = wait_until(time, || !matches!(child.try_wait(), Ok(None)));
    if !ended {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let text = |stream: Option<&mut dyn Read>| {
        let mut text = String::new();
        stream.and_then(|stream| stream.read_to_string(&mut text).ok());
        text.trim().to_owned()
    };
    let output = text(child.stdout.as_mut().map(|stream| stream as &mut dyn Read));
    let complaint = text(child.stderr.as_mut().map(|stream| stream as &mut dyn Read));
    match (ended, status.success()) {
        (false, _) => Err(format!("no answer within {} s", time.as_secs())),
        (true, true) => Ok(output),
        (true, false) => Err(complaint.lines().last().unwrap_or("no reason given").to_owned()),
    }
}
