//! Events set aside with their errors.

use honeyflow_event::Kind;
use honeyflow_store::{
    Admin, AdminReply, Op,
    admin::ParkedFilter,
    write::{CheckpointOutcome, ParkRequest},
};

use super::{Harness, RawRow, charge, checkpoint, ids, park, retry, run, settle};

pub async fn ob_48_parking_writes_the_entry_and_deletes_the_row(h: &Harness) {
    let fence = h.term().await.fence();
    let event = h.book("1").await;
    let other = h.book("1").await;
    h.commit(&fence, vec![charge("1", 5), park("1", "index", &[event])]).await;
    assert_eq!(h.waiting_ids().await, [other]);
    let parked = h.parked().await;
    let [row] = &parked[..] else { panic!("{parked:?}") };
    assert_eq!((&*row.entity, &*row.key, row.workflow.as_deref()), ("book", "1", Some("index")));
    assert_eq!((&*row.step, row.attempts, &*row.class), ("load", 5, "reject"));
    assert_eq!((&*row.code, &*row.message), ("bad-value", "no number"));
    assert_eq!((row.payload_bytes, row.payload_head.as_deref()), (7, Some("{\"a\":1}")));
    assert!(h.recover().await.failures.is_empty(), "its counted attempts are cleared");
}

pub async fn ob_48_a_row_with_further_obligations_is_not_deleted(h: &Harness) {
    let fence = h.term().await.fence();
    let event = h.book("1").await;
    h.commit(&fence, vec![park("1", "index", &[])]).await;
    assert_eq!(h.waiting_ids().await, [event]);
    h.commit(&fence, vec![park("1", "mail", &[event])]).await;
    assert_eq!(h.waiting().await, []);
    assert_eq!(h.parked().await.len(), 2, "one entry per workflow");
}

pub async fn ob_48_retry_makes_an_event_for_that_workflow_alone(h: &Harness) {
    let fence = h.term().await.fence();
    let event = h.book("1").await;
    h.commit(&fence, vec![park("1", "index", &[event]), park("1", "mail", &[])]).await;
    let filter = ParkedFilter { workflow: Some("index".into()), ..ParkedFilter::default() };
    let AdminReply::Count(1) = h.admin(retry(filter.clone())).await else { panic!("not one") };
    let waiting = h.waiting().await;
    let [retried] = &waiting[..] else { panic!("{waiting:?}") };
    assert!(retried.id > event);
    assert_eq!((&*retried.entity, &*retried.key, retried.workflow.as_deref()), ("book", "1", Some("index")));
    assert_eq!((retried.priority, retried.payload.as_deref()), (3, Some("{\"a\":1}")));
    let parked = h.parked().await;
    assert_eq!(parked.len(), 1);
    assert_eq!(parked[0].workflow.as_deref(), Some("mail"));
    let AdminReply::Count(0) = h.admin(retry(filter)).await else { panic!("a repeat does nothing") };
    assert_eq!(h.waiting().await.len(), 1);
}

pub async fn ob_48_retry_resets_the_attempts(h: &Harness) {
    let fence = h.term().await.fence();
    let event = h.book("1").await;
    let done = checkpoint("1", &[event], CheckpointOutcome::Skipped, Vec::new());
    h.commit(&fence, vec![done, charge("1", 5), park("1", "index", &[event])]).await;
    let recovered = h.recover().await;
    assert!(recovered.failures.is_empty() && recovered.checkpoints.is_empty(), "{recovered:?}");
    h.admin(retry(ParkedFilter::default())).await;
    let recovered = h.recover().await;
    assert!(recovered.failures.is_empty(), "{recovered:?}");
    let [saved] = &recovered.checkpoints[..] else { panic!("{recovered:?}") };
    assert_eq!(saved.covers, h.waiting_ids().await, "the new event gets the checkpoints");
    h.commit(&fence, vec![charge("1", 1)]).await;
    assert_eq!(h.recover().await.failures[0].attempts, 1, "counted from the start");
}

