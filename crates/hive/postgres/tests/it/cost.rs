//! What a beat reads, as the server counts it.

use std::time::Duration;

use honeyflow_conformance::hive::{Bee, TTL_MS};

use crate::{Field, number, run};

const BEATS: i64 = 20;
const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000)::bigint - 1577836800000";

/// Rows and entries of indexes, of the hive's tables.
async fn read_so_far(field: &Field) -> i64 {
    let read = "select ((select sum(idx_tup_read) from pg_stat_user_indexes where relname like 'hive%')
        + (select sum(seq_tup_read) from pg_stat_user_tables where relname like 'hive%'))::bigint";
    field.number(read).await
}

/// Until its sessions have ended: only then all of it is counted.
async fn ended(field: &Field) {
    let there = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name like 'honeyflow%'";
    let mut connection = field.connect().await;
    for _ in 0..1_000 {
        if number(&mut connection, there).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("its sessions do not end");
}

async fn others(field: &Field, how_many: u32) {
    let hive = field.hive("it");
    let insert = format!(
        "insert into hive_node(hive, id, name, beat, beat_ms, ttl_ms, expires_ms, meta)
         select '{hive}', gen_random_uuid(), 'other', 0, 2000, {TTL_MS}, {NOW} + {TTL_MS} + n, '{{}}'
         from generate_series(1, {how_many}) as g(n)"
    );
    field.run(&insert).await;
}

async fn read_by_beats(field: &Field) -> i64 {
    let bee = Bee::join(field.open(), "a", TTL_MS).await;
    bee.beat().await;
    // What it has read so far is counted once it is gone; from here on it beats on another connection.
    let (id, lineage) = (bee.id, bee.lineage.clone());
    drop(bee);
    ended(field).await;
    let bee = Bee { hive: field.open(), id, lineage };
    let before = read_so_far(field).await;
    for _ in 0..BEATS {
        assert!(bee.beat().await.renewed);
    }
    drop(bee);
    ended(field).await;
    read_so_far(field).await - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_11_a_beat_costs_the_same_among_many() {
    let (Some(small), Some(large)) = (Field::bare().await, Field::bare().await) else { return };
    for (field, how_many) in [(&small, 20), (&large, 2_000)] {
        Bee::join(field.open(), "first", TTL_MS).await;
        others(field, how_many).await;
    }
    let (few, many) = (read_by_beats(&small).await, read_by_beats(&large).await);
    assert!(few > BEATS, "{few}: nothing is counted");
    assert!(many * 5 <= few * 6, "{few} among 20, {many} among 2,000");
}

/// While a report of the application runs for an hour, nothing that has died can be removed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_11_a_beat_does_not_read_what_is_dead() {
    let Some(field) = Field::bare().await else { return };
    Bee::join(field.open(), "first", TTL_MS).await;
    others(&field, 20).await;
    let mut report = field.connect().await;
    run(&mut report, "begin isolation level repeatable read; select count(*) from hive_node").await;
    let mut other = field.connect().await;
    for n in 0..200 {
        run(&mut other, &format!("update hive_node set expires_ms = {NOW} - 3600000 + {n}")).await;
    }
    run(&mut other, &format!("update hive_node set expires_ms = {NOW} + {TTL_MS}")).await;
    let read = read_by_beats(&field).await;
    assert!((4_000..40_000).contains(&read), "{read}: at the beginning, and not each time");
}
