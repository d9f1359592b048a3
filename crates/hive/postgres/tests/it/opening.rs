//! Opening, the first join, and the errors when something is missing.

use futures_util::future::join_all;
use honeyflow_conformance::hive::{
    TTL_MS, TestMember,
    test_member::{call, fresh_id, join, view},
};
use honeyflow_hive::{HiveStore, Reply, Request};
use honeyflow_hive_postgres::{Options, PostgresHive, grants, schema};
use honeyflow_runtime::Class;
use honeyflow_store::{Store as _, admin::Admin};

use crate::TestDatabase;

const TABLES: &str = "select count(*) from pg_class where relnamespace = 'public'::regnamespace and relkind = 'r'";

async fn failure_of(url: &str) -> honeyflow_runtime::Failure {
    let hive = PostgresHive::open(&Options::new(url)).unwrap();
    hive.call(join(fresh_id(), "a", TTL_MS)).await.unwrap_err()
}

#[tokio::test]
async fn hv_5_opening_makes_nothing_and_the_first_join_makes_the_tables() {
    let Some(field) = TestDatabase::bare().await else { return };
    let hive = field.open();
    let seen = view(&*hive).await;
    assert!(seen.head.hive_ms > 0 && seen.head.origin.is_none() && !seen.head.server.is_empty(), "{seen:?}");
    for request in [Request::Tally, Request::Mend, Request::Leave { node: fresh_id() }] {
        call(&*hive, request).await;
    }
    assert_eq!(field.number(TABLES).await, 0);
    let bee = TestMember::join(hive, "first", TTL_MS).await;
    assert_eq!(field.number(TABLES).await, i64::try_from(schema::tables().count()).unwrap());
    assert_eq!(bee.view().await.head.wait_ms(), 0, "a new hive has nothing to wait for");
    let unlogged = "select count(*) from pg_class where relname like 'hive%' and relpersistence <> 'p'";
    assert_eq!(field.number(unlogged).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_5_several_nodes_make_the_tables_at_once() {
    let Some(field) = TestDatabase::bare().await else { return };
    let hives: Vec<_> = (0..8).map(|_| field.open()).collect();
    let bees = join_all(hives.into_iter().map(|hive| TestMember::join(hive, "one of many", TTL_MS))).await;
    assert_eq!(bees[0].view().await.nodes.len(), 8);
    assert_eq!(bees[0].version().await, 8);
}

#[tokio::test]
async fn printed_ddl_and_grants_are_enough_for_a_role() {
    let Some(field) = TestDatabase::bare().await else { return };
    let role = format!("bee_{}", fresh_id().0.simple());
    field.run(&schema::ddl()).await;
    field.run(&format!("create role {role} login password 'x'; {}", grants::for_honeyflow(&role))).await;
    let (_, server) = field.url.split_once('@').unwrap();
    let field = TestDatabase::at(&field.url, &format!("postgres://{role}:x@{server}"));
    let bee = TestMember::join(field.open(), "granted", TTL_MS).await;
    bee.beat().await;
    let epoch = bee.take("queen").await;
    assert!(bee.release("queen", epoch).await);
    let term = bee.term("queen").await;
    for request in [
        Request::Count { fence: term.fence(), every_ms: 0, remove: Vec::new() },
        Request::Sweep { fence: term.fence(), event_ms: 0, events_max: 1, idle_ms: 0, rows_max: 10 },
        Request::Mend,
        Request::Leave { node: bee.id },
    ] {
        let reply = bee.call(request).await;
        assert!(!matches!(reply, Reply::Stale(_)), "{reply:?}");
    }
}

#[tokio::test]
async fn connection_errors_say_what_to_do() {
    let Some(field) = TestDatabase::bare().await else { return };
    let (before, server) = field.url.split_once('@').unwrap();
    let (address, _) = server.split_once('/').unwrap();
    let user = before.rsplit_once(':').unwrap().0;
    for (url, class, expected, told) in [
        (format!("{user}:wrong@{server}"), Class::Fatal, "access-denied", "password"),
        (format!("{before}@{address}/nowhere"), Class::Fatal, "missing-database", "create it"),
        ("postgres://absent@127.0.0.1:1/shop".to_owned(), Class::Retry, "no-connection", "is the server up"),
        (format!("{}?sslmode=require", field.url), Class::Retry, "no-tls", "TLS"),
    ] {
        let failure = failure_of(&url).await;
        assert_eq!((failure.class, &*failure.code), (class, expected), "{failure}");
        assert!(failure.message.contains(told), "{failure}");
        assert!(!failure.message.contains("wrong"), "a password is never shown: {failure}");
    }
    for url in ["postgres://shop:secret@[", "mysql://shop:secret@db/shop", "shop"] {
        let failure = PostgresHive::open(&Options::new(url)).err().unwrap();
        assert_eq!((failure.class, &*failure.code), (Class::Fatal, "bad-url"), "{failure}");
        assert!(!failure.message.contains("secret") && failure.message.contains("postgres://user"), "{failure}");
    }
}

#[tokio::test]
async fn a_missing_privilege_says_what_to_grant() {
    let Some(field) = TestDatabase::bare().await else { return };
    let role = format!("bee_{}", fresh_id().0.simple());
    let database = field.database();
    field
        .run(&format!(
            "create role {role} login password 'x'; revoke create on schema public from public;
             grant connect on database {database} to {role}"
        ))
        .await;
    let (_, server) = field.url.split_once('@').unwrap();
    let url = format!("postgres://{role}:x@{server}");
    let failure = failure_of(&url).await;
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "no-privilege"), "{failure}");
    assert!(failure.message.contains("grant create on schema"), "{failure}");
    field.run(&schema::ddl()).await;
    let failure = failure_of(&url).await;
    assert_eq!(failure.code, "no-privilege", "{failure}");
    // Some administrators revoke this from all roles. The hive needs it, and the error says so.
    field.run(&grants::for_honeyflow(&role)).await;
    field.run(&format!("revoke execute on function pg_control_system() from public, {role}")).await;
    let failure = failure_of(&url).await;
    assert_eq!(failure.code, "no-privilege", "{failure}");
    assert!(failure.message.contains("grant execute on function pg_control_system()"), "{failure}");
    field.run(&grants::for_honeyflow(&role)).await;
    let hive = PostgresHive::open(&Options::new(url)).unwrap();
    assert!(matches!(call(&hive, join(fresh_id(), "a", TTL_MS)).await, Reply::Joined(_)));
}

