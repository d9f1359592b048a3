use futures_util::future::join_all;
use honeyflow_conformance::store::everything;
use honeyflow_store::{Op, Poll, Reply, Request, Store, Write};
use honeyflow_store_postgres::{Options, PostgresStore};
use sqlx_core::{connection::Connection, executor::Executor};
use sqlx_postgres::PgConnection;
use std::time::Instant;
#[path = "../tests/it/hive.rs"]
mod hive;
#[tokio::main]
async fn main() {
    let url = std::env::args().nth(1).unwrap();
    let mut c = PgConnection::connect(&url).await.unwrap();
    c.execute("drop schema public cascade; create schema public").await.unwrap();
    let store = PostgresStore::open(Options::new(&url, "shop").unwrap()).await.unwrap();
    store.migrate().await.unwrap();
    c.execute(hive::TABLES).await.unwrap();
    let h = hive::TestHive::open(&url).await;
    let mut fences = vec![];
    for s in 0..64 {
        fences.push(
            honeyflow_hive::member::take(&h, honeyflow_hive::NodeId(uuid::Uuid::new_v4()), &format!("shard/shop/{s}"))
                .await
                .unwrap()
                .fence(),
        );
    }
    let mut pos = vec![[0i64; 10]; 64];
    let rounds = 300;
    let t = Instant::now();
    for _ in 0..rounds {
        look(&store, &mut pos, 10).await;
    }
    println!("idle empty: {:?} per poll of 64", t.elapsed() / rounds);
    c.execute("insert into honeyflow_outbox(entity, entity_key, ready_at) select 'book', n, now() + interval '1 day' from generate_series(1, 1000) n").await.unwrap();
    let t = Instant::now();
    for _ in 0..rounds {
        look(&store, &mut pos, 10).await;
    }
    println!("idle, delayed rows: {:?} per poll of 64", t.elapsed() / rounds);
    c.execute("delete from honeyflow_outbox").await.unwrap();
    let t = Instant::now();
    c.execute("insert into honeyflow_outbox(entity, entity_key) select 'book', n from generate_series(1, 100000) n")
        .await
        .unwrap();
    println!("insert 100k: {:?}", t.elapsed());
    let t = Instant::now();
    let (mut n, mut polls, mut poll_time) = (0, 0, std::time::Duration::ZERO);
    while n < 100_000 {
        let p = Instant::now();
        let found = look(&store, &mut pos, 40).await;
        poll_time += p.elapsed();
        polls += 1;
        let w = found.iter().enumerate().filter(|(_, ids)| !ids.is_empty()).map(|(s, ids)| {
            n += ids.len();
            store.call(Request::Write(Write {
                fence: fences[s].clone(),
                ops: vec![Op::Settle { events: ids.clone(), runs: vec![] }],
            }))
        });
        for r in join_all(w.collect::<Vec<_>>()).await {
            assert!(matches!(r, Ok(Reply::Committed)), "{r:?}");
        }
    }
    println!("drained 100k in {:?}: {polls} rounds, polls {:?} each", t.elapsed(), poll_time / polls);
    let t = Instant::now();
    for i in 0..rounds {
        let q = format!("insert into honeyflow_outbox(entity, entity_key) values ('book', '{i}')");
        c.execute(sqlx_core::sql_str::AssertSqlSafe(q)).await.unwrap();
        let found = look(&store, &mut pos, 10).await;
        let (s, ids) = found.iter().enumerate().find(|(_, ids)| !ids.is_empty()).expect("found");
        store
            .call(Request::Write(Write {
                fence: fences[s].clone(),
                ops: vec![Op::Settle { events: ids.clone(), runs: vec![] }],
            }))
            .await
            .unwrap();
    }
    println!("one by one: {:?} each", t.elapsed() / rounds);
    let t = Instant::now();
    for _ in 0..rounds {
        look(&store, &mut pos, 10).await;
    }
    println!("idle after: {:?} per poll of 64", t.elapsed() / rounds);
}
async fn look(store: &PostgresStore, pos: &mut [[i64; 10]], room: u32) -> Vec<Vec<i64>> {
    let polls = (0..64u16).map(|s| {
        let mut p = Poll { shard: s, ..everything() };
        for (l, a) in p.levels.iter_mut().zip(pos[s as usize]) {
            l.after = a;
            l.room = room;
        }
        store.call(Request::Poll(p))
    });
    let mut out = vec![];
    for (s, r) in join_all(polls.collect::<Vec<_>>()).await.into_iter().enumerate() {
        let Ok(Reply::Polled(p)) = r else { panic!("{r:?}") };
        pos[s] = p.looked_to;
        out.push(p.events.iter().map(|e| e.id).collect());
    }
    out
}
