//! Generations: built beside the served one during live writes, swapped in one step, given up without a trace; and
//! readers in other processes.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use honeyflow_conformance::sink::{delete, put};
use honeyflow_runtime::{Class, Failure};
use honeyflow_sink::{Outcome, Sink};
use honeyflow_sink_tantivy::{Field, FieldKind, Options, TantivySink, codes};
use serde_json::json;

use crate::{fields, open, options, stamp};

fn lines<const N: usize>(lines: [&str; N]) -> std::collections::BTreeSet<String> {
    lines.into_iter().map(str::to_owned).collect()
}

fn shaped<const N: usize>(home: &std::path::Path, shape: [&str; N]) -> TantivySink {
    let sink = TantivySink::open(Options { shape: lines(shape), ..options(home) }).unwrap();
    sink.lock().unwrap();
    sink
}

fn generations(home: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(home.join("books")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.parse::<u64>().is_ok()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn ob_75_live_writes_go_into_every_open_generation() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    let reader = TantivySink::read_only(home.path().join("books"), fields()).unwrap();
    sink.write(vec![put("old", stamp(1, 1), json!({})), put("both", stamp(1, 2), json!({"n": 1}))]).await;
    assert_eq!(reader.count().await, Ok(2), "a reader follows the commits");

    assert_eq!((sink.begin().await, sink.begin().await), (Ok(2), Ok(2)));
    let live = vec![put("both", stamp(1, 3), json!({"n": 2})), put("late", stamp(1, 4), json!({}))];
    assert_eq!(sink.write(live).await, [Outcome::Done, Outcome::Done]);
    assert_eq!(sink.write(vec![delete("late", stamp(1, 5))]).await, [Outcome::Done]);
    assert_eq!((sink.generation(), sink.building(), sink.count().await), (1, Some(2), Ok(2)), "1 is served in full");
    assert_eq!(reader.count().await, Ok(2));

    sink.swap().await.unwrap();
    assert_eq!((sink.generation(), sink.building()), (2, None));
    assert_eq!((sink.count().await, reader.count().await), (Ok(1), Ok(1)), "`old` was not written again");
    assert_eq!(sink.write(vec![put("new", stamp(1, 6), json!({}))]).await, [Outcome::Done]);
    assert_eq!(reader.count().await, Ok(2));
    assert_eq!(generations(home.path()), ["2"], "the old one takes no room");
    drop(sink);
    let sink = open(home.path());
    assert_eq!((sink.generation(), sink.count().await), (2, Ok(2)));
    let stale = sink.write(vec![put("both", stamp(1, 2), json!({}))]).await;
    assert_eq!(stale, [Outcome::Stale { stored: stamp(1, 3) }], "stamps are compared in the new one too");
}

/// The key was deleted before the build began, so the new generation does not know its stamp.
#[tokio::test]
async fn ob_75_a_write_that_the_served_generation_refuses_never_reaches_the_next() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    sink.write(vec![put("gone", stamp(1, 1), json!({}))]).await;
    sink.write(vec![delete("gone", stamp(2, 1))]).await;
    sink.begin().await.unwrap();
    let late = sink.write(vec![put("gone", stamp(1, 2), json!({})), put("here", stamp(2, 2), json!({}))]).await;
    assert_eq!(late, [Outcome::Stale { stored: stamp(2, 1) }, Outcome::Done]);
    sink.swap().await.unwrap();
    assert_eq!(sink.stat(vec!["gone".into()]).await, Ok(vec![None]));
    assert_eq!(sink.count().await, Ok(1));
}

#[tokio::test]
async fn ob_76_an_interrupted_build_continues() {
    let home = tempfile::tempdir().unwrap();
    let sink = shaped(home.path(), ["book 1"]);
    sink.write(vec![put("a", stamp(1, 1), json!({}))]).await;
    sink.begin().await.unwrap();
    sink.write(vec![put("b", stamp(1, 2), json!({}))]).await;
    drop(sink);
    // what a crash right after making a folder leaves
    std::fs::create_dir(home.path().join("books/7")).unwrap();

    let sink = shaped(home.path(), ["book 1"]);
    assert_eq!((sink.generation(), sink.building(), sink.count().await), (1, Some(2), Ok(2)));
    assert_eq!(generations(home.path()), ["1", "2"]);
    sink.write(vec![put("c", stamp(2, 1), json!({}))]).await;
    sink.swap().await.unwrap();
    let held = sink.stat(["a", "b", "c"].map(Into::into).to_vec()).await.unwrap();
    assert_eq!(held.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true, true]);
    drop(sink);
    assert_eq!(shaped(home.path(), ["book 1"]).building(), None, "it is over");
}

