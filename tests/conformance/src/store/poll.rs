//! Polls of the outbox.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Kind, PRIORITY_DEFAULT};
use honeyflow_store::{
    AdminReply, Op, Poll,
    poll::{SkipRule, Sweep, UnreadRow},
};

use super::{FAR, Harness, RawRow, everything, ids, retry, settle};
use honeyflow_runtime::Failure;

pub async fn ob_4_a_plain_insert_is_a_complete_event(h: &Harness) {
    let id = h.book("42").await;
    let polled = h.poll(everything()).await;
    let [event] = &polled.events[..] else { panic!("{polled:?}") };
    assert_eq!((event.id, event.format, event.kind), (id, 1, Kind::Row));
    assert_eq!((&*event.tenant, &*event.entity, &*event.key), ("", "book", "42"));
    assert_eq!(event.priority, PRIORITY_DEFAULT);
    assert_eq!((&event.workflow, &event.dedupe, &event.traceparent), (&None, &None, &None));
    assert_eq!((event.root, &event.payload), (None, &None));
    let age_ms = polled.store_ms - event.created_ms;
    assert!((0..60_000).contains(&age_ms), "created by the store's clock, in milliseconds: {age_ms}");
}

pub async fn ob_2_ids_are_never_used_again(h: &Harness) {
    let fence = h.term().await.fence();
    let first = h.book("1").await;
    let last = h.book("2").await;
    h.commit(&fence, vec![settle(&[last], &[]), settle(&[first], &[])]).await;
    let next = h.book("3").await;
    assert!(next > last, "{next} after {last}");
}

pub async fn ob_36_a_poll_is_in_the_order_of_priority_then_id(h: &Harness) {
    let mut expected = Vec::new();
    for (n, priority) in [4, 9, 0, 4, 7].into_iter().enumerate() {
        let raw = RawRow { entity: "book", key: n.to_string(), priority: Some(priority), ..RawRow::default() };
        expected.push((priority, h.raw(raw).await));
    }
    expected.sort_unstable();
    let found: Vec<_> = h.waiting().await.iter().map(|event| (event.priority, event.id)).collect();
    assert_eq!(found, expected);
}

pub async fn ob_36_a_poll_never_exceeds_its_room(h: &Harness) {
    let mut fours = Vec::new();
    for n in 0..20 {
        fours.push(h.book(&n.to_string()).await);
        h.raw(RawRow { entity: "book", key: n.to_string(), priority: Some(8), ..RawRow::default() }).await;
    }
    let mut poll = everything();
    poll.levels.iter_mut().for_each(|level| level.room = 0);
    poll.levels[4].room = 3;
    assert_eq!(ids(&h.poll(poll.clone()).await.events), fours[..3], "the lowest ids of the one level with room");
    // Due rows share the room of their level.
    for n in 0..5 {
        h.raw(RawRow { entity: "book", key: n.to_string(), ready_in_ms: Some(-1000), ..RawRow::default() }).await;
    }
    assert_eq!(h.poll(poll.clone()).await.events.len(), 3);
    poll.levels[4].room = 0;
    assert_eq!(h.poll(poll).await.events, []);
}

pub async fn ob_36_rows_up_to_the_position_are_not_read_again(h: &Harness) {
    let first = h.book("1").await;
    let second = h.book("2").await;
    let mut poll = everything();
    poll.levels[4].after = first;
    assert_eq!(ids(&h.poll(poll.clone()).await.events), [second]);
    poll.levels[4].after = second;
    assert_eq!(h.poll(poll).await.events, []);
}

pub async fn ob_36_the_newest_come_last_and_only_once(h: &Harness) {
    let mut all = Vec::new();
    for n in 0..10 {
        all.push(h.book(&n.to_string()).await);
    }
    let low = h.raw(RawRow { entity: "book", key: "low".into(), priority: Some(9), ..RawRow::default() }).await;
    let mut poll = everything();
    poll.levels.iter_mut().for_each(|level| level.room = 0);
    poll.levels[4].room = 2;
    poll.newest = 3;
    let polled = h.poll(poll.clone()).await;
    assert_eq!((ids(&polled.events), polled.newest), (vec![all[0], all[1], all[8], all[9], low], 3));
    poll.levels[4].room = 10;
    let polled = h.poll(poll).await;
    assert_eq!((ids(&polled.events), polled.newest), ([&all[..], &[low]].concat(), 1), "no row comes twice");
}

