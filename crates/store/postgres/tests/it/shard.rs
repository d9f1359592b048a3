//! The shard of a row, and polls and writes over many shards.

use std::sync::Arc;

use futures_util::future::join_all;
use honeyflow_conformance::store::{checkpoint, everything, new_event, run as run_of};
use honeyflow_event::shard;
use honeyflow_runtime::Failure;
use honeyflow_store::{
    Admin, NewEvent, Op, Poll, Reply, Request, Store, Write,
    poll::{SkipRule, Sweep},
    write::{CheckpointOutcome, RecoveredState},
};
use honeyflow_store_postgres::PostgresStore;
use sqlx_core::{query::query, query_as::query_as};

use crate::{Shop, number, poll, run, settle};

/// Keys that two implementations could hash differently: Unicode, escapes, separators, composites.
fn vectors() -> Vec<(String, String, String)> {
    let tenants = ["", "acme", "größe", "a\u{1f}b", "日本"];
    let entities = ["book", "Book", "order line", "bücher", "b\u{301}"];
    let pieces = [
        "",
        "42",
        "-1",
        r"a\|b|c\\d",
        "ä",
        "a\u{308}",
        "🦀",
        "\u{1f}",
        "x y",
        "'; --",
        "\\",
        "00000000-0000-7000-8000-0000000000ff",
    ];
    let mut vectors = Vec::new();
    for n in 0..1000_usize {
        let (tenant, entity) = (tenants[n % tenants.len()], entities[n / tenants.len() % entities.len()]);
        let key = format!("{}{}|{n}", pieces[n % pieces.len()], pieces[n / 7 % pieces.len()]);
        vectors.push((tenant.to_owned(), entity.to_owned(), key));
    }
    vectors
}

#[tokio::test]
async fn ob_3_the_server_and_the_node_compute_the_same_shard() {
    for count in [64_u16, 1, 32_768] {
        let Some((shop, _)) = Shop::new(count).await else { return };
        let mut application = shop.connect().await;
        let vectors = vectors();
        let insert = query(
            "insert into honeyflow_outbox(tenant, entity, entity_key)
             select * from unnest($1::text[], $2::text[], $3::text[])",
        );
        insert
            .bind(vectors.iter().map(|(tenant, ..)| tenant.as_str()).collect::<Vec<_>>())
            .bind(vectors.iter().map(|(_, entity, _)| entity.as_str()).collect::<Vec<_>>())
            .bind(vectors.iter().map(|(.., key)| key.as_str()).collect::<Vec<_>>())
            .execute(&mut application)
            .await
            .unwrap();
        let placed = query_as("select tenant, entity, entity_key, shard from honeyflow_outbox");
        let placed: Vec<(String, String, String, i16)> = placed.fetch_all(&mut application).await.unwrap();
        assert_eq!(placed.len(), vectors.len());
        for (tenant, entity, key, placed) in placed {
            let ours = shard::compute(&tenant, &entity, &key, count);
            assert_eq!(i32::from(placed), i32::from(ours), "{tenant:?} {entity:?} {key:?} of {count}");
        }
    }
}

#[tokio::test]
async fn ob_3_keys_spread_evenly_on_the_server() {
    let Some((shop, _)) = Shop::new(64).await else { return };
    let mut application = shop.connect().await;
    run(
        &mut application,
        "insert into honeyflow_outbox(entity, entity_key) select 'book', n from generate_series(1, 100000) n",
    )
    .await;
    let counts = "select count(*) from (select shard from honeyflow_outbox group by shard
         having count(*) between 0.9 * 100000 / 64 and 1.1 * 100000 / 64) s";
    assert_eq!(number(&mut application, counts).await, 64);
}

/// OB-17: a shard or priority that no poll reads is corrected, and the application's transaction continues.
#[tokio::test]
async fn an_invalid_shard_or_priority_is_corrected() {
    let Some((shop, store)) = Shop::new(64).await else { return };
    let mut application = shop.connect().await;
    run(
        &mut application,
        "insert into honeyflow_outbox(entity, entity_key, shard, priority) values
           ('book', '1', 999, 4), ('book', '2', -1, 12), ('book', '3', null, -3)",
    )
    .await;
    let right = shard::compute("", "book", "1", 64);
    assert_eq!(poll(&store, Poll { shard: right, ..everything() }).await.events.len(), 1);
    let found = query_as("select priority, shard from honeyflow_outbox order by id");
    let found: Vec<(i16, i16)> = found.fetch_all(&mut application).await.unwrap();
    assert_eq!(found.iter().map(|(priority, _)| *priority).collect::<Vec<_>>(), [4, 9, 0]);
    assert!(found.iter().all(|(_, shard)| (0..64).contains(shard)));
}

