//! Starts copies of the service and the load generator, each as a process.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use honeyflow_invariant::rate::GrantedPermits;
use serde_json::Value;

/// A timeout against hanging tests; nothing is measured by it.
const PATIENCE: Duration = Duration::from_secs(60);

/// The running copies; they are killed when this is dropped.
pub struct Fleet {
    copies: Vec<(Child, String)>,
}

impl Fleet {
    pub fn start(copies: usize, store: &str, limit: &str) -> Fleet {
        let mut fleet = Fleet { copies: Vec::new() };
        for n in 0..copies {
            let mut copy = Command::new(env!("CARGO_BIN_EXE_limited-api"))
                .args(["--listen", "127.0.0.1:0", "--store", store, "--limit", limit])
                .args(["--name", &format!("copy-{n}")])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(copy.stdout.take().unwrap()).read_line(&mut line).unwrap();
            let address = line.trim().strip_prefix("listening on ").map(str::to_owned);
            fleet.copies.push((copy, address.clone().unwrap_or_default()));
            assert!(address.is_some(), "copy {n} does not listen: {line:?}");
        }
        fleet
    }

    /// Waits until every copy has read the limit from the store.
    pub fn wait_for_the_store(&self) {
        let begun = Instant::now();
        let is_ready = |address: &str| {
            let limit = get(address, "/limit");
            limit["mode"] == "pool" && limit["version"].as_u64() > Some(0)
        };
        while !self.copies.iter().all(|(_, address)| is_ready(address)) {
            assert!(begun.elapsed() < PATIENCE, "the store never learns the limit");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn load(&self, rate: u64, skew: &str, seconds: u64) -> Value {
        let targets: Vec<&str> = self.copies.iter().map(|(_, address)| address.as_str()).collect();
        let output = Command::new(env!("CARGO_BIN_EXE_limited-load"))
            .args(["--targets", &targets.join(","), "--rate", &rate.to_string(), "--skew", skew])
            .args(["--seconds", &seconds.to_string(), "--output", "json"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {output:?}"))
    }

    /// The admitted requests of all copies, in the order of time.
    pub fn admitted(&self) -> Vec<GrantedPermits> {
        let mut by_ms: BTreeMap<u64, u64> = BTreeMap::new();
        for (_, address) in &self.copies {
            let answer = get(address, "/admitted");
            for pair in answer["by_ms"].as_array().unwrap() {
                *by_ms.entry(pair[0].as_u64().unwrap()).or_default() += pair[1].as_u64().unwrap();
            }
        }
        by_ms.into_iter().map(|(at_ms, permits)| GrantedPermits { at_us: at_ms * 1000, permits }).collect()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for (copy, _) in &mut self.copies {
            let _ = copy.kill();
            let _ = copy.wait();
        }
    }
}

fn get(address: &str, path: &str) -> Value {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}