pub async fn ob_37_a_sweep_finds_an_id_below_the_position(h: &Harness) {
    h.raw(RawRow { id: Some(100), entity: "book", key: "late".into(), ..RawRow::default() }).await;
    h.raw(RawRow { id: Some(50), entity: "book", key: "early".into(), ..RawRow::default() }).await;
    let mut poll = everything();
    poll.levels[4].after = 100;
    assert_eq!(h.poll(poll.clone()).await.events, []);
    let known = Arc::new(vec![100]);
    poll.sweep = Some(Sweep { from: 0, to: 100, room: 10, known });
    assert_eq!(ids(&h.poll(poll.clone()).await.events), [50]);
    poll.sweep = Some(Sweep { from: 51, to: 100, room: 10, known: Arc::default() });
    assert_eq!(ids(&h.poll(poll.clone()).await.events), [100], "from the sweep's start on");
    poll.sweep = Some(Sweep { from: 0, to: 99, room: 10, known: Arc::default() });
    assert_eq!(ids(&h.poll(poll).await.events), [50], "not beyond the sweep's end");
    assert!(h.book("next").await > 100);
}

pub async fn ob_37_a_sweep_skips_known_ids(h: &Harness) {
    let mut all = Vec::new();
    for n in 0..20 {
        all.push(h.book(&n.to_string()).await);
    }
    let due = h.raw(RawRow { entity: "book", key: "due".into(), ready_in_ms: Some(-1000), ..RawRow::default() }).await;
    let delayed =
        h.raw(RawRow { entity: "book", key: "far".into(), ready_in_ms: Some(600_000), ..RawRow::default() }).await;
    let sweep = |known: Vec<_>, room| {
        let sweep = Sweep { from: 0, to: FAR, room, known: Arc::new(known) };
        Poll { sweep: Some(sweep), ..everything() }
    };
    let even: Vec<_> = all.iter().copied().step_by(2).collect();
    let odd: Vec<_> = all.iter().copied().skip(1).step_by(2).collect();
    let found = ids(&h.poll(sweep(even.clone(), 4)).await.events);
    assert_eq!(found, odd[..4], "the lowest unknown ids, at most as many as there is room for");
    let found = ids(&h.poll(sweep(even, 100)).await.events);
    assert_eq!(found, [&odd[..], &[due]].concat(), "due rows, too; {delayed} is not due");
    assert_eq!(h.poll(sweep(Vec::new(), 0)).await.events, []);
}

pub async fn rows_that_are_passed_over_stay_where_they_are(h: &Harness) {
    let all_workflows = h.book("1").await;
    let one_workflow = RawRow { entity: "book", key: "2".into(), workflow: Some("index"), ..RawRow::default() };
    let one_workflow = h.raw(one_workflow).await;
    let author = h.raw(RawRow { entity: "author", key: "1".into(), ..RawRow::default() }).await;
    let due = RawRow { entity: "author", key: "2".into(), ready_in_ms: Some(-1000), ..RawRow::default() };
    let due = h.raw(due).await;
    let over =
        |entity: &str, workflow: Option<&str>| SkipRule { entity: entity.into(), workflow: workflow.map(Into::into) };
    for (passed_over, expected) in [
        (vec![over("book", None)], vec![one_workflow, author, due]),
        (vec![over("book", Some("index"))], vec![all_workflows, author, due]),
        (vec![over("book", Some("mail"))], vec![all_workflows, one_workflow, author, due]),
        (vec![over("author", None)], vec![all_workflows, one_workflow]),
        (vec![over("author", None), over("book", None), over("book", Some("index"))], vec![]),
    ] {
        let poll = Poll { passed_over: passed_over.clone(), newest: 10, ..everything() };
        assert_eq!(ids(&h.poll(poll.clone()).await.events), expected, "{passed_over:?}");
        let sweep = Sweep { from: 0, to: FAR, room: 10, known: Arc::default() };
        assert_eq!(ids(&h.poll(Poll { sweep: Some(sweep), ..poll }).await.events), expected, "{passed_over:?}");
    }
    assert_eq!(h.waiting_ids().await.len(), 4);
}

