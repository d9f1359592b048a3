//! Servers that stop, lie or have become another one, and nodes that stand still.

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

use crate::{Place, beat, gate::Gate, join, node, run};

pub const LEASE: &str = "shard/shop/0";

pub fn open(url: &str) -> Arc<MysqlHive> {
    Arc::new(MysqlHive::open(&Options { timeout: Duration::from_secs(30), ..Options::new(url) }).unwrap())
}

/// Joined, eligible, and with the lease looked at: what it needs to take.
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

/// HV-67: a connection that takes longer to make than anybody waits is there for whoever comes next.
#[tokio::test]
async fn hv_67_a_connection_outlives_the_request_it_was_made_for() {
    let Some(place) = Place::fresh().await else { return };
    let hive = open(&Gate::far_from(&place.url, Duration::from_millis(400)).await);
    for _ in 0..40 {
        if let Ok(Ok(_)) = tokio::time::timeout(Duration::from_millis(150), hive.call(Request::Tally)).await {
            return;
        }
    }
    panic!("every request began anew");
}

/// Somebody in this database has come as far as a lock.
pub async fn until_it_waits(place: &Place) {
    let waits = "select count(*) from information_schema.innodb_trx where trx_state = 'LOCK WAIT'
        and trx_mysql_thread_id in (select id from information_schema.processlist where db = database())";
    // The server shows what it has noted before, unless nobody has looked for a tenth of a second.
    static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    for _ in 0..200 {
        let turn = TURN.lock().await;
        tokio::time::sleep(Duration::from_millis(130)).await;
        if place.number(waits).await > 0 {
            return;
        }
        drop(turn);
    }
    panic!("nobody waits");
}

/// River #1225: a primary that has become a replica answers politely, and nothing is ever written.
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
    // None of the connections on which that was found out is asked again.
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

/// HV-37: whoever stands still in the middle of a change is cut off, and its locks are free.
#[tokio::test]
async fn hv_37_a_node_that_stands_still_does_not_stop_the_others() {
    let Some(place) = Place::fresh().await else { return };
    let gate = Gate::before(&place.url).await;
    let (paused, other) = (open(&gate.url), place.hive());
    let (slow, its_take) = candidate(&paused).await;
    let (me, take) = candidate(&other).await;
    let waiting = tokio::spawn(paused.call(its_take));
    gate.stop("update hive_lease").await;
    let taken = other.call(take).await;
    assert!(matches!(taken, Ok(Reply::Taken(_))), "{taken:?}");
    assert_eq!(holder(&other).await.1, Some(me));
    waiting.abort();
    assert!(matches!(paused.call(beat(slow, false)).await, Ok(Reply::Beat(status)) if status.renewed));
}

/// HV-36: the answer to a take is lost. It is not tried again, and a look finds what has become of it.
#[tokio::test]
async fn hv_36_a_lost_answer_is_no_reason_to_take_again() {
    let Some(place) = Place::fresh().await else { return };
    let gate = Gate::before(&place.url).await;
    let hive = open(&gate.url);
    let (me, take) = candidate(&hive).await;
    let (answer, ()) = tokio::join!(hive.call(take), gate.lose("update hive_lease"));
    assert_eq!(code(answer), (Class::Retry, "no-connection".to_owned()));
    let (epoch, held_by) = holder(&hive).await;
    assert!(held_by == Some(me) && epoch > Epoch(0));
    // A beat is one message, and not sent twice either.
    let (answer, ()) = tokio::join!(hive.call(beat(me, false)), gate.lose("update hive_node"));
    assert_eq!(code(answer), (Class::Retry, "no-connection".to_owned()));
    assert_eq!(place.number("select beat from hive_node").await, 2);
    assert_eq!(place.number("select count(*) from hive_event where kind = 'taken'").await, 1);
}

/// HV-10: whoever does not wait any longer leaves nothing behind that the next one has to wait for.
#[tokio::test]
async fn hv_10_a_missed_deadline_costs_the_connection_and_nothing_else() {
    let Some(place) = Place::fresh().await else { return };
    let gate = Gate::before(&place.url).await;
    let hive = open(&gate.url);
    let (me, _) = candidate(&hive).await;
    for _ in 0..3 {
        let late = tokio::time::timeout(Duration::from_millis(300), hive.call(beat(me, false)));
        let (late, ()) = tokio::join!(late, gate.stop("update hive_node"));
        assert!(late.is_err(), "{late:?}");
        let next = tokio::time::timeout(Duration::from_secs(10), hive.call(beat(me, false))).await;
        assert!(matches!(&next, Ok(Ok(Reply::Beat(status))) if status.renewed), "{next:?}");
    }
}

/// HV-22: the server is restarted under open connections; nothing is lost and nobody has to be told.
#[tokio::test]
async fn hv_22_a_restarted_server_is_found_again() {
    let Some(mut server) = honeyflow_services::throwaway_mariadb() else { return };
    let hive = open(server.url());
    let (me, take) = candidate(&hive).await;
    assert!(matches!(hive.call(take).await, Ok(Reply::Taken(_))));
    server.kill();
    assert_eq!(code(hive.call(Request::View).await), (Class::Retry, "no-connection".to_owned()));
    server.start().unwrap();
    // What was idle is broken: what cannot have been done is asked anew at once.
    assert!(matches!(hive.call(beat(me, true)).await, Ok(Reply::Beat(status)) if status.member));
    assert_eq!(holder(&hive).await.1, Some(me));
}

/// HV-37, HV-10: a take-over waits for the leader's transactions, and no beat waits for the take-over.
#[tokio::test]
async fn hv_37_a_take_waits_for_a_fenced_transaction_and_beats_go_on() {
    let Some(place) = Place::fresh().await else { return };
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

/// HV-37: it does not wait for ever, and says clearly that nothing was done.
#[tokio::test]
async fn hv_37_a_row_that_stays_locked_is_a_clear_no() {
    let Some(place) = Place::fresh().await else { return };
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

/// HV-38: the server chooses us as the victim and says so; then it is tried again, and happens once.
#[tokio::test]
async fn hv_38_a_deadlock_is_tried_again() {
    let Some(place) = Place::fresh().await else { return };
    let hive = place.hive();
    let (me, take) = candidate(&hive).await;
    let mut other = place.connect().await;
    run(&mut other, "create table if not exists heavy(id int primary key) engine = InnoDB").await;
    run(&mut other, "start transaction").await;
    // The more a transaction has changed, the less it is chosen.
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

/// HV-23, HV-51: the server that mints must be the one that the node knows and the hive has recorded.
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
