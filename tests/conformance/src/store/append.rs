//! New events from the event endpoint and the command line.

use std::time::Duration;

use honeyflow_event::{Changes, Kind};
use honeyflow_store::{Idempotency, NewEvent, Reply, Request};

use super::{Harness, RawRow, ids, new_event, settle};

pub async fn append_stores_events_as_they_are(h: &Harness) {
    let event = NewEvent {
        kind: Kind::Message,
        tenant: "acme".into(),
        entity: "order".into(),
        key: "a|b\\ä".into(),
        priority: 1,
        workflow: Some("mail".into()),
        delay: None,
        dedupe: Some("m-1".into()),
        traceparent: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        root: Some(5),
        change: Changes::INSERT.union(Changes::RELATED),
        columns: Some(r#"["state"]"#.into()),
        payload: Some("{\"n\": 1.50}".into()),
    };
    let delayed = NewEvent { delay: Some(Duration::from_secs(600)), ..new_event("2") };
    let appended = h.append(vec![event.clone(), delayed, new_event("3")]).await;
    assert!(appended.is_sorted() && appended.len() == 3, "{appended:?}");
    let waiting = h.waiting().await;
    assert_eq!(ids(&waiting), [appended[0], appended[2]]);
    let stored = &waiting[0];
    assert_eq!((stored.kind, stored.priority, stored.root), (event.kind, event.priority, event.root));
    assert_eq!((&stored.tenant, &stored.entity, &stored.key), (&event.tenant, &event.entity, &event.key));
    assert_eq!((&stored.workflow, &stored.dedupe), (&event.workflow, &event.dedupe));
    assert_eq!((&stored.traceparent, &stored.payload), (&event.traceparent, &event.payload));
    assert_eq!((stored.change, &stored.columns), (event.change, &event.columns));
    assert!(h.append(Vec::new()).await.is_empty());
}

fn request(key: &str, body_hash: u64) -> Request {
    let idempotency = Some(Idempotency { key: key.into(), body_hash });
    Request::Append { events: vec![new_event("1"), new_event("2")], idempotency }
}

pub async fn append_with_the_same_idempotency_key_is_a_repeat(h: &Harness) {
    let fence = h.term().await.fence();
    // A hash uses all 64 bits.
    let Ok(Reply::Appended { ids: first, repeated: false }) = h.call(request("k", u64::MAX - 1)).await else {
        panic!("not stored")
    };
    // A repeat is recognized also when the events are done.
    h.commit(&fence, vec![settle(&first[..1], &[])]).await;
    let Ok(Reply::Appended { ids: again, repeated: true }) = h.call(request("k", u64::MAX - 1)).await else {
        panic!("not a repeat")
    };
    assert_eq!(first, again);
    assert_eq!(h.waiting_ids().await, first[1..]);
    let Ok(Reply::Appended { repeated: false, .. }) = h.call(request("other", u64::MAX - 1)).await else {
        panic!("another key is another request")
    };
}

pub async fn append_with_another_body_is_a_conflict(h: &Harness) {
    h.call(request("k", 1)).await.expect("append");
    let reply = h.call(request("k", 2)).await;
    assert!(matches!(reply, Ok(Reply::Conflict)), "{reply:?}");
    assert_eq!(h.waiting().await.len(), 2, "nothing was added");
}

pub async fn ob_18_a_finished_event_is_not_run_again_under_its_dedupe_key(h: &Harness) {
    let fence = h.term().await.fence();
    let book = |key: &str, dedupe| RawRow { entity: "book", key: key.into(), dedupe, ..RawRow::default() };
    let event = h.raw(book("1", Some("m-1"))).await;
    assert_eq!(h.waiting_ids().await, [event]);
    h.commit(&fence, vec![settle(&[event], &[])]).await;
    h.raw(book("1", Some("m-1"))).await;
    let other_mark = h.raw(book("1", Some("m-2"))).await;
    let other_key = h.raw(book("2", Some("m-1"))).await;
    let other_entity = h.raw(RawRow { entity: "author", ..book("1", Some("m-1")) }).await;
    let unmarked = h.raw(book("1", None)).await;
    assert_eq!(h.waiting_ids().await, [other_mark, other_key, other_entity, unmarked]);
}
