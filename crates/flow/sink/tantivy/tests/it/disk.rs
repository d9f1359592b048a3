//! F26: the sink waits until a full disk has room again. Runs in a separate mount namespace, on a small tmpfs.

use std::{fs, path::Path, process::Command, sync::Arc, time::Duration};

use honeyflow_conformance::sink::put;
use honeyflow_event::Key;
use honeyflow_runtime::Class;
use honeyflow_sink::{Outcome, Sink};
use serde_json::json;

use crate::{open, stamp};

const FOLDER: &str = "HONEYFLOW_TEST_DISK_FOLDER";
const NAME: &str = "disk::f26_full_disk_is_answered_with_retry_and_waited_out";

#[test]
fn f26_full_disk_is_answered_with_retry_and_waited_out() {
    if let Some(folder) = std::env::var_os(FOLDER) {
        return on_small_disk(Path::new(&folder));
    }
    let home = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=6m tmpfs \"$1\" || exit 77; exec \"$2\" --exact \"$3\" --nocapture";
    let ran = Command::new("unshare")
        .args(["-m", "sh", "-c", script, "sh"])
        .arg(home.path())
        .arg(std::env::current_exe().unwrap())
        .arg(NAME)
        .env(FOLDER, home.path())
        .status();
    match ran {
        Ok(status) if status.success() => {}
        Ok(status) if status.code() != Some(77) && status.code() != Some(1) => panic!("on the small disk: {status}"),
        other => {
            assert!(std::env::var_os("CI").is_none(), "full-disk cannot run here: {other:?}");
            println!("SKIPPED full-disk: no mount namespace with a tmpfs here ({other:?})");
        }
    }
}

fn on_small_disk(folder: &Path) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let ballast = folder.join("ballast");
        fs::write(&ballast, vec![7; 3 << 20]).unwrap();
        let sink = open(folder);
        let mut answered: Vec<Key> = Vec::new();
        let mut refused = None;
        for n in 0..2_000_u32 {
            let key: Key = format!("k{n}").into();
            // text that does not compress
            let text: String = (0..800_u64)
                .map(|w| format!("{:x} ", (u64::from(n) * 800 + w).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
                .collect();
            match &sink.write(vec![put(&key, stamp(1, n), json!({"title": text}))]).await[..] {
                [Outcome::Done] => answered.push(key),
                [Outcome::Failed(failure)] => {
                    refused = Some(failure.clone());
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        let failure = refused.expect("the disk is full at some point");
        assert_eq!((failure.class, &*failure.code), (Class::Retry, "index-disk-full"), "{failure}");
        assert_eq!(sink.count().await, Ok(answered.len() as u64), "the commit did not advance");
        let again = sink.write(vec![put("later", stamp(2, 0), json!({"title": "x"}))]).await;
        assert!(
            matches!(&again[..], [Outcome::Failed(failure)] if failure.class == Class::Retry)
                || again == [Outcome::Done]
        );

        fs::remove_file(&ballast).unwrap();
        let recovered = async {
            while sink.write(vec![put("later", stamp(2, 1), json!({"title": "room again"}))]).await != [Outcome::Done] {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), recovered).await.expect("it recovers by itself");
        drop(sink);
        let sink = Arc::new(open(folder));
        let stats = sink.stat(answered.clone()).await.unwrap();
        assert!(stats.iter().all(Option::is_some), "an answered write is gone");
        assert_eq!(sink.count().await, Ok(answered.len() as u64 + 1));
        println!("full-disk: {} writes answered before, one after", answered.len());
    });
}
