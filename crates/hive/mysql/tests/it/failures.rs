//! Servers that stop, lose answers, become read-only or are replaced by another one, and nodes that stall.

use std::{sync::Arc, time::Duration};

use honeyflow_event::{Epoch, Name};
use honeyflow_hive::{
    HiveStore, NodeId, Reply, Request,
    contract::{Claim, EventKind, Mint, Refusal},
};
use honeyflow_hive_mysql::{MysqlHive, Options};
use honeyflow_runtime::{Class, Failure};
use sqlx_core::{connection::Connection, executor::Executor, query_scalar::query_scalar};
use sqlx_mysql::MySqlConnection;

use crate::{TestDatabase, beat, join, node, proxy::Proxy, run};

pub const LEASE: &str = "shard/shop/0";

pub fn open(url: &str) -> Arc<MysqlHive> {
    Arc::new(MysqlHive::open(&Options { timeout: Duration::from_secs(30), ..Options::new(url) }).unwrap())
}

/// Joins an eligible node and reads the lease. Returns the node and the request that takes the lease.
pub async fn candidate(hive: &MysqlHive) -> (NodeId, Request) {
    let me = node();
    hive.call(join(me)).await.unwrap();
    let Reply::Beat(status) = hive.call(beat(me, false)).await.unwrap() else { panic!("no beat") };
    let Reply::Leases { leases, .. } = hive.call(Request::Look { leases: vec![LEASE.into()] }).await.unwrap() else {
        panic!("no leases")
    };
    let mint = Mint { lineage: status.head.server.into(), watched: false };
    let claims = vec![Claim::new(LEASE.into(), leases[0].epoch)];
    (me, Request::Take { node: me, claims, cause: "free".into(), mint })
}

pub async fn holder(hive: &MysqlHive) -> (Epoch, Option<NodeId>) {
    match hive.call(Request::Look { leases: vec![LEASE.into()] }).await.unwrap() {
        Reply::Leases { leases, .. } => (leases[0].epoch, leases[0].holder),
        other => panic!("{other:?}"),
    }
}

fn code(result: Result<Reply, Failure>) -> (Class, String) {
    let failure = result.unwrap_err();
    (failure.class, failure.code.into_owned())
}

/// HV-67: a connection that takes longer to open than its caller waits serves the next request.
#[tokio::test]
async fn hv_67_a_connection_outlives_the_request_it_was_made_for() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let hive = open(&Proxy::delayed(&place.url, Duration::from_millis(400)).await);
    for _ in 0..40 {
        if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(150), hive.call(Request::Tally)).await {
            return;
        }
    }
    panic!("every request opened a new connection");
}

/// Waits until a transaction in this database waits for a lock.
pub async fn until_it_waits(place: &TestDatabase) {
    let waits = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'
        and trx_mysql_thread_id in (select id from information_schema.processlist where db = database())";
    // The server refreshes this table only if no query has read it for a tenth of a second.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    for _ in 0..200 {
        let turn = TURN.lock().await;
        tokio::time::sleep(Duration::from_millis(130)).await;
        if place.number(waits).await > 0 {
            return;
        }
        drop(turn);
    }
    panic!("no transaction waits for a lock");
}

/// River #1225: a primary that has become a replica still answers, but nothing is ever written.
#[tokio::test]
async fn stuck_on_read_only_server() {
    let Some(server) = honeyflow_services::throwaway_mariadb() else { return };
    let hive = open(server.url());
    let (me, take) = candidate(&hive).await;
    let mut person = MySqlConnection::connect(server.url()).await.unwrap();
    let connections =
        "select count(*) from information_schema.processlist where id <> connection_id() and db is not null";
    let before: i64 = query_scalar(connections).fetch_one(&mut person).await.unwrap();
    assert!(before > 0);
    run(&mut person, "set global read_only = 1").await;
    for request in [beat(me, false), beat(me, true), take.clone(), Request::View] {
        let failure = hive.call(request).await.unwrap_err();
        assert_eq!((failure.class, &*failure.code), (Class::Retry, "read-only"), "{failure}");
        assert!(failure.message.contains("primary"), "{failure}");
    }
    // The hive closes all connections that lead to the read-only server.
    let mut left = before;
    for _ in 0..6000 {
        left = query_scalar(connections).fetch_one(&mut person).await.unwrap();
        if left == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(left, 0);
    run(&mut person, "set global read_only = 0").await;
    assert!(matches!(hive.call(beat(me, false)).await, Ok(Reply::Beat(status)) if status.renewed));
    assert!(matches!(hive.call(take).await, Ok(Reply::Taken(_))));
}

/// HV-37: the server disconnects a node that stalls in the middle of a change, and releases its locks.
#[tokio::test]
async fn hv_37_a_stalled_node_does_not_stop_the_others() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let proxy = Proxy::in_front_of(&place.url).await;
    let (paused, other) = (open(&proxy.url), place.hive());
    let (slow, its_take) = candidate(&paused).await;
    let (me, take) = candidate(&other).await;
    let waiting = tokio::spawn(paused.call(its_take));
    proxy.stop("update hive_lease").await;
    let taken = other.call(take).await;
    assert!(matches!(taken, Ok(Reply::Taken(_))), "{taken:?}");
    assert_eq!(holder(&other).await.1, Some(me));
    waiting.abort();
    assert!(matches!(paused.call(beat(slow, false)).await, Ok(Reply::Beat(status)) if status.renewed));
}

