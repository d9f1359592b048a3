//! The signals that stop a node: SIGTERM and Ctrl-C. Each one received counts.

use honeyflow_runtime::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::codes;

/// Waits for SIGTERM or Ctrl-C.
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    pub fn new() -> Result<Stop, Failure> {
        Ok(Stop { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Returns at the next SIGTERM or Ctrl-C.
    pub async fn requested(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

pub fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::fatal(codes::NO_SIGNALS, format!("cannot listen for signals: {error}")))
}
