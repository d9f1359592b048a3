//! The sink suite: what every fenced sink answers. A backend implements [`Backend`] and calls [`sink_suite!`]; each
//! case is also a separate function, so that a test can show that a planted bug breaks it.

use std::sync::Arc;

use honeyflow_event::{Epoch, Stamp, document, key::KEY_BYTES_MAX};
use honeyflow_runtime::Class;
use honeyflow_sink::{Outcome, Sink, Write};
use serde_json::{Value, json};

/// Opens the same sink repeatedly; acknowledged writes are in it.
pub trait Backend {
    fn open(&self) -> Arc<dyn Sink>;

    /// Whether the empty text can be a key; some sinks refuse it.
    fn takes_empty_key(&self) -> bool {
        true
    }
}

fn stamp(epoch: u64, sequence: u32) -> Stamp {
    Stamp::new(Epoch(epoch), sequence)
}

pub fn put(key: &str, stamp: Stamp, document: Value) -> Write {
    Write { key: key.into(), stamp, document: Some(Arc::new(document)) }
}

pub fn delete(key: &str, stamp: Stamp) -> Write {
    Write { key: key.into(), stamp, document: None }
}

async fn stored_stat(sink: &dyn Sink, key: &str) -> Option<(Stamp, u64)> {
    let stats = sink.stat(vec![key.into()]).await.expect("stat answers");
    assert_eq!(stats.len(), 1, "one answer per key");
    let stat = stats.into_iter().next().flatten()?;
    assert_eq!(stat.key, key);
    Some((stat.stamp, stat.hash))
}

async fn list_all(sink: &dyn Sink, page: u32) -> Vec<(String, Stamp, Value)> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (hits, cursor) = sink.list(after, page).await.expect("list answers");
        assert!(hits.len() <= page as usize, "a page is not longer than requested");
        all.extend(hits.into_iter().map(|hit| (hit.key, hit.stamp, (*hit.document).clone())));
        match cursor {
            Some(cursor) => after = Some(cursor),
            None => return all,
        }
    }
}

pub async fn newer_wins(backend: &dyn Backend) {
    let sink = backend.open();
    assert_eq!(sink.write(vec![put("a", stamp(1, 5), json!({"n": 1}))]).await, [Outcome::Done]);
    assert_eq!(sink.write(vec![put("a", stamp(1, 6), json!({"n": 2}))]).await, [Outcome::Done]);
    assert_eq!(sink.write(vec![put("a", stamp(2, 0), json!({"n": 3}))]).await, [Outcome::Done]);
    assert_eq!(stored_stat(&*sink, "a").await, Some((stamp(2, 0), document::hash(&json!({"n": 3})))));
    assert_eq!(sink.count().await, Ok(1));
}

pub async fn older_is_stale(backend: &dyn Backend) {
    let sink = backend.open();
    let newer = put("a", stamp(2, 7), json!({"n": 2}));
    assert_eq!(sink.write(vec![newer]).await, [Outcome::Done]);
    for older in [stamp(2, 6), stamp(1, Stamp::SEQUENCE_MAX)] {
        let answer = sink.write(vec![put("a", older, json!({"n": 1}))]).await;
        assert_eq!(answer, [Outcome::Stale { stored: stamp(2, 7) }], "the answer names the stored stamp");
        assert_eq!(sink.write(vec![delete("a", older)]).await, [Outcome::Stale { stored: stamp(2, 7) }]);
    }
    assert_eq!(stored_stat(&*sink, "a").await, Some((stamp(2, 7), document::hash(&json!({"n": 2})))));
}

pub async fn equal_is_done(backend: &dyn Backend) {
    let sink = backend.open();
    let write = put("a", stamp(1, 1), json!({"n": [1, 2.5, "x"]}));
    assert_eq!(sink.write(vec![write.clone()]).await, [Outcome::Done]);
    assert_eq!(sink.write(vec![write.clone(), write.clone()]).await, [Outcome::Done, Outcome::Done]);
    let other = sink.write(vec![put("a", stamp(1, 1), json!({"n": 2}))]).await;
    assert_eq!(other, [Outcome::Stale { stored: stamp(1, 1) }], "other content needs another stamp");
    assert_eq!(sink.write(vec![delete("b", stamp(1, 2))]).await, [Outcome::Done]);
    assert_eq!(sink.write(vec![delete("b", stamp(1, 2))]).await, [Outcome::Done]);
    drop(sink);
    assert_eq!(backend.open().write(vec![write]).await, [Outcome::Done]);
}