/// HV-36: the answer to a take is lost. The backend does not repeat the take, and a read of the lease shows the result.
#[tokio::test]
async fn hv_36_a_lost_answer_is_no_reason_to_take_again() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let proxy = Proxy::in_front_of(&place.url).await;
    let hive = open(&proxy.url);
    let (me, take) = candidate(&hive).await;
    let (answer, ()) = tokio::join!(hive.call(take), proxy.lose("update hive_lease"));
    assert_eq!(code(answer), (Class::Retry, "no-connection".to_owned()));
    let (epoch, held_by) = holder(&hive).await;
    assert!(held_by == Some(me) && epoch > Epoch(0));
    // A heartbeat is one message, and it is not sent twice either.
    let (answer, ()) = tokio::join!(hive.call(beat(me, false)), proxy.lose("update hive_node"));
    assert_eq!(code(answer), (Class::Retry, "no-connection".to_owned()));
    assert_eq!(place.number("select beat from hive_node").await, 2);
    assert_eq!(place.number("select count(*) from hive_event where kind = 'taken'").await, 1);
}

/// HV-10: a caller that stops waiting leaves nothing behind for which the next request has to wait.
#[tokio::test]
async fn hv_10_a_missed_deadline_costs_the_connection_and_nothing_else() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let proxy = Proxy::in_front_of(&place.url).await;
    let hive = open(&proxy.url);
    let (me, _) = candidate(&hive).await;
    for _ in 0..3 {
        let late = tokio::time::timeout(Duration::from_millis(300), hive.call(beat(me, false)));
        let (late, ()) = tokio::join!(late, proxy.stop("update hive_node"));
        assert!(late.is_err(), "{late:?}");
        let next = tokio::time::timeout(Duration::from_secs(10), hive.call(beat(me, false))).await;
        assert!(matches!(&next, Ok(Ok(Reply::Beat(status))) if status.renewed), "{next:?}");
    }
}

/// HV-22: the server restarts under open connections; nothing is lost, and the hive reconnects by itself.
#[tokio::test]
async fn hv_22_a_restarted_server_is_found_again() {
    let Some(mut server) = honeyflow_services::throwaway_mariadb() else { return };
    let hive = open(server.url());
    let (me, take) = candidate(&hive).await;
    assert!(matches!(hive.call(take).await, Ok(Reply::Taken(_))));
    server.kill();
    assert_eq!(code(hive.call(Request::View).await), (Class::Retry, "no-connection".to_owned()));
    server.start().unwrap();
    // Idle connections are broken: a request that cannot have been executed is repeated at once on a new one.
    assert!(matches!(hive.call(beat(me, true)).await, Ok(Reply::Beat(status)) if status.member));
    assert_eq!(holder(&hive).await.1, Some(me));
}