async fn append(store: &PostgresStore, events: Vec<NewEvent>) {
    store.call(Request::Append { events, idempotency: None }).await.unwrap();
}

/// Polls all shards at once, as a node does that owns all of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ob_36_polls_of_all_shards_are_answered_each_with_its_own() {
    let Some((_shop, store)) = Shop::new(64).await else { return };
    append(&store, (0..500).map(|n| new_event(&n.to_string())).collect()).await;
    let later = (500..600).map(|n| NewEvent { priority: 7, ..new_event(&n.to_string()) });
    append(&store, later.collect()).await;
    let mut positions = [[0; 10]; 64];
    for round in 0..3 {
        let polls = (0..64_u16).map(|shard| {
            let mut asked = Poll { shard, ..everything() };
            for (level, after) in asked.levels.iter_mut().zip(positions[usize::from(shard)]) {
                level.after = after;
                level.room = 1000;
            }
            let store = store.clone();
            async move { (shard, poll(&store, asked).await) }
        });
        let answers = join_all(polls).await;
        let mut keys: Vec<u32> = Vec::new();
        for (shard, polled) in &answers {
            for event in &polled.events {
                assert_eq!(honeyflow_event::shard::compute("", "book", &event.key, 64), *shard);
                keys.push(event.key.parse().unwrap());
            }
            positions[usize::from(*shard)] = polled.looked_to;
        }
        keys.sort_unstable();
        let expected: Vec<u32> = match round {
            0 => (0..600).collect(),
            1 => vec![],
            _ => (600..700).collect(),
        };
        assert_eq!(keys, expected, "round {round}");
        if round == 1 {
            append(&store, (600..700).map(|n| new_event(&n.to_string())).collect()).await;
        }
    }
    // A level that was read to the end has its position at the end, so that one range answers the next polls of all.
    let lowest = positions.iter().flatten().min();
    assert!(lowest.is_some_and(|lowest| *lowest >= 600), "{lowest:?}");
}

/// The positions of the levels are far apart: only the level that is behind reads the rows between them.
#[tokio::test]
async fn ob_36_no_row_is_skipped_while_there_is_a_backlog() {
    let Some((shop, store)) = Shop::new(2).await else { return };
    let mut application = shop.connect().await;
    let backlog = "insert into honeyflow_outbox(entity, entity_key, priority)
         select 'book', n, case when n % 100 = 0 then 7 else 4 end from generate_series(1, 3000) n";
    run(&mut application, backlog).await;
    let mut positions = [[0; 10]; 2];
    let mut found = Vec::new();
    loop {
        let before = found.len();
        for shard in 0..2_u16 {
            let mut asked = Poll { shard, ..everything() };
            for (level, after) in asked.levels.iter_mut().zip(positions[usize::from(shard)]) {
                (level.after, level.room) = (after, 20);
            }
            let polled = poll(&store, asked).await;
            positions[usize::from(shard)] = polled.looked_to;
            found.extend(polled.events.iter().map(|event| event.id));
        }
        if found.len() == before {
            break;
        }
    }
    found.sort_unstable();
    assert_eq!(found, (1..=3000).collect::<Vec<_>>(), "each once");
}

