//! A transaction takes its ids before it commits, so a late commit adds rows below the ids that are already done.

use std::sync::Arc;

use honeyflow_conformance::store::everything;
use honeyflow_store::{Poll, Reply, Store, poll::Sweep};

use crate::{Shop, poll, run, settle};

#[tokio::test]
async fn ob_37_a_transaction_that_commits_after_later_ids_are_done_is_found_by_the_sweep() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let fence = shop.fence(0).await;
    let (mut slow, mut quick) = (shop.connect().await, shop.connect().await);
    let insert = |key: &str| format!("insert into honeyflow_outbox(entity, entity_key) values ('book', '{key}')");
    run(&mut slow, &format!("begin; {}", insert("slow"))).await;
    run(&mut quick, &insert("quick")).await;

    let first = poll(&store, everything()).await;
    let [done] = &first.events[..] else { panic!("{first:?}") };
    assert_eq!((&*done.key, done.id), ("quick", 2), "the slow transaction has the lower id");
    assert!(matches!(store.call(settle(&fence, &[done.id])).await, Ok(Reply::Committed)));
    run(&mut slow, "commit").await;

    let mut next = everything();
    next.levels.iter_mut().zip(first.looked_to).for_each(|(level, looked_to)| level.after = looked_to);
    assert_eq!(poll(&store, next.clone()).await.events, [], "the late row is below the position");
    let sweep = Sweep { from: 0, to: 2, room: 10, known: Arc::default() };
    let swept = poll(&store, Poll { sweep: Some(sweep), ..next }).await;
    assert_eq!(swept.events.iter().map(|event| (&*event.key, event.id)).collect::<Vec<_>>(), [("slow", 1)]);
}

/// OB-15
#[tokio::test]
async fn events_are_committed_and_rolled_back_with_their_transaction() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    let mut application = shop.connect().await;
    let insert = |key: &str| format!("insert into honeyflow_outbox(entity, entity_key) values ('book', '{key}')");
    run(&mut application, &format!("begin; {}; rollback", insert("rolled back"))).await;
    run(
        &mut application,
        &format!("begin; {}; savepoint s; {}; rollback to s; commit", insert("kept"), insert("undone")),
    )
    .await;
    let mut killed = shop.connect().await;
    run(&mut killed, &format!("begin; {}", insert("killed"))).await;
    drop(killed);
    run(&mut application, &insert("autocommit")).await;
    let keys: Vec<_> = poll(&store, everything()).await.events.into_iter().map(|event| event.key.to_string()).collect();
    assert_eq!(keys, ["kept", "autocommit"]);
}
