//! How many rows a heartbeat reads, as the server counts them.

use std::time::Duration;

use honeyflow_conformance::hive::{TTL_MS, TestMember};

use crate::{TestDatabase, number, run};

const BEATS: i64 = 20;
const NOW: &str = "(extract(epoch from clock_timestamp()) * 1000)::bigint - 1577836800000";

/// How many rows and index entries of the hive's tables have been read so far.
async fn read_so_far(field: &TestDatabase) -> i64 {
    let read = "select ((select sum(idx_tup_read) from pg_stat_user_indexes where relname like 'hive%')
        + (select sum(seq_tup_read) from pg_stat_user_tables where relname like 'hive%'))::bigint";
    field.number(read).await
}

/// Waits until the hive's sessions have ended: only then the server has counted all their reads.
async fn until_sessions_end(field: &TestDatabase) {
    let there = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name like 'honeyflow%'";
    let mut connection = field.connect().await;
    for _ in 0..1_000 {
        if number(&mut connection, there).await == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the sessions of the hive do not end");
}

async fn insert_nodes(field: &TestDatabase, how_many: u32) {
    let hive = field.hive("it");
    let insert = format!(
        "insert into hive_node(hive, id, name, beat, beat_ms, ttl_ms, expires_ms, meta)
         select '{hive}', gen_random_uuid(), 'other', 0, 2000, {TTL_MS}, {NOW} + {TTL_MS} + n, '{{}}'
         from generate_series(1, {how_many}) as g(n)"
    );
    field.run(&insert).await;
}

async fn read_by_beats(field: &TestDatabase) -> i64 {
    let bee = TestMember::join(field.open(), "a", TTL_MS).await;
    bee.beat().await;
    // The server counts the reads so far when the session ends; from here on heartbeats use another connection.
    let (id, lineage) = (bee.id, bee.lineage.clone());
    drop(bee);
    until_sessions_end(field).await;
    let bee = TestMember { hive: field.open(), id, lineage };
    let before = read_so_far(field).await;
    for _ in 0..BEATS {
        assert!(bee.beat().await.renewed);
    }
    drop(bee);
    until_sessions_end(field).await;
    read_so_far(field).await - before
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_11_a_beat_costs_the_same_among_many() {
    let (Some(small), Some(large)) = (TestDatabase::bare().await, TestDatabase::bare().await) else { return };
    for (field, how_many) in [(&small, 20), (&large, 2_000)] {
        TestMember::join(field.open(), "first", TTL_MS).await;
        insert_nodes(field, how_many).await;
    }
    let (few, many) = (read_by_beats(&small).await, read_by_beats(&large).await);
    assert!(few > BEATS, "{few}: the server counts no reads");
    assert!(many * 5 <= few * 6, "{few} among 20, {many} among 2,000");
}

/// While a report of the application runs for an hour, the server cannot remove dead row versions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_11_a_beat_does_not_read_what_is_dead() {
    let Some(field) = TestDatabase::bare().await else { return };
    TestMember::join(field.open(), "first", TTL_MS).await;
    insert_nodes(&field, 20).await;
    let mut report = field.connect().await;
    run(&mut report, "begin isolation level repeatable read; select count(*) from hive_node").await;
    let mut other = field.connect().await;
    for n in 0..200 {
        run(&mut other, &format!("update hive_node set expires_ms = {NOW} - 3600000 + {n}")).await;
    }
    run(&mut other, &format!("update hive_node set expires_ms = {NOW} + {TTL_MS}")).await;
    let read = read_by_beats(&field).await;
    assert!((4_000..40_000).contains(&read), "{read}: dead rows are read once at the start, not by each heartbeat");
}
