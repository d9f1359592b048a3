//! Defects that other systems had, tried on this backend.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use honeyflow_conformance::hive::{
    TTL_MS, TestMember,
    test_member::{call, eligible_state},
};
use honeyflow_event::Epoch;
use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::{
        EventKind, Refusal,
        limit::{self, ExactTake, Key, Rule},
    },
};
use honeyflow_hive_postgres::{Options, PostgresHive};
use honeyflow_runtime::Class;
use sqlx_core::connection::Connection;
use sqlx_postgres::PgConnection;

use crate::{
    TestDatabase, database,
    member::{Node, is_spread, until},
    run,
};

const LEASE: &str = "shard/x/0";

fn all(hive: &str) -> String {
    format!("hive = '{hive}'")
}

/// Waits until at least `how_many` sessions of this hive wait for a lock.
async fn until_sessions_wait(field: &TestDatabase, how_many: i64) {
    let waiting = format!(
        "select count(*) from pg_stat_activity where datname = '{}' and wait_event_type = 'Lock'
           and query like '%{}%'",
        field.database(),
        field.hive("it")
    );
    for _ in 0..2_000 {
        if field.number(&waiting).await >= how_many {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("no session waits for a lock");
}

/// Opens a transaction that locks the lease's row, as a writer under the lease does.
async fn open_writer(field: &TestDatabase) -> PgConnection {
    let mut connection = field.connect().await;
    let lock =
        format!("begin; select 1 from hive_lease where {} and name = '{LEASE}' for share", all(&field.hive("it")));
    run(&mut connection, &lock).await;
    connection
}

/// HV-77: the total ever issued stops at the largest number of its column; the limit itself continues to work.
#[tokio::test]
async fn hv_77_a_ledger_that_is_full_stops_no_limit() {
    let Some(field) = TestDatabase::straight().await else { return };
    let bee = TestMember::join(field.open(), "a", TTL_MS).await;
    let rule = Rule::rate(1_000, 1_000, 2_000);
    bee.limit(limit::Request::Set { limit: "api".into(), was: None, rule, after_ms: 0 }).await;
    let draw = || {
        limit::Request::Draw(vec![limit::Draw { limit: "api".into(), key: Key(1), want: 5, need: 5, reserve: None }])
    };
    let exact = || ExactTake { limit: "api".into(), key: Key(1), cost: 5, window: None };
    bee.limit(draw()).await;
    let near = format!("update hive_limit set issued_u = {} where {}", i64::MAX - 7, all(&field.hive("it")));
    field.run(&near).await;
    for _ in 0..2 {
        let limit::Reply::Drawn { drawn, .. } = bee.limit(draw()).await else { panic!("not drawn") };
        assert_eq!(drawn[0].expect("defined").granted, 5);
        let takes = limit::Request::Exact { takes: vec![exact()], peek: false };
        assert!(matches!(bee.limit(takes).await, limit::Reply::Admitted { .. }));
    }
    let limit::Reply::Ledger(rows) = bee.limit(limit::Request::Ledger { limit: "api".into(), max: 1 }).await else {
        panic!("no ledger")
    };
    assert_eq!(rows[0].issued_u, i64::MAX.cast_unsigned());
}

/// A node has read the lease as free and waits for its row; meanwhile another living node gets the lease. The take must
/// see that the lease is no longer free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn take_robs_live_holder_by_old_snapshot() {
    let Some(field) = TestDatabase::straight().await else { return };
    let (taker, living) =
        (TestMember::join(field.open(), "a", TTL_MS).await, TestMember::join(field.open(), "b", TTL_MS).await);
    taker.beat().await;
    taker.look(LEASE).await;
    for epoch in [0, 7] {
        // Also with an unchanged epoch: then only the holder shows that the lease is taken.
        let ours = all(&field.hive("it"));
        field.run(&format!("update hive_lease set holder = null, epoch = 0 where {ours}")).await;
        let mut other = field.connect().await;
        run(
            &mut other,
            &format!("begin; update hive_lease set holder = '{}', epoch = {epoch} where {ours}", living.id),
        )
        .await;
        let taking = tokio::spawn(taker.hive.call(taker.claim(LEASE, Epoch(0))));
        until_sessions_wait(&field, 1).await;
        run(&mut other, "commit").await;
        assert_eq!(taking.await.unwrap().unwrap(), Reply::Refused(Refusal::Raced), "epoch {epoch}");
        let lease = taker.look(LEASE).await;
        assert_eq!((lease.holder, lease.epoch), (Some(living.id), Epoch(epoch)));
    }
}

/// HV-37, HV-51: a node that takes over waits for transactions in flight under the lease, sends heartbeats meanwhile,
/// and mints with the time after the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_37_a_take_over_waits_for_transactions_in_flight() {
    let Some(field) = TestDatabase::straight().await else { return };
    let bee = TestMember::join(field.open(), "a", TTL_MS).await;
    bee.beat().await;
    let held = bee.take(LEASE).await;
    let mut writer = open_writer(&field).await;
    let over = tokio::spawn(bee.hive.call(bee.transfer_request(LEASE, held, bee.id)));
    until_sessions_wait(&field, 1).await;
    let status = bee.beat().await;
    assert!(status.member && status.renewed, "only the take-over waits");
    assert_eq!(bee.look(LEASE).await.epoch, held);
    run(&mut writer, "commit").await;
    let Reply::Taken(minted) = over.await.unwrap().unwrap() else { panic!("not handed over") };
    assert!(minted[0].epoch.0 >= status.head.hive_ms, "the epoch is the time after the wait, not before it");
}

