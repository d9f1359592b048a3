//! Defects that other systems had on SQL servers. Those that every backend could have are in the conformance suite.

use std::time::{Duration, Instant};

use honeyflow_hive::{
    HiveStore, NodeId, Reply, Request,
    contract::{
        HeldLease, Refusal,
        limit::{self, Draw, ExactTake, Key, Rule},
    },
};
use honeyflow_hive_mysql::{MysqlHive, Options};
use honeyflow_runtime::Class;
use honeyflow_services::Server;
use sqlx_core::{connection::Connection, executor::Executor, query_scalar::query_scalar, sql_str::AssertSqlSafe};
use sqlx_mysql::MySqlConnection;

use crate::{
    TestDatabase, beat,
    failures::{LEASE, candidate, holder, open, until_it_waits},
    join, node,
    proxy::Proxy,
    run,
};

async fn renewed(hive: &MysqlHive, me: NodeId) -> bool {
    matches!(hive.call(beat(me, false)).await, Ok(Reply::Beat(status)) if status.renewed)
}

fn draw(key: u128) -> Request {
    Request::Limit(limit::Request::Draw(vec![Draw {
        limit: "api".into(),
        key: Key(key),
        want: 1,
        need: 1,
        reserve: None,
    }]))
}

async fn define(hive: &MysqlHive) {
    let rule = Rule::rate(1, 1_000_000_000, 100);
    let set = limit::Request::Set { limit: "api".into(), was: None, rule, after_ms: 0 };
    assert!(matches!(hive.call(Request::Limit(set)).await, Ok(Reply::Limit(limit::Reply::Set { .. }))));
}

/// While a take waits for the lease's row, that row gets a holder that has just joined. The holder had no row yet when
/// the take began.
#[tokio::test]
async fn take_robs_live_holder_by_old_snapshot() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let hive = place.hive();
    let (_, take) = candidate(&hive).await;
    let mut other = place.connect().await;
    run(&mut other, "start transaction").await;
    let winner = node();
    // The epoch is unchanged, so the take must notice the new holder itself.
    run(&mut other, &format!("update hive_lease set holder = '{winner}' where name = '{LEASE}'")).await;
    run(
        &mut other,
        &format!(
            "insert into hive_node(hive, id, name, beat, beat_ms, ttl_ms, expires_ms, warm, meta)
             select hive, '{winner}', name, 0, beat_ms, ttl_ms, expires_ms, warm, meta from hive_node limit 1"
        ),
    )
    .await;
    let waiting = tokio::spawn(hive.call(take));
    until_it_waits(&place).await;
    run(&mut other, "commit").await;
    assert_eq!(waiting.await.unwrap(), Ok(Reply::Refused(Refusal::Raced)));
    assert_eq!(holder(&hive).await.1, Some(winner));
}

/// River #695, #1077: the application has taken every connection that the server allows.
#[tokio::test]
async fn pool_starvation_loses_lease() {
    let Some(server) = honeyflow_services::throwaway(Server::Mariadb, &["--max-connections=12"]) else { return };
    let hive = open(server.url());
    let (me, take) = candidate(&hive).await;
    assert!(matches!(hive.call(take).await, Ok(Reply::Taken(_))));
    let mut application = Vec::new();
    while let Ok(connection) = MySqlConnection::connect(server.url()).await {
        application.push(connection);
    }
    assert!(application.len() > 5);
    for _ in 0..3 {
        assert!(renewed(&hive, me).await, "the heartbeat has its own connection");
    }
    // A node that joins only now gets an error that says what is wrong.
    let failure = open(server.url()).call(join(node())).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "too-many-connections"), "{failure}");
    assert!(failure.message.contains("max_connections"), "{failure}");
    assert_eq!(holder(&hive).await.1, Some(me));
}

