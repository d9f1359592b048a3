//! The writer's lock, the payload of commits, which writes are compared, and batches that share a commit.

use std::{fs, sync::atomic::Ordering, time::Duration};

use futures_util::future::join_all;
use honeyflow_conformance::sink::{delete, put};
use honeyflow_runtime::Class;
use honeyflow_sink::{Outcome, Sink};
use honeyflow_sink_tantivy::{Options, TantivySink};
use serde_json::{Value, json};

use crate::{open, options, stamp};

#[tokio::test]
async fn f29_second_writer_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let first = open(home.path());
    assert_eq!(first.write(vec![put("a", stamp(1, 1), json!({}))]).await, [Outcome::Done]);
    let second = open(home.path());
    assert_eq!(second.count().await, Ok(1), "reading needs no lock");
    let answers = second.write(vec![put("a", stamp(1, 2), json!({}))]).await;
    let [Outcome::Failed(failure)] = &answers[..] else { panic!("two writers: {answers:?}") };
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "index-locked"));
    assert!(failure.message.contains(home.path().to_str().unwrap()), "{}", failure.message);
    assert_eq!(second.lock().unwrap_err().code, "index-locked");
    assert_eq!(TantivySink::set_aside(&home.path().join("books")).unwrap_err().code, "index-locked");
    drop(first);
    assert_eq!(second.lock(), Ok(()));
}

#[tokio::test]
async fn f29_the_lock_is_kept_while_the_writer_is_idle() {
    let home = tempfile::tempdir().unwrap();
    let first = TantivySink::open(Options { idle_close: Duration::ZERO, ..options(home.path()) }).unwrap();
    first.write(vec![put("a", stamp(1, 1), json!({}))]).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(open(home.path()).lock().unwrap_err().code, "index-locked");
}

#[tokio::test]
async fn f29_the_epoch_stands_in_the_commit() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    sink.write(vec![put("a", stamp(41, 1), json!({})), put("b", stamp(40, 1), json!({}))]).await;
    sink.write(vec![delete("a", stamp(41, 2))]).await;
    let meta = fs::read_to_string(home.path().join("books/1/meta.json")).unwrap();
    let meta: Value = serde_json::from_str(&meta).unwrap();
    let payload: Value = serde_json::from_str(meta["payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload, json!({"install": "here", "epochs": {"shop": 41}}));
    drop(sink);
    let other = TantivySink::open(Options { install_id: "elsewhere".into(), ..options(home.path()) });
    assert_eq!(other.err().unwrap().code, "index-foreign");
}

#[tokio::test]
async fn rl_9_only_stamps_that_could_be_older_are_looked_up() {
    let home = tempfile::tempdir().unwrap();
    let writes =
        |epoch| (0..50).map(move |n| put(&format!("k{n}"), stamp(epoch, n), json!({"epoch": epoch}))).collect();
    let sink = open(home.path());
    sink.write(writes(1)).await;
    drop(sink);
    let sink = open(home.path());
    let lookups = || sink.counters().lookups.load(Ordering::Relaxed);
    assert_eq!(sink.write(writes(2)).await, vec![Outcome::Done; 50]);
    assert_eq!(lookups(), 0, "a new epoch is above everything that is stored");
    assert_eq!(sink.write(writes(1)).await[7], Outcome::Stale { stored: stamp(2, 7) });
    assert_eq!(lookups(), 50);
    assert_eq!(sink.count().await, Ok(50), "what was not looked up was still replaced");
}

#[tokio::test]
async fn batches_share_a_commit() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    let batches = (0..40_u32).map(|n| sink.write(vec![put(&format!("k{n}"), stamp(1, n), json!({"n": n}))]));
    assert_eq!(join_all(batches).await, vec![vec![Outcome::Done]; 40]);
    let commits = sink.counters().commits.load(Ordering::Relaxed);
    assert!(commits < 40, "{commits} commits for 40 batches");
    assert_eq!(sink.count().await, Ok(40));
}

#[tokio::test]
async fn rl_7_a_full_queue_holds_its_callers() {
    let home = tempfile::tempdir().unwrap();
    let options = Options { queue_batches: 1, commit_writes: 5, ..options(home.path()) };
    let sink = TantivySink::open(options).unwrap();
    let batches = (0..30_u32).map(|n| sink.write(vec![put(&format!("k{n}"), stamp(1, n), json!({"n": n}))]));
    assert_eq!(join_all(batches).await, vec![vec![Outcome::Done]; 30]);
}

#[tokio::test]
async fn a_write_whose_caller_has_gone_does_no_harm() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    drop(sink.write(vec![put("a", stamp(1, 1), json!({}))]));
    let batch = sink.write(vec![put("b", stamp(1, 2), json!({}))]);
    let _ = tokio::time::timeout(Duration::ZERO, batch).await;
    assert_eq!(sink.write(vec![put("c", stamp(1, 3), json!({}))]).await, [Outcome::Done]);
}

#[tokio::test]
async fn a_delete_is_remembered_for_its_time_only() {
    let home = tempfile::tempdir().unwrap();
    let sink = TantivySink::open(Options { tombstone_keep: Duration::ZERO, ..options(home.path()) }).unwrap();
    sink.write(vec![put("a", stamp(1, 1), json!({}))]).await;
    sink.write(vec![delete("a", stamp(1, 3))]).await;
    assert_eq!(sink.write(vec![put("a", stamp(1, 2), json!({}))]).await, [Outcome::Done]);
}

#[test]
fn works_without_a_runtime() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    let writes = (0..100).map(|n| put(&format!("k{n}"), stamp(1, n), json!({"n": n}))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    assert_eq!(runtime.block_on(sink.write(writes)), vec![Outcome::Done; 100]);
    drop(runtime);
    assert_eq!(futures_util::FutureExt::now_or_never(sink.count()), Some(Ok(100)));
}