pub async fn a_delayed_write_does_not_resurrect(backend: &dyn Backend) {
    let sink = backend.open();
    sink.write(vec![put("a", stamp(1, 1), json!({"n": 1}))]).await;
    assert_eq!(sink.write(vec![delete("a", stamp(1, 3))]).await, [Outcome::Done]);
    assert_eq!(stored_stat(&*sink, "a").await, None);
    let late = sink.write(vec![put("a", stamp(1, 2), json!({"n": 2}))]).await;
    assert_eq!(late, [Outcome::Stale { stored: stamp(1, 3) }]);
    assert_eq!((stored_stat(&*sink, "a").await, sink.count().await), (None, Ok(0)));
    assert_eq!(sink.write(vec![put("a", stamp(1, 4), json!({"n": 4}))]).await, [Outcome::Done]);
    assert_eq!(stored_stat(&*sink, "a").await.map(|(stamp, _)| stamp), Some(stamp(1, 4)));
}

pub async fn delete_of_an_absent_key_is_done(backend: &dyn Backend) {
    let sink = backend.open();
    assert_eq!(sink.write(vec![delete("a", stamp(1, 3))]).await, [Outcome::Done]);
    let late = sink.write(vec![put("a", stamp(1, 2), json!({}))]).await;
    assert_eq!(late, [Outcome::Stale { stored: stamp(1, 3) }], "a delete counts although the key was absent");
}

pub async fn a_batch_is_in_order(backend: &dyn Backend) {
    let sink = backend.open();
    let answers = sink
        .write(vec![
            put("a", stamp(1, 1), json!({"n": 1})),
            put("a", stamp(1, 3), json!({"n": 3})),
            put("a", stamp(1, 2), json!({"n": 2})),
            put("b", stamp(1, 4), json!({"n": 4})),
            delete("b", stamp(1, 5)),
            put("c", stamp(1, 6), json!({"n": 6})),
            delete("c", stamp(1, 7)),
            put("c", stamp(1, 8), json!({"n": 8})),
        ])
        .await;
    let mut expected = vec![Outcome::Done; 8];
    expected[2] = Outcome::Stale { stored: stamp(1, 3) };
    assert_eq!(answers, expected);
    let expected = [("a".to_owned(), stamp(1, 3), json!({"n": 3})), ("c".to_owned(), stamp(1, 8), json!({"n": 8}))];
    let mut listed = list_all(&*sink, 10).await;
    listed.sort_by(|one, other| one.0.cmp(&other.0));
    assert_eq!(listed, expected);
}

pub async fn a_bad_item_fails_alone(backend: &dyn Backend) {
    let sink = backend.open();
    let longest = "k".repeat(KEY_BYTES_MAX);
    let answers = sink
        .write(vec![
            put("a", stamp(1, 1), json!({"n": 1})),
            put(&format!("{longest}k"), stamp(1, 2), json!({"n": 2})),
            put(&longest, stamp(1, 3), json!({"n": 3})),
        ])
        .await;
    assert_eq!((&answers[0], &answers[2]), (&Outcome::Done, &Outcome::Done));
    let Outcome::Failed(failure) = &answers[1] else { panic!("a key beyond the limit was accepted: {answers:?}") };
    assert_eq!(failure.class, Class::Reject);
    assert_eq!(sink.count().await, Ok(2));
    assert_eq!(stored_stat(&*sink, &longest).await.map(|(stamp, _)| stamp), Some(stamp(1, 3)));
}

pub async fn acknowledged_writes_survive_reopening(backend: &dyn Backend) {
    let sink = backend.open();
    let writes = (0..100).map(|n| put(&format!("k{n:03}"), stamp(1, n), json!({"n": n}))).collect();
    assert_eq!(sink.write(writes).await, vec![Outcome::Done; 100]);
    sink.write((0..50).map(|n| delete(&format!("k{n:03}"), stamp(1, 100 + n))).collect()).await;
    let before = list_all(&*sink, 7).await;
    drop(sink);
    let sink = backend.open();
    assert_eq!(list_all(&*sink, 1000).await, before, "in the sink's own order");
    assert_eq!(before.len(), 50);
    let stale = sink.write(vec![put("k099", stamp(1, 0), json!({"n": 0}))]).await;
    assert_eq!(stale, [Outcome::Stale { stored: stamp(1, 99) }], "stored stamps outlive the process");
}