/// The next generation would lack the writes of a process that did not continue the build.
#[tokio::test]
async fn ob_76_a_writer_that_does_not_continue_the_build_ends_it() {
    let home = tempfile::tempdir().unwrap();
    let sink = shaped(home.path(), ["book 1"]);
    sink.begin().await.unwrap();
    drop(sink);
    let careless = TantivySink::open(Options { shape: lines(["book 1"]), ..options(home.path()) }).unwrap();
    assert_eq!(careless.write(vec![put("a", stamp(1, 1), json!({}))]).await, [Outcome::Done]);
    drop(careless);
    let sink = shaped(home.path(), ["book 1"]);
    assert_eq!((sink.generation(), sink.building(), sink.count().await), (1, None, Ok(1)));
}

/// One reader shares the writer's handle, the other opens the index as another process does; both search without a
/// pause.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ob_77_searches_see_one_generation_in_full_or_the_other() {
    const DOCUMENTS: u32 = 50;
    let home = tempfile::tempdir().unwrap();
    let sink = Arc::new(open(home.path()));
    let all = |epoch: u64| (0..DOCUMENTS).map(move |n| put(&format!("k{n}"), stamp(epoch, n), json!({"pages": n})));
    sink.write(all(1).collect()).await;
    let done = Arc::new(AtomicBool::new(false));
    let outside = Arc::new(TantivySink::read_only(home.path().join("books"), fields()).unwrap());
    let searching = [sink.clone(), outside].map(|reader| {
        let done = done.clone();
        tokio::spawn(async move {
            let mut searches = 0;
            while !done.load(Ordering::Relaxed) {
                assert_eq!(reader.search(String::new(), 1000).await.unwrap().len(), DOCUMENTS as usize);
                assert_eq!(reader.count().await, Ok(u64::from(DOCUMENTS)));
                searches += 1;
            }
            searches
        })
    });
    for round in 2..12 {
        sink.begin().await.unwrap();
        sink.write(all(round).collect()).await;
        sink.swap().await.unwrap();
    }
    done.store(true, Ordering::Relaxed);
    for searches in searching {
        assert!(searches.await.unwrap() > 0);
    }
    assert_eq!((sink.generation(), generations(home.path())), (11, vec!["11".to_owned()]));
}

#[tokio::test]
async fn ob_77_a_build_that_is_given_up_leaves_no_trace() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    sink.write(vec![put("a", stamp(1, 1), json!({}))]).await;
    sink.begin().await.unwrap();
    sink.write(vec![put("b", stamp(1, 2), json!({}))]).await;
    sink.give_up(Failure::retry("enough", "enough")).await;
    assert_eq!((sink.generation(), sink.building(), sink.count().await), (1, None, Ok(2)));
    assert_eq!(sink.given_up().unwrap().code, "enough");
    assert_eq!(sink.swap().await.unwrap_err().code, "index-swap");
    assert_eq!(generations(home.path()), ["1"]);
    assert_eq!(sink.begin().await, Ok(2), "never in use, so the number is free");
    assert_eq!(sink.given_up(), None);
}

#[tokio::test]
async fn ob_77_a_disk_that_fails_the_next_generation_leaves_the_served_one_at_work() {
    let home = tempfile::tempdir().unwrap();
    let sink = open(home.path());
    sink.write(vec![put("a", stamp(1, 1), json!({}))]).await;
    sink.begin().await.unwrap();
    std::fs::remove_dir_all(home.path().join("books/2")).unwrap();
    assert_eq!(sink.write(vec![put("b", stamp(1, 2), json!({}))]).await, [Outcome::Done]);
    assert_eq!((sink.generation(), sink.building(), sink.count().await), (1, None, Ok(2)));
    assert!(sink.given_up().is_some());
    drop(sink);
    let sink = open(home.path());
    sink.lock().unwrap();
    assert_eq!((sink.generation(), sink.building(), sink.count().await), (1, None, Ok(2)));
}

fn with_isbn(kind: FieldKind) -> Vec<Field> {
    vec![Field::new("title", FieldKind::Text { language: None }), Field::new("isbn", kind)]
}