/// All other requests of this node are blocked, and its heartbeats continue.
#[tokio::test]
async fn slow_batch_starves_heartbeat() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let hive = place.hive();
    let (me, take) = candidate(&hive).await;
    define(&hive).await;
    hive.call(draw(1)).await.unwrap();
    let mut batch = place.connect().await;
    run(&mut batch, "start transaction").await;
    run(&mut batch, "select * from hive_limit for update").await;
    run(&mut batch, "select * from hive_lease for update").await;
    let begun = Instant::now();
    let mut waiting: Vec<_> = (0..20).map(|_| tokio::spawn(hive.call(draw(1)))).collect();
    waiting.push(tokio::spawn(hive.call(take)));
    until_it_waits(&place).await;
    for _ in 0..3 {
        assert!(renewed(&hive, me).await);
    }
    // Each waits twice for a second; a slow machine may have taken longer than that to reach this line.
    let moved = waiting.iter().any(tokio::task::JoinHandle::is_finished);
    assert!(!moved || begun.elapsed() > Duration::from_millis(1_900), "no blocked request finished early");
    run(&mut batch, "rollback").await;
    let mut drawn = 1;
    for waiting in waiting {
        match waiting.await.unwrap() {
            Ok(reply) => drawn += i64::from(matches!(reply, Reply::Limit(_))),
            Err(failure) => assert_eq!((moved, &*failure.code), (true, "database-busy"), "{failure}"),
        }
    }
    assert!(moved || drawn == 21, "{drawn}");
    assert_eq!(place.number("select issued_u div 1000000 from hive_limit where length(limit_key) = 32").await, drawn);
}

/// Gubernator #208: the remaining permits were read from a replica, which is out of date.
#[tokio::test]
async fn replica_answers_under_limit() {
    let Some(server) = honeyflow_services::throwaway_mariadb() else { return };
    let hive = open(server.url());
    candidate(&hive).await;
    define(&hive).await;
    let take = |peek| {
        let take = ExactTake { limit: "api".into(), key: Key(1), cost: 1, window: None };
        Request::Limit(limit::Request::Exact { takes: vec![take], peek })
    };
    let mut person = MySqlConnection::connect(server.url()).await.unwrap();
    run(&mut person, "set global read_only = 1").await;
    for request in [draw(1), take(false), take(true), Request::Limit(limit::Request::Limits)] {
        assert_eq!(hive.call(request).await.unwrap_err().code, "read-only");
    }
    run(&mut person, "set global read_only = 0").await;
    assert!(matches!(hive.call(take(false)).await, Ok(Reply::Limit(limit::Reply::Admitted { .. }))));
}

/// A pooler loses everything that lives longer than a transaction. So the hive uses no session lock, no session
/// variable and no prepared statement; every transaction brings its settings and resets them.
#[tokio::test]
async fn advisory_lock_behind_pooler() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let proxy = Proxy::in_front_of(&place.url).await;
    let hive = open(&proxy.url);
    let (me, take) = candidate(&hive).await;
    define(&hive).await;
    hive.call(draw(1)).await.unwrap();
    let Ok(Reply::Taken(taken)) = hive.call(take).await else { panic!("not taken") };
    let held = vec![HeldLease { lease: LEASE.into(), epoch: taken[0].epoch }];
    hive.call(Request::Release { node: me, held, cause: "x".into() }).await.unwrap();
    hive.call(Request::View).await.unwrap();
    hive.call(Request::Leave { node: me }).await.unwrap();
    let messages = proxy.take_messages();
    let said = messages.join("\n").to_ascii_lowercase();
    for word in ["get_lock", "lock tables", "temporary", "prepare", "execute", ":=", "last_insert_id", "found_rows("] {
        assert!(!said.contains(word), "{word} in\n{said}");
    }
    let mut begun = 0;
    for message in messages.iter().filter(|message| message.contains("start transaction")) {
        begun += 1;
        let (head, _) = message.split_once("start transaction").unwrap();
        assert!(head.contains("set autocommit = 1") && head.contains("set transaction isolation level"), "{message}");
    }
    assert!(begun > 10, "{begun}");
    for message in messages.iter().filter(|message| message.contains("\ncommit") && message.contains("update ")) {
        assert!(message.contains("wait_timeout = default"), "{message}");
    }
}