/// HV-37: a take-over waits no longer than its caller does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_37_a_take_over_does_not_wait_for_ever() {
    let Some(field) = TestDatabase::straight().await else { return };
    // A take-over waits for half the time to live. On a busy machine, the node must not expire before it takes the
    // lease.
    let bee = TestMember::join(field.open(), "a", 3_000).await;
    bee.beat_with(eligible_state()).await;
    let held = bee.take(LEASE).await;
    let _writer = open_writer(&field).await;
    bee.beat_with(eligible_state()).await;
    let failure = bee.hive.call(bee.transfer_request(LEASE, held, bee.id)).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "database-busy"), "{failure}");
}

/// river: nodes lost leases because the heartbeat waited for a connection of an exhausted pool.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pool_starvation_loses_lease() {
    let Some(field) = TestDatabase::straight().await else { return };
    let bee = TestMember::join(field.open(), "a", TTL_MS).await;
    bee.beat().await;
    let held = bee.take(LEASE).await;
    let _writer = open_writer(&field).await;
    // There are more requests than connections, and no connection becomes free for now.
    let waiting: Vec<_> =
        (0..20).map(|_| tokio::spawn(bee.hive.call(bee.transfer_request(LEASE, held, bee.id)))).collect();
    until_sessions_wait(&field, 3).await;
    for _ in 0..5 {
        let status = tokio::time::timeout(Duration::from_millis(TTL_MS / 3), bee.beat()).await;
        assert!(status.is_ok_and(|status| status.renewed), "a heartbeat does not wait for the take-overs");
    }
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}

/// river: a node stayed forever on a server that had become read-only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_on_read_only_server() {
    let Some(field) = TestDatabase::bare().await else { return };
    let bee = TestMember::join(field.open(), "a", TTL_MS).await;
    let (name, mut other) = (field.database(), field.connect().await);
    let terminate = "select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()";
    run(&mut other, &format!("alter database {name} set default_transaction_read_only = on; {terminate}")).await;
    let beat = Request::Beat { node: bee.id, read_only: false, state: eligible_state() };
    let broken = bee.hive.call(beat.clone()).await.unwrap_err();
    assert_eq!(broken.code, "no-connection", "{broken}");
    let failure = bee.hive.call(beat.clone()).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "read-only"), "{failure}");
    assert!(failure.message.contains("primary"), "{failure}");
    // As after a failover, only a new connection finds the server that accepts writes.
    run(&mut other, &format!("set default_transaction_read_only = off; alter database {name} reset all")).await;
    assert!(bee.beat().await.renewed);
}

/// All clients of a pooler share its sessions, so a lease must not depend on a session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advisory_lock_behind_pooler() {
    let Some(field) = TestDatabase::pooled().await else { return };
    let (holder, other) =
        (TestMember::join(field.open(), "a", TTL_MS).await, TestMember::join(field.open(), "b", TTL_MS).await);
    holder.beat().await;
    other.beat().await;
    let epoch = holder.take(LEASE).await;
    assert_eq!(field.number("select count(*) from pg_locks where locktype = 'advisory'").await, 0);
    // Every session of the pool ends, and the lease keeps its holder.
    let ours = format!("'honeyflow hive {}'", field.hive("it"));
    field.run(&format!("select pg_terminate_backend(pid) from pg_stat_activity where application_name = {ours}")).await;
    for request in [
        Request::Beat { node: other.id, read_only: false, state: eligible_state() },
        Request::Look { leases: vec![LEASE.into()] },
    ] {
        let again = async { while other.hive.call(request.clone()).await.is_err() {} };
        tokio::time::timeout(Duration::from_secs(30), again).await.expect("a session that ended is replaced");
    }
    assert_eq!(other.call(other.claim(LEASE, epoch)).await, Reply::Refused(Refusal::Raced));
    assert_eq!(other.look(LEASE).await.holder, Some(holder.id));
}

