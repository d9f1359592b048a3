//! Generations: a rebuild beside the served index, the swap, and readers in other processes.

use honeyflow_conformance::sink::put;
use honeyflow_sink::{Outcome, Sink};
use honeyflow_sink_tantivy::TantivySink;
use serde_json::json;

use crate::{fields, open, stamp};

#[tokio::test]
async fn a_rebuilt_generation_takes_the_place_of_the_old_one() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    let reader = TantivySink::read_only(home.path().join("books"), fields()).unwrap();
    sink.write(vec![put("old", stamp(1, 1), json!({})), put("both", stamp(1, 2), json!({"n": 1}))]).await;
    assert_eq!(reader.count().await, Ok(2), "a reader follows the commits");

    drop(sink.begin_generation().unwrap());
    let next = sink.begin_generation().unwrap();
    assert_eq!(next.write(vec![put("both", stamp(1, 3), json!({"n": 2}))]).await, [Outcome::Done]);
    assert_eq!((sink.count().await, next.count().await), (Ok(2), Ok(1)), "the rebuild is not served yet");
    assert_eq!(sink.write(vec![put("late", stamp(1, 4), json!({}))]).await, [Outcome::Done]);

    let number = next.generation();
    sink.swap(next).await.unwrap();
    assert_eq!((sink.generation(), sink.count().await, reader.count().await), (number, Ok(1), Ok(1)));
    assert_eq!(sink.write(vec![put("new", stamp(1, 5), json!({}))]).await, [Outcome::Done]);
    assert_eq!(reader.count().await, Ok(2));
    assert!(!home.path().join("books/1").exists(), "the old generation takes no room");
    drop(sink);
    let sink = open(home.path());
    assert_eq!((sink.generation(), sink.count().await), (number, Ok(2)));
    let stale = sink.write(vec![put("both", stamp(1, 2), json!({}))]).await;
    assert_eq!(stale, [Outcome::Stale { stored: stamp(1, 3) }]);
}

#[tokio::test]
async fn an_abandoned_rebuild_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    sink.write(vec![put("a", stamp(1, 1), json!({}))]).await;
    let next = sink.begin_generation().unwrap();
    next.write(vec![put("b", stamp(1, 2), json!({})), put("c", stamp(1, 3), json!({}))]).await;
    drop((sink, next));
    let sink = open(home.path());
    assert_eq!((sink.generation(), sink.count().await), (1, Ok(1)));
    let other = tempfile::tempdir().unwrap();
    let stranger = open(other.path()).begin_generation().unwrap();
    assert_eq!(sink.swap(stranger).await.unwrap_err().code, "index-swap");
}

#[tokio::test]
async fn a_reader_needs_an_index_and_cannot_write() {
    let home = tempfile::tempdir().unwrap();
    let missing = TantivySink::read_only(home.path().join("books"), fields());
    assert_eq!(missing.err().unwrap().code, "index-missing");
    drop(open(home.path()));
    let reader = TantivySink::read_only(home.path().join("books"), fields()).unwrap();
    let answers = reader.write(vec![put("a", stamp(1, 1), json!({}))]).await;
    assert!(matches!(&answers[..], [Outcome::Failed(failure)] if failure.code == "index-read-only"));
    assert_eq!(open(home.path()).lock(), Ok(()), "a reader holds no lock");
}
