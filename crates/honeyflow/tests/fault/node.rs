//! Runs a node as a process: starts it, reads its status and sends it signals.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{
    http::{self, Answer},
    wait,
};

pub struct Node {
    child: Child,
    log: PathBuf,
    /// The path of `node.json`, as this process can reach it.
    place: PathBuf,
}

impl Node {
    /// Starts the node without waiting.
    pub fn launch(mut command: Command, log: &Path, place: PathBuf) -> Node {
        let file = File::options().create(true).append(true).open(log).expect("a log");
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file).spawn().expect("the binary");
        Node { child, log: log.to_owned(), place }
    }

    /// Waits until it holds the lease of its source.
    pub fn ready(mut self) -> Node {
        self.until_mut("the node holds its lease", |node| {
            assert!(node.ended().is_none(), "the node ended by itself\n{}", node.log());
            node.status()?["engine"]["sources"][0]["epoch"].as_u64()
        });
        self
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The address of the node, if `node.json` is from this process.
    pub fn address(&self) -> Option<String> {
        let running: Value = serde_json::from_str(&std::fs::read_to_string(&self.place).ok()?).ok()?;
        let own = running["pid"].as_u64()? == u64::from(self.pid());
        own.then(|| running["address"].as_str().map(str::to_owned))?
    }

    pub fn status(&self) -> Option<Value> {
        let answer = http::get(&self.address()?, "/v1/status").ok()?;
        serde_json::from_str(&answer.body).ok()
    }

    pub fn metrics(&self) -> String {
        let address = self.address().expect("an address");
        http::get(&address, "/metrics").map_or_else(|error| error.to_string(), |answer| answer.body)
    }

    pub fn epoch(&self) -> u64 {
        self.until("an epoch", |status| status["engine"]["sources"][0]["epoch"].as_u64())
    }

    pub fn post(&self, headers: &[String], body: &str) -> Answer {
        let address = self.address().expect("an address");
        http::post(&address, "/v1/events", headers, body).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// Sends an event, with the idempotency key if that is not empty.
    pub fn post_event(&self, idempotency_key: &str, body: &str) -> Answer {
        let mut headers = vec!["Content-Type: application/json".to_owned(), format!("Content-Length: {}", body.len())];
        if !idempotency_key.is_empty() {
            headers.push(format!("Idempotency-Key: {idempotency_key}"));
        }
        self.post(&headers, body)
    }

    /// Polls the status until `holds` returns a value.
    pub fn until<T>(&self, what: &str, mut holds: impl FnMut(&Value) -> Option<T>) -> T {
        let found = wait::within(wait::DEADLINE, || holds(&self.status()?));
        found.unwrap_or_else(|| {
            let status = self.status().map_or_else(String::new, |status| status.to_string());
            panic!("waited in vain: {what}\n{status}\n{}", self.log())
        })
    }

    pub fn until_says(&self, what: &str) {
        let found = wait::within(wait::DEADLINE, || self.log().contains(what).then_some(()));
        assert!(found.is_some(), "never logged: {what}\n{}", self.log());
    }

    fn until_mut<T>(&mut self, what: &str, mut look: impl FnMut(&mut Node) -> Option<T>) -> T {
        let found = wait::within(wait::DEADLINE, || look(self));
        found.unwrap_or_else(|| panic!("waited in vain: {what}\n{}", self.log()))
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a signal");
    }

    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child")
    }

    pub fn wait(mut self) -> ExitStatus {
        self.until_mut("the node ends", Node::ended)
    }

    /// Kills the node with SIGKILL.
    pub fn kill(self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Drains the node with SIGTERM, and checks that it succeeds.
    pub fn stop(self) {
        self.signal(Signal::TERM);
        let log = self.log.clone();
        let status = self.wait();
        assert!(status.success(), "{status}\n{}", std::fs::read_to_string(log).unwrap_or_default());
    }

    /// The peak memory of the process, in MiB.
    pub fn memory_peak(&self) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("a process");
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("VmHWM");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") / 1024
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
