//! Checks orders of magnitude with generous limits: a scan instead of a lookup takes a hundred times as long.

use std::time::{Duration, Instant};

use honeyflow_conformance::store::{everything, new_event, run};
use honeyflow_hive::NodeId;
use honeyflow_store::{Op, Reply, Request, Store, Write};

use crate::{Shop, document, load};

#[tokio::test]
async fn thousands_of_rows_are_polled_loaded_and_settled_quickly() {
    let (shop, store) = Shop::new(
        "create table book(id integer primary key, title text, price real, publisher_id integer);
         with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
         insert into book select i, 'Title ' || i, i * 0.5, i % 10 from n;",
    )
    .await;
    let hive = honeyflow_hive_sqlite::open(&shop.path(), honeyflow_hive::contract::HIVE).unwrap();
    let fence =
        honeyflow_hive::member::take(&hive, NodeId(uuid::Uuid::new_v4()), "shard/shop/0").await.unwrap().fence();
    let events = (1..=20_000).map(|n| new_event(&n.to_string())).collect();
    let Ok(Reply::Appended { ids, .. }) = store.call(Request::Append { events, idempotency: None }).await else {
        panic!("not appended")
    };

    let mut poll = everything();
    poll.levels.iter_mut().for_each(|level| level.room = 500);
    poll.newest = 100;
    let began_at = Instant::now();
    let Ok(Reply::Polled(polled)) = store.call(Request::Poll(poll)).await else { panic!("not polled") };
    report("poll of 600 of 20,000", began_at, Duration::from_secs(5));
    assert_eq!(polled.events.len(), 600);

    let statement = document("select id, title, price, publisher_id from book where id in $keys");
    let keys: Vec<String> = (1..=500).map(|n| n.to_string()).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    load(&store, &statement, &keys[..1]).await.unwrap();
    let began_at = Instant::now();
    assert_eq!(load(&store, &statement, &keys).await.unwrap().len(), 500);
    report("load of 500 keys", began_at, Duration::from_secs(5));

    let runs: Vec<_> = (0..2_000).map(|n| run(&n.to_string(), "index")).collect();
    for round in ids.chunks(2_000).take(3) {
        let ops = vec![Op::Settle { events: round.to_vec(), runs: runs.clone() }];
        let began_at = Instant::now();
        let reply = store.call(Request::Write(Write { fence: fence.clone(), ops })).await;
        report("settle of 2,000", began_at, Duration::from_secs(20));
        assert!(matches!(reply, Ok(Reply::Committed)), "{reply:?}");
    }
}

fn report(what: &str, began_at: Instant, max: Duration) {
    let took = began_at.elapsed();
    eprintln!("{what}: {took:?}");
    assert!(took < max, "{what} took {took:?}");
}
