//! The signals that end a node: SIGTERM and Ctrl-C, heard as often as they come.

use honeyflow_runtime::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGTERM and Ctrl-C.
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    pub fn new() -> Result<Stop, Failure> {
        Ok(Stop { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    pub async fn asked(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

pub fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::fatal("no-signals", format!("cannot listen for signals: {error}")))
}