/// HV-37, HV-10: a take-over waits for the holder's transactions, and no heartbeat waits for the take-over.
#[tokio::test]
async fn hv_37_a_take_waits_for_a_fenced_transaction_and_beats_go_on() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let hive = place.hive();
    let (me, take) = candidate(&hive).await;
    let mut leader = place.connect().await;
    run(&mut leader, "start transaction").await;
    run(&mut leader, &format!("select epoch from hive_lease where name = '{LEASE}' lock in share mode")).await;
    let mut waiting = tokio::spawn(hive.call(take));
    until_it_waits(&place).await;
    for _ in 0..3 {
        assert!(matches!(hive.call(beat(me, false)).await, Ok(Reply::Beat(status)) if status.renewed));
    }
    assert!(tokio::time::timeout(Duration::ZERO, &mut waiting).await.is_err(), "the leader is not done");
    run(&mut leader, "commit").await;
    assert!(matches!(waiting.await.unwrap(), Ok(Reply::Taken(_))));
}

/// HV-37: a take does not wait forever, and its error says clearly that nothing was done.
#[tokio::test]
async fn hv_37_a_row_that_stays_locked_is_a_clear_error() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let hive = place.hive();
    let (me, take) = candidate(&hive).await;
    let mut leader = place.connect().await;
    run(&mut leader, "start transaction").await;
    run(&mut leader, &format!("select epoch from hive_lease where name = '{LEASE}' lock in share mode")).await;
    let failure = hive.call(take.clone()).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "database-busy"), "{failure}");
    assert!(failure.message.contains("nothing was done"), "{failure}");
    run(&mut leader, "commit").await;
    assert_eq!(holder(&hive).await, (Epoch(0), None));
    hive.call(beat(me, false)).await.unwrap();
    assert!(matches!(hive.call(take).await, Ok(Reply::Taken(_))), "the connection is as good as before");
}

/// HV-38: the server chooses our transaction as the deadlock victim; it is retried, and happens once.
#[tokio::test]
async fn hv_38_a_deadlock_is_tried_again() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let hive = place.hive();
    let (me, take) = candidate(&hive).await;
    let mut other = place.connect().await;
    run(&mut other, "create table if not exists heavy(id int primary key) engine = InnoDB").await;
    run(&mut other, "start transaction").await;
    // The server prefers victims that have changed fewer rows.
    let rows = (0..500).map(|n| format!("({n})")).collect::<Vec<_>>().join(", ");
    run(&mut other, &format!("insert into heavy values {rows}")).await;
    run(&mut other, "select version from hive_view for update").await;
    let waiting = tokio::spawn(hive.call(take));
    until_it_waits(&place).await;
    let both = other.execute("select epoch from hive_lease for update").await;
    both.expect("the other one was chosen");
    run(&mut other, "rollback").await;
    assert!(matches!(waiting.await.unwrap(), Ok(Reply::Taken(_))));
    assert_eq!(holder(&hive).await.1, Some(me));
    assert_eq!(place.number("select count(*) from hive_event where kind = 'taken'").await, 1);
    run(&mut other, "drop table heavy").await;
}

/// HV-23, HV-51: only the server that the node knows and the hive has recorded may mint.
#[tokio::test]
async fn hv_23_a_server_that_has_become_another_one_mints_nothing() {
    let Some(server) = honeyflow_services::throwaway_mariadb() else { return };
    let hive = open(server.url());
    let (me, take) = candidate(&hive).await;
    let mut person = MySqlConnection::connect(server.url()).await.unwrap();
    run(&mut person, "set global server_id = 4711").await;
    assert_eq!(hive.call(take).await, Ok(Reply::Refused(Refusal::Lineage)));
    let Ok(Reply::Beat(status)) = hive.call(beat(me, false)).await else { panic!("no beat") };
    let (was, found) = (status.head.lineage.unwrap(), status.head.server);
    assert!(found.ends_with(":4711") && was != found, "{was} {found}");
    let recorded = Request::NewLineage { was: Some(was.as_str().into()), found: found.as_str().into() };
    assert_eq!(hive.call(recorded.clone()).await, Ok(Reply::Done));
    assert_eq!(hive.call(recorded).await, Ok(Reply::Refused(Refusal::Raced)));
    let mint = Mint { lineage: Name::from(found), watched: false };
    let again = Request::Take { node: me, claims: vec![Claim::new(LEASE.into(), Epoch(0))], cause: "x".into(), mint };
    let early = hive.call(again).await;
    assert!(matches!(early, Ok(Reply::Refused(Refusal::Early { .. }))), "{early:?}");
    let Ok(Reply::History(events)) = hive.call(Request::History { lease: None, until_ms: None, max: 1 }).await else {
        panic!("no history")
    };
    assert_eq!(events[0].kind, EventKind::Lineage);
}