pub async fn listing_is_complete_and_paged(backend: &dyn Backend) {
    let sink = backend.open();
    // Several commits, some of them updates, with keys that are awkward to sort.
    let first = if backend.takes_empty_key() { "" } else { "no name" };
    let keys: Vec<String> = (0..60).map(|n| format!("{n}")).chain([first, "ä|b", "a\\b"].map(String::from)).collect();
    for (round, part) in keys.chunks(9).enumerate() {
        let sequence = u32::try_from(round).expect("few rounds");
        sink.write(part.iter().map(|key| put(key, stamp(1, sequence), json!({"round": 0}))).collect()).await;
    }
    sink.write(keys.iter().step_by(3).map(|key| put(key, stamp(2, 0), json!({"round": 1}))).collect()).await;
    sink.write(keys.iter().step_by(5).map(|key| delete(key, stamp(3, 0))).collect()).await;
    let mut expected: Vec<_> = keys.iter().enumerate().filter(|(n, _)| n % 5 != 0).collect();
    expected.sort_by_key(|(_, key)| key.as_bytes());
    for page in [1, 7, 1000] {
        let mut listed = list_all(&*sink, page).await;
        listed.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
        assert_eq!(listed.len(), expected.len(), "in pages of {page}");
        for ((n, key), (listed_key, _, document)) in expected.iter().zip(&listed) {
            assert_eq!((listed_key, document), (*key, &json!({"round": i32::from(n % 3 == 0)})));
        }
    }
}

pub async fn stat_answers_in_the_order_of_the_keys(backend: &dyn Backend) {
    let sink = backend.open();
    sink.write(vec![put("a", stamp(1, 1), json!(1)), put("b", stamp(1, 2), json!(2))]).await;
    let stats = sink.stat(vec!["b".into(), "none".into(), "a".into(), "b".into()]).await.expect("stat answers");
    let stamps: Vec<_> = stats.iter().map(|stat| stat.as_ref().map(|stat| stat.stamp)).collect();
    assert_eq!(stamps, [Some(stamp(1, 2)), None, Some(stamp(1, 1)), Some(stamp(1, 2))]);
    assert_eq!(sink.stat(Vec::new()).await, Ok(Vec::new()));
}

pub async fn documents_come_back_as_they_were(backend: &dyn Backend) {
    let sink = backend.open();
    let documents = [
        json!({"title": "Ein Buch", "price": 12.5, "tags": ["a", "b"], "nested": {"z": null, "a": true}}),
        json!({"big": u64::MAX, "small": i64::MIN, "third": 1.0 / 3.0, "tiny": 5e-324, "zero": -0.0}),
        json!({"": "", "text": "\u{0}\u{1f41d}\n\"\\"}),
        json!([]),
        json!("text"),
    ];
    for (n, value) in (0..).zip(&documents) {
        let key = format!("k{n}");
        assert_eq!(sink.write(vec![put(&key, stamp(1, n), value.clone())]).await, [Outcome::Done]);
        assert_eq!(stored_stat(&*sink, &key).await, Some((stamp(1, n), document::hash(value))));
    }
    for (key, _, value) in list_all(&*sink, 100).await {
        let (_, hash) = stored_stat(&*sink, &key).await.expect("listed and held");
        assert_eq!(document::hash(&value), hash, "{key} reads back as {value}");
    }
    let found = sink.search(String::new(), 100).await.expect("an empty query finds everything");
    assert_eq!(found.len(), documents.len());
}

/// Makes a test of every case. The expression makes one new backend for each.
#[macro_export]
macro_rules! sink_suite {
    ($backend:expr) => {
        $crate::sink_suite!(@cases $backend;
            rl_9_newer_wins: newer_wins,
            rl_10_an_older_write_is_stale_and_names_the_stored_stamp: older_is_stale,
            rl_9_the_same_stamp_again_is_done: equal_is_done,
            ob_42_a_delayed_write_does_not_resurrect_a_deleted_document: a_delayed_write_does_not_resurrect,
            ob_42_delete_of_an_absent_key_is_done: delete_of_an_absent_key_is_done,
            rl_9_a_batch_is_applied_in_order: a_batch_is_in_order,
            rl_15_a_bad_item_fails_alone: a_bad_item_fails_alone,
            rl_5_acknowledged_writes_survive_reopening: acknowledged_writes_survive_reopening,
            ob_80_listing_is_complete_and_paged: listing_is_complete_and_paged,
            ob_80_stat_answers_in_the_order_of_the_keys: stat_answers_in_the_order_of_the_keys,
            ob_80_documents_come_back_as_they_were: documents_come_back_as_they_were,
        );
    };
    (@cases $backend:expr; $($name:ident: $case:ident,)*) => {
        $(
            #[tokio::test]
            async fn $name() {
                let backend = $backend;
                $crate::sink::$case(&backend).await;
            }
        )*
    };
}

#[cfg(test)]
mod memory {
    use honeyflow_sink::MemorySink;

    use super::*;

    struct SharedSink(MemorySink);

    impl Backend for SharedSink {
        fn open(&self) -> Arc<dyn Sink> {
            Arc::new(self.0.clone())
        }
    }

    crate::sink_suite!(SharedSink(MemorySink::default()));
}