/// HV-11: a long transaction of the application keeps the server from purging old row versions of heartbeats.
#[tokio::test]
async fn hv_11_a_beat_reads_no_more_while_nothing_can_be_cleared_up() {
    let Some(server) = honeyflow_services::throwaway_mariadb() else { return };
    let place = TestDatabase::bare(server.url()).await;
    let hive = place.hive();
    let (me, _) = candidate(&hive).await;
    hive.call(join(node())).await.unwrap();
    let pages = "select cast(variable_value as signed) from information_schema.global_status
        where variable_name = 'Innodb_buffer_pool_read_requests'";
    // Take the least of several measurements, because the server also counts reads of its own threads.
    let cost = async || {
        let mut least = i64::MAX;
        for _ in 0..8 {
            let before = place.number(pages).await;
            for _ in 0..20 {
                assert!(renewed(&hive, me).await);
            }
            least = least.min(place.number(pages).await - before);
        }
        least
    };
    let mut report = place.connect().await;
    run(&mut report, "set transaction isolation level repeatable read").await;
    run(&mut report, "start transaction with consistent snapshot").await;
    let mut others = place.connect().await;
    // Writes the row versions that many heartbeats leave behind, from long ago up to now.
    let mut beats = async |count: u32| {
        let renew = |by_ms: i64| format!("update hive_node set expires_ms = expires_ms + {by_ms} where id <> '{me}';");
        let all = format!("{}{}{}", renew(-600_000), renew(1).repeat(count as usize), renew(600_000));
        run(&mut others, &format!("start transaction; {all} commit")).await;
        // From here on the node knows from which expiry time on other nodes are alive.
        assert!(renewed(&hive, me).await && renewed(&hive, me).await);
    };
    beats(2000).await;
    let at_first = cost().await;
    beats(8000).await;
    let later = cost().await;
    println!("{at_first} and {later} pages in 20 beats");
    assert!(later <= at_first * 5 / 4, "{at_first} pages at first, {later} later");
}

/// HV-11: what a heartbeat costs the server, among 30 nodes and among a thousand.
#[tokio::test]
async fn keyspace_scan() {
    let Some(server) = honeyflow_services::throwaway_mariadb() else { return };
    let place = TestDatabase::bare(server.url()).await;
    let hive = MysqlHive::open(&Options::new(&*place.url)).unwrap();
    let (me, _) = candidate(&hive).await;
    let mut others = place.connect().await;
    let mut add = async |count: u32| {
        let rows: Vec<String> = (0..count).map(|_| format!("select '{}' as id", node())).collect();
        let text = format!(
            "insert into hive_node(hive, id, name, beat, beat_ms, ttl_ms, expires_ms, warm, meta)
             select n.hive, o.id, 'other', 0, 2000, 6000, n.expires_ms + 100, '[]', '{{}}'
             from (select * from hive_node where id = '{me}') n join ({}) o",
            rows.join(" union all ")
        );
        others.execute(AssertSqlSafe(text)).await.unwrap();
    };
    let mut person = MySqlConnection::connect(server.url()).await.unwrap();
    let mut cost = async || {
        let sum = "select cast(sum(variable_value) as signed) from information_schema.global_status
            where variable_name like 'Handler_read%'";
        let mut read: [i64; 2] = [0; 2];
        for (n, count) in read.iter_mut().enumerate() {
            if n > 0 {
                for _ in 0..20 {
                    assert!(renewed(&hive, me).await);
                }
            }
            *count = query_scalar(sum).fetch_one(&mut person).await.unwrap();
        }
        read[1] - read[0]
    };
    add(30).await;
    let among_few = cost().await;
    add(1000).await;
    let among_many = cost().await;
    println!("{among_few} and {among_many} rows in 20 beats");
    assert!(among_many <= among_few + 20, "{among_few} among 30 nodes, {among_many} among a thousand");
}