pub async fn ob_48_drop_removes_the_filtered_entries(h: &Harness) {
    let fence = h.term().await.fence();
    for key in ["1", "2", "3"] {
        h.commit(&fence, vec![park(key, "index", &[]), park(key, "mail", &[])]).await;
    }
    let first = h.parked().await[0].id;
    let none = ParkedFilter::default();
    for (filter, count) in [
        (ParkedFilter { id: Some(first), ..none.clone() }, 1),
        (ParkedFilter { tenant: Some("other".into()), ..none.clone() }, 0),
        (ParkedFilter { entity: Some("author".into()), ..none.clone() }, 0),
        (ParkedFilter { code: Some("other".into()), ..none.clone() }, 0),
        (ParkedFilter { key: Some("2".into()), workflow: Some("mail".into()), ..none.clone() }, 1),
        (ParkedFilter { key: Some("3".into()), entity: Some("book".into()), ..none.clone() }, 2),
        (ParkedFilter { code: Some("bad-value".into()), tenant: Some("".into()), ..none.clone() }, 2),
    ] {
        let reply = h.admin(Admin::DropParked(filter.clone())).await;
        assert!(matches!(reply, AdminReply::Count(dropped) if dropped == count), "{filter:?}: {reply:?}");
    }
    assert_eq!(h.parked().await, []);
    assert_eq!(h.waiting().await, [], "dropped entries make no events");
}

pub async fn ob_48_parked_entries_are_paged(h: &Harness) {
    let fence = h.term().await.fence();
    for n in 0..7 {
        h.commit(&fence, vec![park(&n.to_string(), "index", &[])]).await;
    }
    let (mut after, mut keys) = (0, Vec::new());
    loop {
        let page = Admin::Parked { filter: ParkedFilter::default(), after, limit: 3 };
        let AdminReply::Parked(rows) = h.admin(page).await else { panic!("no rows") };
        assert!(rows.len() <= 3);
        let Some(last) = rows.last() else { break };
        after = last.id;
        keys.extend(rows.into_iter().map(|row| row.key));
    }
    keys.sort();
    assert_eq!(keys, ["0", "1", "2", "3", "4", "5", "6"]);
}

pub async fn ob_49_success_heals_parked_entries_of_the_same_workflow(h: &Harness) {
    let fence = h.term().await.fence();
    let first = h.book("1").await;
    h.commit(&fence, vec![park("1", "index", &[first]), park("1", "mail", &[]), park("2", "index", &[])]).await;
    let newer = h.book("1").await;
    h.commit(&fence, vec![settle(&[newer], &[run("1", "index")])]).await;
    let left: Vec<_> = h.parked().await.into_iter().map(|row| (row.key, row.workflow)).collect();
    let expected = [("1".to_owned(), Some("mail".to_owned())), ("2".to_owned(), Some("index".to_owned()))];
    assert_eq!(left, expected, "entries of another workflow and of another key stay");
}

pub async fn ob_59_parked_messages_are_kept_apart(h: &Harness) {
    let fence = h.term().await.fence();
    for payload in ["one", "two"] {
        let raw = RawRow { kind: Some(Kind::Message), entity: "book", key: "1".into(), ..RawRow::default() };
        let event = h.raw(raw).await;
        // The row still has an obligation to another workflow: it is not deleted, and the entry belongs to the message
        // all the same.
        let Op::Park(parked) = park("1", "index", &[]) else { unreachable!() };
        let parked =
            ParkRequest { kind: Kind::Message, message: Some(event), payload: Some(payload.into()), ..*parked };
        let op = Op::Park(Box::new(parked));
        h.commit(&fence, vec![op.clone()]).await;
        h.commit(&fence, vec![op]).await;
    }
    let payloads: Vec<_> = h.parked().await.into_iter().filter_map(|row| row.payload_head).collect();
    assert_eq!(payloads, ["one", "two"], "each message is separate data");
    h.commit(&fence, vec![settle(&[], &[run("1", "index")])]).await;
    assert_eq!(h.parked().await.len(), 2, "and no later success replaces it");
    let before = h.waiting().await.len();
    h.admin(retry(ParkedFilter::default())).await;
    let events = h.waiting().await;
    assert_eq!(ids(&events).len(), before + 2);
    assert!(events.iter().all(|event| event.kind == Kind::Message));
}