#[tokio::test]
async fn ob_78_a_field_of_another_type_belongs_to_the_next_generation() {
    let home = tempfile::tempdir().unwrap();
    let with = |kind| {
        let sink = TantivySink::open(Options { fields: with_isbn(kind), ..options(home.path()) }).unwrap();
        sink.lock().unwrap();
        sink
    };
    let sink = with(FieldKind::Keyword);
    assert!(!sink.is_outdated());
    sink.write(vec![put("a", stamp(1, 1), json!({"isbn": "17"})), put("b", stamp(1, 2), json!({"isbn": "x"}))]).await;
    drop(sink);

    let sink = with(FieldKind::Integer);
    assert!(sink.is_outdated());
    let found = async |query: &str| sink.search(query.into(), 10).await.map(|hits| hits.len());
    assert_eq!((found("isbn:17").await, found("isbn:x").await), (Ok(1), Ok(1)), "with the fields that it has");
    sink.begin().await.unwrap();
    sink.write(vec![put("a", stamp(2, 1), json!({"isbn": 17})), put("b", stamp(2, 2), json!({"isbn": 18}))]).await;
    assert_eq!((found("isbn:17").await, found("isbn:[1 TO 20]").await), (Ok(1), Ok(2)), "18 is a word here");
    sink.swap().await.unwrap();
    assert!(!sink.is_outdated());
    assert_eq!((found("isbn:[18 TO 20]").await, found("isbn:[1 TO 20]").await), (Ok(1), Ok(2)));
    assert_eq!(found("isbn:x").await.unwrap_err().code, "bad-query");
}

/// The served generation takes documents that fit its fields. The next one refuses them and is given up after more than
/// `refused_max` keys.
#[tokio::test]
async fn ob_78_fields_that_do_not_fit_the_documents_end_the_build() {
    let home = tempfile::tempdir().unwrap();
    let with = |kind| Options { fields: with_isbn(kind), refused_max: 2, ..options(home.path()) };
    TantivySink::open(with(FieldKind::Boolean)).unwrap().write(vec![put("a", stamp(1, 1), json!({}))]).await;
    let sink = TantivySink::open(with(FieldKind::Integer)).unwrap();
    sink.lock().unwrap();
    sink.begin().await.unwrap();
    let bad = |key: &str, sequence| vec![put(key, stamp(2, sequence), json!({"title": "t", "isbn": "x"}))];
    for (key, sequence) in [("a", 1), ("a", 2), ("b", 3)] {
        let answers = sink.write(bad(key, sequence)).await;
        assert!(matches!(&answers[..], [Outcome::Failed(failure)] if failure.class == Class::Reject), "{answers:?}");
    }
    assert_eq!(sink.building(), Some(2), "two keys may be wrong by themselves");
    let many = ["d", "e"].map(|key| put(key, stamp(2, 5), json!({"title": "t", "isbn": "x"}))).to_vec();
    assert_eq!(sink.write(many).await, [Outcome::Done, Outcome::Done], "the served one has them");
    assert_eq!((sink.building(), &*sink.given_up().unwrap().code), (None, codes::INDEX_MISFIT));
    assert_eq!(sink.search("title:t".into(), 10).await.unwrap().len(), 4);
    assert!(sink.is_outdated() && sink.generation() == 1);
}

#[tokio::test]
async fn ob_78_documents_made_otherwise_make_an_index_outdated() {
    let home = tempfile::tempdir().unwrap();
    assert!(!shaped(home.path(), ["book 1"]).is_outdated());
    assert!(!shaped(home.path(), ["book 1", "author 1"]).is_outdated(), "more of them are no reason");
    assert!(shaped(home.path(), ["book 1"]).is_outdated(), "authors are still in it");
    let sink = shaped(home.path(), ["author 1", "book 2"]);
    assert!(sink.is_outdated());
    sink.begin().await.unwrap();
    drop(sink);
    let sink = shaped(home.path(), ["author 1", "book 3"]);
    assert_eq!((sink.is_outdated(), sink.building()), (true, None), "what was begun for another shape is no use");
    assert_eq!(generations(home.path()), ["1"]);
    sink.begin().await.unwrap();
    sink.swap().await.unwrap();
    assert!(!sink.is_outdated());
    drop(sink);
    assert!(!shaped(home.path(), ["author 1", "book 3"]).is_outdated());
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
