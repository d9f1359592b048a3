//! Kill -9 at any time: an answered write is still there, and a deleted document does not come back.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
    time::Duration,
};

use futures_util::future::join_all;
use honeyflow_conformance::sink::{delete, put};
use honeyflow_event::Stamp;
use honeyflow_sink::{Outcome, Sink, Write};
use serde_json::json;

use crate::{open, stamp};

const FOLDER: &str = "HONEYFLOW_TEST_CRASH_FOLDER";
const KEYS: u32 = 40;
const ROUNDS: u64 = 6;

/// Writes, updates and deletes in a loop, four batches at a time, and prints what was sent and answered.
fn child(folder: &Path, epoch: u64) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let sink = open(folder);
        let mut sequence = 0;
        loop {
            let batches: Vec<Vec<_>> = (0..4)
                .map(|part| {
                    (0..5)
                        .map(|n| {
                            sequence += 1;
                            let key = format!("k{}", (sequence * 7 + n * 13) % (KEYS / 4) * 4 + part);
                            let stamp = stamp(epoch, sequence);
                            match sequence % 3 {
                                0 => delete(&key, stamp),
                                _ => put(&key, stamp, json!({"title": format!("book {sequence}"), "pages": sequence})),
                            }
                        })
                        .collect()
                })
                .collect();
            for write in batches.iter().flatten() {
                println!("sent {} {} {}", kind(write), write.key, write.stamp);
            }
            let answers = join_all(batches.iter().cloned().map(|batch| sink.write(batch))).await;
            for (batch, answers) in batches.iter().zip(answers) {
                for (write, answer) in batch.iter().zip(answers) {
                    if answer == Outcome::Done {
                        println!("answered {} {} {}", kind(write), write.key, write.stamp);
                    }
                }
            }
        }
    });
}

fn kind(write: &Write) -> &'static str {
    if write.document.is_some() { "put" } else { "delete" }
}

/// What the child processes printed about a key.
#[derive(Default)]
struct KeyLog {
    /// The newest write that was answered, and whether it left a document.
    answered: Option<(Stamp, bool)>,
    /// All writes that were sent. Those newer than the answered one may have happened or not.
    sent: Vec<(Stamp, bool)>,
}

#[test]
fn rl_5_kill_9_loses_nothing_that_was_answered() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        let epoch = std::env::var("HONEYFLOW_TEST_EPOCH").unwrap().parse().unwrap();
        return child(Path::new(&folder), epoch);
    }
    let home = tempfile::tempdir().unwrap();
    let mut said: BTreeMap<String, KeyLog> = BTreeMap::new();
    for round in 1..=ROUNDS {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "crash::rl_5_kill_9_loses_nothing_that_was_answered", "--nocapture"])
            .env(FOLDER, home.path())
            .env("HONEYFLOW_TEST_EPOCH", round.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answers = 0;
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let words: Vec<&str> = line.split(' ').collect();
            let [verb @ ("sent" | "answered"), kind, key, version] = words[..] else { continue };
            let write = (Stamp(version.parse().unwrap()), kind == "put");
            let said = said.entry(key.to_owned()).or_default();
            if verb == "sent" {
                said.sent.push(write);
                continue;
            }
            said.answered = said.answered.max(Some(write));
            answers += 1;
            if answers == 200 * round {
                // somewhere inside a commit, or a merge
                std::thread::sleep(Duration::from_micros(round * 1_700));
                process.kill().unwrap();
            }
        }
        process.wait().unwrap();
        assert!(answers >= 200 * round, "the process ended by itself after {answers} answers");
        verify(home.path(), &said);
    }
}

fn verify(folder: &Path, said: &BTreeMap<String, KeyLog>) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let sink = open(folder);
    let stats = runtime.block_on(sink.stat(said.keys().map(|key| key.as_str().into()).collect())).unwrap();
    for ((key, said), stat) in said.iter().zip(&stats) {
        let found = stat.as_ref().map(|stat| stat.stamp);
        let allowed = |(stamp, is_put): (Stamp, bool)| found == is_put.then_some(stamp);
        let newer =
            said.sent.iter().copied().filter(|(stamp, _)| said.answered.is_none_or(|(answered, _)| *stamp > answered));
        let is_right = said.answered.map_or(found.is_none(), allowed) || newer.clone().any(allowed);
        assert!(
            is_right,
            "{key} is {found:?}, answered {:?}, sent after it {:?}",
            said.answered,
            newer.collect::<Vec<_>>()
        );
    }
    let (hits, _) = runtime.block_on(sink.list(None, 1000)).unwrap();
    let count = runtime.block_on(sink.count()).unwrap();
    let keys: BTreeSet<_> = hits.iter().map(|hit| &hit.key).collect();
    assert_eq!((hits.len() as u64, keys.len() as u64), (count, count), "every key is there once");
}