pub async fn a_poll_returns_how_far_it_has_looked(h: &Harness) {
    let first = h.book("1").await;
    let second = h.raw(RawRow { entity: "author", key: "1".into(), ..RawRow::default() }).await;
    let third = h.book("2").await;
    let mut poll = everything();
    poll.levels[4].room = 1;
    poll.levels[7].after = 33;
    let polled = h.poll(poll.clone()).await;
    assert_eq!((ids(&polled.events), polled.looked_to[4], polled.looked_to[7]), (vec![first], first, 33));
    poll.passed_over = vec![SkipRule { entity: "book".into(), workflow: None }];
    let polled = h.poll(poll.clone()).await;
    assert_eq!((ids(&polled.events), polled.looked_to[4]), (vec![second], second), "beyond the skipped rows");
    poll.levels[4].after = second;
    assert_eq!(h.poll(poll).await.looked_to[4], third, "also if no row is found");
}

pub async fn ob_18_a_delayed_row_is_not_polled_before_it_is_due(h: &Harness) {
    let soon = h.raw(RawRow { entity: "book", key: "1".into(), ready_in_ms: Some(6_000), ..RawRow::default() }).await;
    h.raw(RawRow { entity: "book", key: "2".into(), ready_in_ms: Some(600_000), ..RawRow::default() }).await;
    let polled = h.poll(everything()).await;
    assert_eq!(polled.events, []);
    let next_due_ms = polled.next_due_ms.expect("a row is delayed");
    assert!((1..=6_000).contains(&next_due_ms), "{next_due_ms}");
    (h.pass)(Duration::from_millis(next_due_ms + 1)).await;
    let polled = h.poll(everything()).await;
    assert_eq!(ids(&polled.events), [soon]);
    assert!((300_000..=600_000).contains(&polled.next_due_ms.unwrap_or(0)), "{:?}", polled.next_due_ms);
}

pub async fn ob_18_a_due_row_is_polled_below_the_position(h: &Harness) {
    let due = h.raw(RawRow { entity: "book", key: "1".into(), ready_in_ms: Some(-1000), ..RawRow::default() }).await;
    let plain = h.book("2").await;
    let mut poll = everything();
    poll.levels[4].after = plain;
    assert_eq!(ids(&h.poll(poll).await.events), [due]);
}

pub async fn an_oversized_row_is_named_and_not_read(h: &Harness) {
    let fits = RawRow { entity: "book", key: "1".into(), payload: Some("x".repeat(100)), ..RawRow::default() };
    let fits = h.raw(fits).await;
    // Bytes count, not characters.
    let large = RawRow { entity: "book", key: "2".into(), payload: Some("ä".repeat(51)), ..RawRow::default() };
    let large = h.raw(large).await;
    let polled = h.poll(Poll { payload_bytes_max: 100, newest: 5, ..everything() }).await;
    assert_eq!(ids(&polled.events), [fits]);
    assert_eq!(polled.events[0].payload.as_deref(), Some(&*"x".repeat(100)));
    assert_eq!(polled.oversized, [UnreadRow { id: large, bytes: 102 }]);
}

pub async fn an_oversized_row_is_parked_whole(h: &Harness) {
    let fence = h.term().await.fence();
    let text = "ä".repeat(5000);
    let raw = RawRow {
        kind: Some(Kind::Message),
        entity: "book",
        key: "2".into(),
        priority: Some(2),
        payload: Some(text.clone()),
        ..RawRow::default()
    };
    let event = h.raw(raw).await;
    let failure = Failure::reject("payload-too-large", "10000 bytes");
    let op = Op::ParkRow { event, failure };
    h.commit(&fence, vec![op.clone()]).await;
    h.commit(&fence, vec![op]).await;
    assert_eq!(h.waiting().await, []);
    let parked = h.parked().await;
    let [row] = &parked[..] else { panic!("{parked:?}") };
    assert_eq!((&*row.entity, &*row.key, row.workflow.as_deref()), ("book", "2", None));
    assert_eq!((&*row.class, &*row.code, row.payload_bytes), ("reject", "payload-too-large", 10_000));
    let head = row.payload_head.as_ref().expect("a head");
    assert!(head.starts_with("ää") && head.len() <= 4100, "{}", head.len());
    let AdminReply::Count(1) = h.admin(retry(Default::default())).await else { panic!("not retried") };
    let [event] = &h.waiting().await[..] else { panic!("no event") };
    assert_eq!((event.kind, event.priority, &event.workflow), (Kind::Message, 2, &None));
    assert_eq!(event.payload.as_deref(), Some(&*text), "whole");
}