/// A server may start later; until then every request fails with `no-connection`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hv_22_a_server_that_is_down_is_waited_for() {
    let Some(mut server) = honeyflow_services::throwaway_postgres() else { return };
    server.kill();
    let hive = honeyflow_hive_postgres::open(server.url()).await.unwrap();
    let failure = hive.call(Request::View).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Retry, "no-connection"), "{failure}");
    server.start().unwrap();
    let bee = TestMember::join(hive, "patient", TTL_MS).await;
    assert!(bee.beat().await.member);
}

/// The tables of hive and store can be in one database, and can be created in any order.
#[tokio::test]
async fn hv_43_a_hive_lives_with_the_data_it_protects() {
    let Some(field) = TestDatabase::bare().await else { return };
    let bee = TestMember::join(field.open(), "a", TTL_MS).await;
    let options = honeyflow_store_postgres::Options::new(&field.url, "shop").unwrap();
    let store = honeyflow_store_postgres::PostgresStore::open(options).await.unwrap();
    store.migrate().await.unwrap();
    assert!(store.call(honeyflow_store::Request::Admin(Admin::Paused)).await.is_ok());
    assert!(bee.beat().await.member);
}

#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let Some(field) = TestDatabase::bare().await else { return };
    field.run(&schema::ddl()).await;
    field.run("update hive_meta set value = '99'").await;
    let hive = field.open();
    let failure = hive.call(join(fresh_id(), "a", TTL_MS)).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "schema-too-new"), "{failure}");
    assert_eq!(field.number("select count(*) from hive_node").await, 0, "nothing was done");
    field.run("update hive_meta set value = '1'").await;
    TestMember::join(hive, "a", TTL_MS).await;
}

/// A node that a policy hides would look dead, and its leases would look free.
#[tokio::test]
async fn rows_that_a_policy_hides_are_an_error() {
    let Some(field) = TestDatabase::bare().await else { return };
    let role = format!("bee_{}", fresh_id().0.simple());
    field.run(&schema::ddl()).await;
    field.run(&format!("create role {role} login password 'x'; {}", grants::for_honeyflow(&role))).await;
    field.run("alter table hive_node enable row level security").await;
    let (_, server) = field.url.split_once('@').unwrap();
    let hive = PostgresHive::open(&Options::new(format!("postgres://{role}:x@{server}"))).unwrap();
    for request in [join(fresh_id(), "a", TTL_MS), Request::View, Request::Look { leases: vec!["queen".into()] }] {
        let failure = hive.call(request).await.unwrap_err();
        assert_eq!((failure.class, &*failure.code), (Class::Fatal, "no-privilege"), "{failure}");
        assert!(failure.message.contains("bypassrls"), "{failure}");
    }
}