#[tokio::test]
async fn ob_37_sweeps_of_several_shards_are_answered_each_with_its_own() {
    let Some((_shop, store)) = Shop::new(4).await else { return };
    append(&store, (0..40).map(|n| new_event(&n.to_string())).collect()).await;
    let author = |n: u32| NewEvent { entity: "author".into(), ..new_event(&n.to_string()) };
    append(&store, (0..40).map(author).collect()).await;
    let sweeps = (0..4_u16).map(|shard| {
        let sweep = Sweep { from: 0, to: i64::MAX, room: 1000, known: Arc::default() };
        // Half of the sweeps skip rows, so that they need different statements.
        let passed_over = vec![SkipRule { entity: "author".into(), workflow: None }];
        let passed_over = if shard % 2 == 0 { passed_over } else { vec![] };
        poll(&store, Poll { shard, sweep: Some(sweep), passed_over, ..everything() })
    });
    for (shard, polled) in (0..4_u16).zip(join_all(sweeps).await) {
        let of =
            |entity: &str| (0..40).filter(|n: &u32| shard::compute("", entity, &n.to_string(), 4) == shard).count();
        let expected = of("book") + if shard % 2 == 0 { 0 } else { of("author") };
        assert_eq!(polled.events.len(), expected, "shard {shard}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ob_44_one_transaction_writes_many_shards_and_an_invalid_fence_refuses_only_its_own() {
    let Some((shop, store)) = Shop::new(64).await else { return };
    append(&store, (0..64).map(|n| new_event(&n.to_string())).collect()).await;
    let mut fences = Vec::new();
    for shard in 0..64 {
        fences.push(shop.fence(shard).await);
    }
    let mut application = shop.connect().await;
    run(&mut application, "update hive_lease set epoch = epoch + 1 where name in ('shard/shop/3', 'shard/shop/9')")
        .await;
    let writes = fences.iter().zip(1..).map(|(fence, id)| store.call(settle(fence, &[id])));
    for (shard, reply) in join_all(writes).await.into_iter().enumerate() {
        let fenced = matches!(reply.unwrap(), Reply::Fenced);
        assert_eq!(fenced, [3, 9].contains(&shard), "shard {shard}");
    }
    assert_eq!(number(&mut application, "select count(*) from honeyflow_outbox").await, 2);
}

#[tokio::test]
async fn ob_61_resumed_checkpoints_belong_to_the_shard_of_the_new_event() {
    let Some((shop, store)) = Shop::new(64).await else { return };
    // The row has the table's name, so it is in another shard than the entity's key.
    let fence = shop.fence(63).await;
    assert_ne!(shard::compute("", "book", "1", 64), 63);
    let done = checkpoint("1", &[1], CheckpointOutcome::Skipped, Vec::new());
    let parked = honeyflow_conformance::store::park("1", "index", &[1]);
    append(&store, vec![new_event("1")]).await;
    let reply = store.call(Request::Write(Write { fence: fence.clone(), ops: vec![done, parked] })).await;
    assert!(matches!(reply, Ok(Reply::Committed)), "{reply:?}");
    store
        .call(Request::Admin(Admin::RetryParked { filter: Default::default(), mode: Default::default() }))
        .await
        .unwrap();
    let recovered = |shard| {
        let store = store.clone();
        async move {
            match store.call(Request::Recover { shard }).await.unwrap() {
                Reply::Recovered(RecoveredState { checkpoints, .. }) => checkpoints,
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(recovered(63).await.len(), 0);
    let taken_up = recovered(shard::compute("", "book", "1", 64)).await;
    assert_eq!(taken_up.len(), 1);
    assert_eq!(taken_up[0].run, run_of("1", "index"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_fails_does_not_fail_its_neighbours() {
    let Some((shop, store)) = Shop::new(1).await else { return };
    append(&store, (0..30).map(|n| new_event(&n.to_string())).collect()).await;
    let mut application = shop.connect().await;
    // The delete of this row fails in the middle of its request.
    run(
        &mut application,
        "create function guard() returns trigger language plpgsql as $$ begin raise 'not this one'; end $$;
         create trigger guard before delete on honeyflow_outbox for each row when (old.id = 17) execute function guard()",
    )
    .await;
    let fence = shop.fence(0).await;
    let ids: Vec<i64> = (1..=30).collect();
    let requests = ids.chunks(3).map(|chunk| {
        let failure = Failure::reject("bad-value", "no number");
        let charge = Op::Charge {
            run: run_of(&chunk[0].to_string(), "index"),
            step: "load".into(),
            index: 0,
            attempts: 1,
            due_in: std::time::Duration::ZERO,
            failure,
        };
        let ops = vec![charge, Op::Settle { events: chunk.to_vec(), runs: vec![] }];
        store.call(Request::Write(Write { fence: fence.clone(), ops }))
    });
    for (n, reply) in join_all(requests).await.into_iter().enumerate() {
        match reply {
            Ok(Reply::Committed) => assert_ne!(n, 5),
            Err(failure) => assert_eq!((n, &*failure.code), (5, "constraint"), "{failure}"),
            other => panic!("{other:?}"),
        }
    }
    let left: Vec<i64> = poll(&store, everything()).await.events.iter().map(|event| event.id).collect();
    assert_eq!(left, ids[15..18], "the whole failed request is rolled back");
    assert_eq!(number(&mut application, "select count(*) from honeyflow_failure").await, 9);
}
