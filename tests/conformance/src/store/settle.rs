//! Acknowledging rows and repeating writes.

use honeyflow_store::Op;

use super::{Harness, RawRow, charge, checkpoint, ids, new_event, park, run, settle};
use honeyflow_runtime::Failure;
use honeyflow_store::write::{CheckpointOutcome, History};

pub async fn ob_44_settle_deletes_exactly_the_rows_named(h: &Harness) {
    let fence = h.term().await.fence();
    let mut all = Vec::new();
    for n in 0..10 {
        all.push(h.book(&(n % 3).to_string()).await);
    }
    let delayed = h.raw(RawRow { entity: "book", key: "1".into(), ready_in_ms: Some(-1), ..RawRow::default() }).await;
    h.commit(&fence, vec![settle(&[all[1], all[4], delayed], &[run("1", "index")])]).await;
    let left: Vec<_> = all.iter().copied().filter(|id| ![all[1], all[4]].contains(id)).collect();
    assert_eq!(h.waiting_ids().await, left, "other rows of the same key stay");
}

pub async fn ob_44_missing_rows_count_as_settled(h: &Harness) {
    let fence = h.term().await.fence();
    let gone = h.book("1").await;
    let there = h.book("2").await;
    h.commit(&fence, vec![settle(&[gone], &[])]).await;
    h.commit(&fence, vec![settle(&[gone, there, 999_999], &[run("1", "index")])]).await;
    assert_eq!(h.waiting().await, []);
    h.commit(&fence, vec![settle(&[], &[])]).await;
}

pub async fn every_write_may_be_repeated(h: &Harness) {
    let fence = h.term().await.fence();
    for n in 0..8 {
        h.book(&n.to_string()).await;
    }
    let there = ids(&h.waiting().await);
    let history = History {
        run: run("0", "index"),
        version: 1,
        verdict: "succeeded",
        steps: serde_json::json!([{"step": "load", "ms": 3}]),
    };
    let emit = vec![new_event("emitted")];
    for op in [
        charge("0", 1),
        charge("0", 2),
        checkpoint("1", &there[1..2], CheckpointOutcome::Done(None), emit),
        park("2", "index", &there[2..3]),
        Op::ParkRow { event: there[3], failure: Failure::reject("payload-too-large", "too large") },
        Op::Replace { event: there[4], by: vec![new_event("4a"), new_event("4b")] },
        Op::History(Box::new(history)),
        settle(&there[..1], &[run("0", "index")]),
    ] {
        let before = h.picture().await;
        h.commit(&fence, vec![op.clone()]).await;
        let once = h.picture().await;
        assert_ne!(before, once, "the write changes something: {op:?}");
        h.commit(&fence, vec![op.clone()]).await;
        h.commit(&fence, vec![op.clone(), op.clone()]).await;
        assert_eq!(once, h.picture().await, "{op:?}");
    }
}
