//! The stored state with which a new owner continues: attempts, outputs, replaced and fanned-out rows.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{EventId, Key, Kind, PRIORITY_FAN_OUT, Stamp};
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Admin, Op,
    write::{CheckpointOutcome, FanOut, Pause},
};
use serde_json::json;

use super::{Harness, RawRow, charge, checkpoint, ids, new_event, run, settle};

pub async fn ob_47_charges_are_recovered_and_cleared_by_success(h: &Harness) {
    let fence = h.term().await.fence();
    let event = h.book("1").await;
    h.commit(&fence, vec![charge("1", 1)]).await;
    h.commit(&fence, vec![charge("1", 2), charge("2", 1)]).await;
    let mut failures = h.recover().await.failures;
    failures.sort_by(|a, b| a.run.cmp(&b.run));
    let [first, second] = &failures[..] else { panic!("{failures:?}") };
    assert_eq!((&first.run, &*first.step, first.index, first.attempts), (&run("1", "index"), "load", 0, 2));
    assert_eq!(first.failure, Failure::reject("bad-value", "no number"));
    assert!(first.due_in > Duration::from_secs(30) && first.due_in <= Duration::from_secs(60), "{first:?}");
    assert_eq!((&second.run, second.attempts), (&run("2", "index"), 1));
    (h.pass)(Duration::from_millis(50)).await;
    h.commit(&fence, vec![charge("1", 2)]).await;
    let again = h.recover().await.failures.into_iter().find(|charged| charged.run == first.run);
    let nearer = again.is_some_and(|charged| charged.due_in + Duration::from_millis(40) < first.due_in);
    assert!(nearer, "a repeat does not postpone it");
    h.commit(&fence, vec![settle(&[event], &[run("1", "mail")])]).await;
    assert_eq!(h.recover().await.failures.len(), 2, "the success of another workflow clears nothing");
    h.commit(&fence, vec![settle(&[], &[run("1", "index")])]).await;
    let left = h.recover().await.failures;
    assert_eq!(left.iter().map(|charged| &charged.run).collect::<Vec<_>>(), [&run("2", "index")]);
}

pub async fn ob_61_a_shard_recovers_only_its_own_runs(h: &Harness) {
    let fence = h.term().await.fence();
    let event = h.book("1").await;
    let pause = Pause { noun: "workflow".into(), name: "book".into(), why: "mending".into(), since_ms: 0 };
    h.admin(Admin::Pause(pause)).await;
    h.commit(&fence, vec![charge("1", 1), checkpoint("1", &[event], CheckpointOutcome::Skipped, Vec::new())]).await;
    let own = h.recover_shard(0).await;
    assert_eq!((own.failures.len(), own.checkpoints.len(), own.paused.len()), (1, 1, 1));
    let other = h.recover_shard(1).await;
    assert_eq!((other.failures.len(), other.checkpoints.len()), (0, 0), "they belong to runs of another owner");
    assert_eq!(other.paused.len(), 1, "a pause holds for all shards");
}

pub async fn wf_80_checkpoints_are_recovered_with_their_rows(h: &Harness) {
    let fence = h.term().await.fence();
    let first = h.book("1").await;
    let second = h.book("1").await;
    h.book("1").await;
    let document = Some(Arc::new(json!({"id": 9_007_199_254_740_993_i64, "name": "ä\u{0}|"})));
    let outcomes = [
        CheckpointOutcome::Done(document),
        CheckpointOutcome::Done(None),
        CheckpointOutcome::Failed(Failure::retry_after(Duration::from_secs(3), "told", "later")),
        CheckpointOutcome::Skipped,
        CheckpointOutcome::Until(1_800_000_000_000),
    ];
    for (n, outcome) in outcomes.iter().enumerate() {
        let op = checkpoint(&n.to_string(), &[first, second], outcome.clone(), Vec::new());
        h.commit(&fence, vec![op]).await;
    }
    let mut recovered = h.recover().await.checkpoints;
    recovered.sort_by(|a, b| a.run.cmp(&b.run));
    assert_eq!(recovered.len(), outcomes.len());
    for (n, (stored, outcome)) in recovered.iter().zip(&outcomes).enumerate() {
        assert_eq!(&stored.outcome, outcome);
        assert_eq!((&stored.run, stored.version), (&run(&n.to_string(), "index"), 2));
        assert_eq!(stored.covers, [first, second]);
        assert_eq!((stored.phase, &*stored.step, stored.index, stored.attempt), (0, "call", 0, 1));
        assert_eq!(stored.stamp, Stamp((1 << 61) + 5));
    }
    h.commit(&fence, vec![settle(&[], &[run("0", "index"), run("3", "mail")])]).await;
    assert_eq!(
        h.recover().await.checkpoints.len(),
        outcomes.len() - 1,
        "success clears only the checkpoints of its run"
    );
    h.commit(&fence, vec![settle(&[first], &[])]).await;
    assert_eq!(h.recover().await.checkpoints.len(), 0, "a run that has lost one of its rows cannot continue");
}