/// HV-37: the defaults of the role do not matter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_37_changes_are_read_committed_and_durable_whatever_the_role_says() {
    let Some(field) = TestDatabase::bare().await else { return };
    let name = field.database();
    field
        .run(&format!(
            "alter database {name} set default_transaction_isolation = serializable;
             alter database {name} set synchronous_commit = off"
        ))
        .await;
    let bees = join_all((0..6).map(|_| TestMember::join(field.open(), "a", TTL_MS))).await;
    field
        .run("create table seen(isolation text, commits text);
             create function note() returns trigger language plpgsql as $$
               begin insert into seen values (current_setting('transaction_isolation'), current_setting('synchronous_commit'));
               return null; end $$;
             create trigger note after update on hive_lease execute function note();
             create trigger note after update on hive_node execute function note()")
        .await;
    join_all(bees.iter().map(TestMember::beat)).await;
    bees[0].look("queen").await;
    let replies = join_all(bees.iter().map(|bee| bee.hive.call(bee.claim("queen", Epoch(0))))).await;
    let won = replies.iter().filter(|reply| matches!(reply, Ok(Reply::Taken(_)))).count();
    let raced = replies.iter().filter(|reply| **reply == Ok(Reply::Refused(Refusal::Raced))).count();
    assert_eq!((won, raced), (1, 5), "{replies:?}");
    assert!(field.number("select count(*) from seen").await >= 7);
    let otherwise = "select count(*) from seen where isolation <> 'read committed' or commits <> 'on'";
    assert_eq!(field.number(otherwise).await, 0);
}

/// HV-10: when the caller stops waiting, the connection is dropped, and the next heartbeat succeeds on a new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_10_a_connection_that_missed_its_deadline_is_dropped() {
    let Some(server) = honeyflow_services::throwaway_postgres() else { return };
    let hive: Arc<dyn HiveStore> = Arc::new(PostgresHive::open(&Options::new(server.url())).unwrap());
    let bee = TestMember::join(hive, "a", TTL_MS).await;
    bee.beat().await;
    let mut watcher = PgConnection::connect(server.url()).await.unwrap();
    let newest = "select (extract(epoch from max(backend_start)) * 1000000)::bigint from pg_stat_activity
        where application_name like 'honeyflow hive%'";
    let before: i64 = sqlx_core::query_scalar::query_scalar(newest).fetch_one(&mut watcher).await.unwrap();
    server.pause();
    let beat = Request::Beat { node: bee.id, read_only: false, state: eligible_state() };
    let late = tokio::time::timeout(Duration::from_millis(200), bee.hive.call(beat.clone())).await;
    assert!(late.is_err(), "the server is paused");
    server.resume();
    let status = bee.beat().await;
    assert!(status.member && status.renewed);
    let after: i64 = sqlx_core::query_scalar::query_scalar(newest).fetch_one(&mut watcher).await.unwrap();
    assert!(after > before, "on a new connection");
}

/// HV-22: all nodes expire during an outage of the store, and none is removed: afterwards each keeps its id and its
/// shards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn store_outage_buries_everyone() {
    let Some(mut server) = honeyflow_services::throwaway_postgres() else { return };
    let url = database(server.url(), "outage").await;
    let options = Options::new(url);
    let mut nodes = Vec::new();
    for name in ["a", "b", "c"] {
        // The times are long, so that a node on a busy machine does not look dead.
        let (heartbeat, time_to_live) = (Duration::from_secs(1), Duration::from_secs(4));
        let times =
            honeyflow_hive::Options { heartbeat, time_to_live, ..honeyflow_hive::Options::named(name).source("shop") };
        nodes.push(Node::join(&options, times).await);
    }
    let all: Vec<&Node> = nodes.iter().collect();
    until("shards are spread", || is_spread(&all)).await;
    let before: Vec<_> = nodes.iter().map(|node| (node.id(), node.held().into_keys().collect::<Vec<_>>())).collect();
    server.kill();
    until("no node has trust", || nodes.iter().all(|node| node.held().is_empty())).await;
    // After twice the time to live, all rows have expired for every node that reads them.
    tokio::time::sleep(Duration::from_secs(8)).await;
    server.start().unwrap();
    until("all have their shards again", || is_spread(&all)).await;
    let after: Vec<_> = nodes.iter().map(|node| (node.id(), node.held().into_keys().collect::<Vec<_>>())).collect();
    assert_eq!(before, after);
    let hive = PostgresHive::open(&options).unwrap();
    let Reply::History(events) = call(&hive, Request::History { lease: None, until_ms: None, max: 1000 }).await else {
        panic!("no history")
    };
    assert!(events.iter().all(|event| event.kind != EventKind::Buried), "{events:?}");
}
