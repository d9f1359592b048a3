//! Signals: events that are stored for runs that will wait for them later.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Event, EventView, Kind, Target};
use honeyflow_store::{Op, Reply, Request, Signal, SignalQuery};

use super::{Harness, RawRow, settle};

const HOUR: Duration = Duration::from_secs(3600);

async fn event(h: &Harness, key: &str, payload: &str) -> Event {
    let raw = RawRow {
        kind: Some(Kind::Message),
        entity: "payments",
        key: key.into(),
        payload: Some(payload.into()),
        ..RawRow::default()
    };
    let id = h.raw(raw).await;
    h.waiting().await.into_iter().find(|event| event.id == id).expect("the event is polled")
}

fn keep(event: &Event, keep: Duration) -> Op {
    let target = Target { entity: "payment".into(), key: event.key.clone() };
    let event = EventView::new(Arc::new(event.clone()), target, event.change);
    Op::Signal { event: Box::new(event), keep }
}

fn wanted(key: Option<&str>) -> SignalQuery {
    SignalQuery {
        tenant: "".into(),
        name: "payment".into(),
        key: key.map(Into::into),
        since_ms: 0,
        after: 0,
        limit: 10,
    }
}

async fn find(h: &Harness, wanted: SignalQuery) -> Vec<Signal> {
    match h.call(Request::Signals(vec![wanted])).await.expect("signals") {
        Reply::Signals(mut found) if found.len() == 1 => found.remove(0),
        other => panic!("{other:?}"),
    }
}

fn keys(found: &[Signal]) -> Vec<&str> {
    found.iter().map(|signal| &*signal.event.key).collect()
}

pub async fn wf_35_a_signal_is_found_by_name_and_key_until_it_expires(h: &Harness) {
    let fence = h.term().await.fence();
    let first = event(h, "7", "{\"paid\": true}").await;
    let second = event(h, "8", "2").await;
    let third = event(h, "7", "3").await;
    let brief = event(h, "9", "4").await;
    h.commit(&fence, vec![keep(&first, HOUR), keep(&second, HOUR)]).await;
    h.commit(&fence, vec![keep(&third, HOUR), keep(&brief, Duration::from_millis(400))]).await;
    h.commit(&fence, vec![settle(&[first.id, second.id, third.id, brief.id], &[])]).await;
    let found = find(h, wanted(Some("7"))).await;
    assert_eq!(found.iter().map(|signal| signal.event.id).collect::<Vec<_>>(), [first.id, third.id]);
    let seen = &found[0].event;
    assert_eq!((&*seen.entity, &*seen.key, seen.kind, seen.priority), ("payment", "7", first.kind, first.priority));
    assert_eq!((seen.created_ms, seen.payload.as_deref()), (first.created_ms, Some("{\"paid\": true}")));
    // Page by page, after the last one seen.
    let page = find(h, SignalQuery { limit: 2, ..wanted(None) }).await;
    assert_eq!(keys(&page), ["7", "8"]);
    let rest = find(h, SignalQuery { after: page[1].id, limit: 2, ..wanted(None) }).await;
    assert_eq!(keys(&rest)[0], "7");
    for other in [
        SignalQuery { name: "payments".into(), ..wanted(None) },
        SignalQuery { tenant: "other".into(), ..wanted(None) },
        SignalQuery { since_ms: i64::MAX, ..wanted(None) },
        wanted(Some("70")),
    ] {
        assert_eq!(find(h, other).await, []);
    }
    (h.pass)(Duration::from_millis(500)).await;
    assert_eq!(keys(&find(h, wanted(None)).await), ["7", "8", "7"], "an expired signal is not found");
}

pub async fn wf_35_a_stale_owner_stores_no_signal(h: &Harness) {
    let event = event(h, "7", "1").await;
    let stale = h.stale_fence().await;
    assert!(matches!(h.write(&stale, vec![keep(&event, HOUR)]).await, Reply::Fenced));
    assert_eq!(find(h, wanted(None)).await, []);
}

pub async fn wf_35_a_signal_is_stored_once(h: &Harness) {
    let event = event(h, "7", "1").await;
    let fence = h.term().await.fence();
    h.commit(&fence, vec![keep(&event, HOUR)]).await;
    h.commit(&fence, vec![keep(&event, HOUR), settle(&[event.id], &[])]).await;
    assert_eq!(find(h, wanted(None)).await.len(), 1);
    assert_eq!(h.waiting_ids().await, [0_i64; 0]);
}