pub async fn wf_33_emitted_events_are_stored_once(h: &Harness) {
    let fence = h.term().await.fence();
    let event = h.book("1").await;
    let emit = || vec![new_event("a"), new_event("b")];
    h.commit(&fence, vec![checkpoint("1", &[event], CheckpointOutcome::Skipped, emit())]).await;
    assert_eq!(h.waiting().await.len(), 3);
    // The step was executed again, with another outcome: the first checkpoint stays.
    let again = CheckpointOutcome::Done(Some(Arc::new(json!(1))));
    h.commit(&fence, vec![checkpoint("1", &[event], again, emit())]).await;
    assert_eq!(h.waiting().await.len(), 3);
    assert_eq!(h.recover().await.checkpoints[0].outcome, CheckpointOutcome::Skipped);
}

pub async fn wf_80_the_end_of_a_wait_replaces_the_wait(h: &Harness) {
    let fence = h.term().await.fence();
    let event = h.book("1").await;
    h.commit(&fence, vec![checkpoint("1", &[event], CheckpointOutcome::Until(5), Vec::new())]).await;
    let end = CheckpointOutcome::Done(Some(Arc::new(json!("awake"))));
    h.commit(&fence, vec![checkpoint("1", &[event], end.clone(), vec![new_event("a")])]).await;
    h.commit(&fence, vec![checkpoint("1", &[event], CheckpointOutcome::Until(5), Vec::new())]).await;
    let recovered = h.recover().await.checkpoints;
    assert_eq!(recovered.len(), 1);
    assert_eq!(recovered[0].outcome, end, "and the wait does not begin again");
    assert_eq!(h.waiting().await.len(), 2);
}

pub async fn a_replaced_row_is_replaced_once(h: &Harness) {
    let fence = h.term().await.fence();
    let event = h.book("1").await;
    let mut mail = new_event("1");
    mail.workflow = Some("mail".into());
    mail.payload = Some("{}".into());
    let mut later = new_event("1");
    later.workflow = Some("index".into());
    later.delay = Some(Duration::from_secs(600));
    let op = Op::Replace { event, by: vec![mail, later] };
    h.commit(&fence, vec![op.clone()]).await;
    h.commit(&fence, vec![op]).await;
    let waiting = h.waiting().await;
    let [mail] = &waiting[..] else { panic!("{waiting:?}") };
    assert_eq!((mail.workflow.as_deref(), mail.payload.as_deref()), (Some("mail"), Some("{}")));
    assert!(mail.id > event);
    assert!(h.poll(super::everything()).await.next_due_ms.is_some(), "the other event is delayed");
}

fn page(h: &Harness, event: EventId, after: Option<Key>, pending_max: u32) -> Option<Op> {
    Some(Op::FanOut(Box::new(FanOut {
        event,
        root: 77,
        tenant: "".into(),
        entity: "book".into(),
        workflow: Some("index".into()),
        statement: h.edge.clone()?,
        causes: vec!["7".into()],
        after,
        page: 10,
        payload: r#"{"cause":{"entity":"author","key":"7","id":77}}"#.into(),
        pending_max,
    })))
}

async fn fan_out_row(h: &Harness) -> EventId {
    let raw = RawRow {
        kind: Some(Kind::FanOut),
        entity: "author",
        key: "7".into(),
        priority: Some(PRIORITY_FAN_OUT),
        payload: Some(r#"{"edge":1}"#.to_owned()),
        ..RawRow::default()
    };
    h.raw(raw).await
}

pub async fn ob_29_a_fan_out_goes_page_by_page(h: &Harness) {
    let fence = h.term().await.fence();
    let mut event = fan_out_row(h).await;
    let mut after: Option<Key> = None;
    for round in 0..3 {
        let Some(op) = page(h, event, after.clone(), 1000) else { return };
        h.commit(&fence, vec![op.clone()]).await;
        let once = h.picture().await;
        h.commit(&fence, vec![op]).await;
        assert_eq!(once, h.picture().await, "a repeat stores nothing");
        let waiting = h.waiting().await;
        let (positions, found): (Vec<_>, Vec<_>) = waiting.iter().partition(|event| event.kind == Kind::FanOut);
        assert_eq!(found.len(), [10, 20, 25][round]);
        for (event, n) in found.iter().zip(11..) {
            assert_eq!((&*event.entity, event.workflow.as_deref()), ("book", Some("index")));
            assert_eq!((&*event.key, event.priority, event.root), (&*n.to_string(), PRIORITY_FAN_OUT, Some(77)));
        }
        if round == 2 {
            assert!(positions.is_empty(), "done: {positions:?}");
            break;
        }
        let [position] = &positions[..] else { panic!("{positions:?}") };
        assert_ne!(position.id, event);
        let payload: serde_json::Value = serde_json::from_str(position.payload.as_deref().unwrap()).unwrap();
        assert_eq!(payload, json!({"edge": 1, "after": found.last().unwrap().key}), "the rest of the payload is kept");
        event = position.id;
        after = payload["after"].as_str().map(Into::into);
    }
}

pub async fn ob_29_a_fan_out_waits_while_too_many_are_pending(h: &Harness) {
    let fence = h.term().await.fence();
    let event = fan_out_row(h).await;
    for n in 0..5 {
        let pending =
            RawRow { entity: "book", key: n.to_string(), priority: Some(PRIORITY_FAN_OUT), ..RawRow::default() };
        h.raw(pending).await;
    }
    let Some(op) = page(h, event, None, 5) else { return };
    let before = h.picture().await;
    h.commit(&fence, vec![op]).await;
    assert_eq!(before, h.picture().await);
    h.commit(&fence, page(h, event, None, 6).into_iter().collect()).await;
    assert!(!ids(&h.waiting().await).contains(&event));
}
