//! A question to a server by its own client program, with an end.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::process::wait_until;

/// A server that accepts and then says nothing (paused, overloaded) must not hold the questioner.
const ANSWER_TIME: Duration = Duration::from_secs(5);

/// For programs that set up the data of a server; a loaded machine takes its time.
pub const SETUP_TIME: Duration = Duration::from_secs(120);

pub fn answer(command: Command) -> Result<String, String> {
    answer_within(command, ANSWER_TIME)
}

/// The answer, or the last line of the complaint. What is printed must fit into a pipe.
pub fn answer_within(mut command: Command, time: Duration) -> Result<String, String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("the client cannot be started: {error}"))?;
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
    let said = text(child.stdout.as_mut().map(|stream| stream as &mut dyn Read));
    let complaint = text(child.stderr.as_mut().map(|stream| stream as &mut dyn Read));
    match (ended, status.success()) {
        (false, _) => Err(format!("no answer within {} s", time.as_secs())),
        (true, true) => Ok(said),
        (true, false) => Err(complaint.lines().last().unwrap_or("no reason given").to_owned()),
    }
}
