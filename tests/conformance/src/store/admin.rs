//! Requests of people: pauses, lag, history and lists.

use std::time::Duration;

use honeyflow_store::{
    Admin, AdminReply, Op,
    write::{History, Pause},
};

use super::{Harness, RawRow, charge, ids, park, run, settle};

pub async fn a_pause_is_stored_until_it_is_resumed(h: &Harness) {
    let pause = |noun: &str, name: &str, why: &str| {
        Admin::Pause(Pause { noun: noun.into(), name: name.into(), why: why.into(), since_ms: 0 })
    };
    for admin in [pause("workflow", "book", "mending"), pause("sink", "books", "upgrade")] {
        assert!(matches!(h.admin(admin).await, AdminReply::Done));
    }
    h.admin(pause("workflow", "book", "still mending")).await;
    let recovered = h.recover().await;
    let paused: Vec<_> = recovered.paused.iter().map(|pause| (&*pause.noun, &*pause.name, &*pause.why)).collect();
    assert_eq!(paused, [("sink", "books", "upgrade"), ("workflow", "book", "still mending")]);
    assert!(recovered.paused.iter().all(|pause| (recovered.store_ms - pause.since_ms).abs() < 60_000));
    h.admin(Admin::Resume { noun: "sink".into(), name: "books".into() }).await;
    h.admin(Admin::Resume { noun: "sink".into(), name: "never-paused".into() }).await;
    let AdminReply::Paused(paused) = h.admin(Admin::Paused).await else { panic!("no pauses") };
    assert_eq!(paused.len(), 1);
    assert_eq!(paused[0].noun, "workflow");
}

pub async fn ob_82_lag_is_counted_in_the_store(h: &Harness) {
    let fence = h.term().await.fence();
    let AdminReply::Lag(lag) = h.admin(Admin::Lag).await else { panic!("no lag") };
    assert_eq!(lag, Default::default());
    let mut all = Vec::new();
    for (priority, ready_in_ms) in
        [(4, None), (4, None), (7, None), (4, Some(-1000)), (9, Some(600_000)), (9, Some(600_000))]
    {
        let raw =
            RawRow { entity: "book", key: "1".into(), priority: Some(priority), ready_in_ms, ..RawRow::default() };
        all.push(h.raw(raw).await);
    }
    h.commit(&fence, vec![park("9", "index", &[])]).await;
    let AdminReply::Lag(lag) = h.admin(Admin::Lag).await else { panic!("no lag") };
    assert_eq!((lag.waiting, lag.delayed, lag.parked), (4, 2, 1));
    assert_eq!(lag.by_priority, [(4, 3), (7, 1)]);
    assert!((1000..60_000).contains(&lag.oldest_ms), "{lag:?}");
    (h.pass)(Duration::from_millis(50)).await;
    let AdminReply::Lag(later) = h.admin(Admin::Lag).await else { panic!("no lag") };
    assert!(later.oldest_ms >= lag.oldest_ms + 50, "the age grows without new events");
    h.commit(&fence, vec![settle(&all, &[])]).await;
    let AdminReply::Lag(lag) = h.admin(Admin::Lag).await else { panic!("no lag") };
    assert_eq!((lag.waiting, lag.delayed, lag.oldest_ms), (0, 0, 0));
}

pub async fn ob_99_events_that_still_wait_are_found_by_id(h: &Harness) {
    let fence = h.term().await.fence();
    let settled = h.book("1").await;
    let parked = h.book("2").await;
    let ready = h.book("3").await;
    let delayed =
        h.raw(RawRow { entity: "book", key: "4".into(), ready_in_ms: Some(600_000), ..RawRow::default() }).await;
    h.book("5").await;
    h.commit(&fence, vec![settle(&[settled], &[]), park("2", "index", &[parked])]).await;
    let events = vec![delayed, parked, settled, ready, delayed + 1_000_000];
    let AdminReply::Ids(mut waiting) = h.admin(Admin::Waiting { events }).await else { panic!("no ids") };
    waiting.sort_unstable();
    assert_eq!(waiting, [ready, delayed], "neither done, nor parked, nor asked for");
    let AdminReply::Ids(none) = h.admin(Admin::Waiting { events: Vec::new() }).await else { panic!("no ids") };
    assert_eq!(none, [0; 0]);
}

pub async fn history_events_and_tasks_are_listed(h: &Harness) {
    let fence = h.term().await.fence();
    for n in 0..3 {
        let steps = serde_json::json!([{"step": "load", "ms": n}]);
        let history = History { run: run("1", "index"), version: 4, verdict: "succeeded", steps };
        h.commit(&fence, vec![Op::History(Box::new(history))]).await;
    }
    let AdminReply::History(runs) = h.admin(Admin::History { limit: 2 }).await else { panic!("no history") };
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0]["steps"][0]["ms"], 2, "newest first");
    assert_eq!((&runs[0]["key"], &runs[0]["workflow"]), (&"1".into(), &"index".into()));
    assert_eq!((&runs[0]["verdict"], &runs[0]["version"]), (&"succeeded".into(), &4.into()));

    let first = h.book("1").await;
    h.book("2").await;
    let second =
        h.raw(RawRow { entity: "book", key: "1".into(), ready_in_ms: Some(600_000), ..RawRow::default() }).await;
    let events = Admin::Events { entity: "book".into(), key: "1".into(), limit: 10 };
    let AdminReply::Events(events) = h.admin(events).await else { panic!("no events") };
    assert_eq!(ids(&events), [first, second], "waiting and delayed");

    h.commit(&fence, vec![charge("1", 3)]).await;
    let AdminReply::Failures(failures) = h.admin(Admin::Failures { limit: 10 }).await else { panic!("no failures") };
    assert_eq!((failures.len(), failures[0].attempts), (1, 3));

    for (name, state) in [("book", "asked"), ("author", "asked"), ("book", "done")] {
        h.admin(Admin::PutTask { noun: "reindex".into(), name: name.into(), state: state.into() }).await;
    }
    let AdminReply::Tasks(tasks) = h.admin(Admin::Tasks).await else { panic!("no tasks") };
    let tasks: Vec<_> = tasks.iter().map(|task| (&*task.noun, &*task.name, &*task.state)).collect();
    assert_eq!(tasks, [("reindex", "book", "done"), ("reindex", "author", "asked")]);
}
