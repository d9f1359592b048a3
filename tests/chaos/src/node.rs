//! A Honeyflow node in a separate process: started, asked for its status, killed.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// The limit is generous because a loaded machine may be slow; a node that hangs is still an error.
const START_TIMEOUT: Duration = Duration::from_secs(60);

pub struct Node {
    child: Child,
    folder: PathBuf,
}

impl Node {
    /// Starts the node and waits until it holds its lease.
    pub fn start(binary: &Path, folder: &Path, log: &std::fs::File) -> Result<Node, String> {
        let child = Command::new(binary)
            .args(["start", "--yes", "--config"])
            .arg(folder.join("honeyflow.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log.try_clone().map_err(|error| error.to_string())?)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", binary.display()))?;
        let mut node = Node { child, folder: folder.to_owned() };
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            if let Ok(Some(status)) = node.child.try_wait() {
                return Err(format!("the node ended by itself: {status}"));
            }
            if node.status().is_some_and(|status| status["engine"]["sources"][0]["epoch"].is_u64()) {
                return Ok(node);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err("the node took no lease in time".to_owned())
    }

    /// Returns the answer to `/v1/status`, if this process is the one that answers.
    pub fn status(&self) -> Option<Value> {
        let running: Value =
            serde_json::from_str(&std::fs::read_to_string(self.folder.join("data/node.json")).ok()?).ok()?;
        if running["pid"].as_u64()? != u64::from(self.child.id()) {
            return None;
        }
        get(running["address"].as_str()?, "/v1/status")
    }

    /// Sends the signal and waits until the process has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<(), String> {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).map_err(|error| format!("cannot signal the node: {error}"))?;
        let began = Instant::now();
        while began.elapsed() < START_TIMEOUT {
            if let Ok(Some(_)) = self.child.try_wait() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Err("the node did not end in time".to_owned())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn get(address: &str, path: &str) -> Option<Value> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        body.split_once("\r\n")?.1.rsplit_once("\r\n0\r\n")?.0
    } else {
        body
    };
    serde_json::from_str(body).ok()
}
