//! Opening, creating the tables, and servers with unusual settings.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use honeyflow_event::Name;
use honeyflow_hive::{
    HiveStore, Reply, Request,
    contract::{HIVE_TIME_START_MS, limit},
    member,
};
use honeyflow_hive_mysql::{MysqlHive, Options};
use honeyflow_runtime::Class;
use honeyflow_services::Server;

use crate::{TestDatabase, at, beat, join, node, server};

async fn refused(options: Options) -> (Class, String, String) {
    let hive = MysqlHive::open(&Options { timeout: Duration::from_secs(20), ..options }).unwrap();
    let failure = hive.call(join(node())).await.unwrap_err();
    (failure.class, failure.code.into_owned(), failure.message)
}

/// HV-75
#[tokio::test]
async fn opening_contacts_no_server_and_every_error_says_what_to_do() {
    assert_eq!(honeyflow_hive_mysql::open("postgres://h/d").await.err().unwrap().code, "bad-url");
    // A port on which no server listens.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let down = refused(Options::new(format!("mysql://u:p@127.0.0.1:{free}/d"))).await;
    assert_eq!((down.0, &*down.1), (Class::Retry, "no-connection"), "{}", down.2);
    assert!(down.2.contains("is the server up"), "{}", down.2);
    let Some(place) = TestDatabase::fresh().await else { return };
    let missing = refused(Options::new(at(&place.url, "no_such_database"))).await;
    assert_eq!((missing.0, &*missing.1), (Class::Fatal, "missing-database"), "{}", missing.2);
    assert!(missing.2.contains("create it"), "{}", missing.2);
    let (_, server) = place.url.split_once('@').unwrap();
    let denied = refused(Options::new(format!("mysql://honeyflow:wrong-s3cret@{server}"))).await;
    assert_eq!((denied.0, &*denied.1), (Class::Fatal, "access-denied"), "{}", denied.2);
    assert!(denied.2.contains("user and password") && !denied.2.contains("s3cret"), "{}", denied.2);
}

#[tokio::test]
async fn reading_makes_nothing() {
    let Some(server) = server() else { return };
    let place = TestDatabase::bare(&server).await;
    let hive = place.hive();
    let Reply::View(view) = hive.call(Request::View).await.unwrap() else { panic!("no view") };
    assert!(view.nodes.is_empty() && view.head.origin.is_none() && view.head.hive_ms > 0);
    let Reply::Beat(status) = hive.call(beat(node(), true)).await.unwrap() else { panic!("no beat") };
    assert!(!status.member && !status.head.server.is_empty());
    for request in [
        Request::Tally,
        Request::History { lease: None, until_ms: None, max: 1 },
        Request::Events { after: 0, max: 1 },
        Request::Limit(limit::Request::Limits),
        Request::Limit(limit::Request::Ledger { limit: "api".into(), max: 1 }),
    ] {
        hive.call(request).await.unwrap();
    }
    assert!(!place.has_tables().await);
}

/// HV-5: the first node creates the tables, also if several nodes are first at the same time.
#[tokio::test]
async fn hv_5_several_first_nodes_make_one_hive() {
    let Some(server) = server() else { return };
    let place = TestDatabase::bare(&server).await;
    let hives: Vec<_> = (0..6).map(|_| place.hive()).collect();
    for reply in join_all(hives.iter().map(|hive| hive.call(join(node())))).await {
        assert!(matches!(reply, Ok(Reply::Joined(_))), "{reply:?}");
    }
    let Reply::View(view) = hives[0].call(Request::View).await.unwrap() else { panic!("no view") };
    assert_eq!((view.nodes.len(), view.head.version, view.head.lineage_ms), (6, 6, 0));
    assert_eq!(place.number("select count(*) from hive_event").await, 6);
    assert_eq!(place.number("select count(*) from hive_meta where value = '1'").await, 1);
    place.change("drop table hive_share").await;
    hives[0].call(Request::Leave { node: view.nodes[0].id }).await.unwrap();
    assert_eq!(place.number("select count(*) from hive_share").await, 0, "the table was created again");
}

/// HV-5
#[tokio::test]
async fn tables_of_a_newer_version_are_refused() {
    let Some(server) = server() else { return };
    let place = TestDatabase::bare(&server).await;
    place.hive().call(join(node())).await.unwrap();
    place.change("update hive_meta set value = '99'").await;
    let hive = place.hive();
    let failure = hive.call(join(node())).await.unwrap_err();
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "schema-too-new"), "{failure}");
    assert_eq!(place.number("select count(*) from hive_node").await, 1, "nothing was done");
    place.change("update hive_meta set value = '1'").await;
    hive.call(join(node())).await.unwrap();
}

/// HV-5: a join migrates the tables, a read does not.
#[tokio::test]
async fn tables_of_an_older_version_are_brought_up_to_date() {
    let Some(server) = server() else { return };
    let place = TestDatabase::bare(&server).await;
    place.hive().call(join(node())).await.unwrap();
    place.change("update hive_meta set value = '0'").await;
    let hive = place.hive();
    hive.call(Request::View).await.unwrap();
    let current = "select count(*) from hive_meta where value <> '0'";
    assert_eq!(place.number(current).await, 0);
    hive.call(join(node())).await.unwrap();
    assert_eq!(place.number(current).await, 1);
}

/// HV-5: names that differ in case, in an accent or in a space at the end are different names.
#[tokio::test]
async fn hv_5_names_are_compared_byte_by_byte() {
    let Some(place) = TestDatabase::fresh().await else { return };
    let hive = place.hive();
    hive.call(join(node())).await.unwrap();
    let mut names: Vec<Name> = ["a", "A", "a ", "ä", "a'b\\", "\u{1f41d}"].map(Name::from).to_vec();
    let Reply::Leases { leases, .. } = hive.call(Request::Look { leases: names.clone() }).await.unwrap() else {
        panic!("no leases")
    };
    assert_eq!(leases.iter().map(|lease| lease.name.clone()).collect::<Vec<_>>(), names);
    let Reply::View(view) = hive.call(Request::View).await.unwrap() else { panic!("no view") };
    names.sort();
    assert_eq!(view.leases.into_iter().map(|lease| lease.name).collect::<Vec<_>>(), names);
    for (lease, taken) in [("a", true), ("a ", true), ("A", true), ("a", false)] {
        assert_eq!(member::take(&*hive, node(), lease).await.is_ok(), taken, "{lease:?}");
    }
}

/// HV-3, HV-38: the server's time zone, modes, character set, isolation and timeouts do not matter.
#[tokio::test]
async fn hv_38_what_the_server_is_set_to_changes_nothing() {
    let settings = [
        "--default-time-zone=+09:00",
        "--sql-mode=ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE",
        "--character-set-server=latin1",
        "--collation-server=latin1_swedish_ci",
        "--skip-character-set-client-handshake",
        "--transaction-isolation=SERIALIZABLE",
        "--autocommit=0",
    ];
    let Some(server) = honeyflow_services::throwaway(Server::Mariadb, &settings) else { return };
    let hive = Arc::new(MysqlHive::open(&Options::new(server.url())).unwrap());
    let me = node();
    let meta = r#"{"name":"bücher 'x' \" \\ 🐝"}"#;
    let join =
        Request::Join { node: me, name: "ü \\' x".into(), heartbeat_ms: 1, ttl_ms: 6000, meta: meta.to_owned() };
    let Reply::Joined(status) = hive.call(join).await.unwrap() else { panic!("not joined") };
    let here_ms = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let here_ms = i64::try_from(here_ms).unwrap() - HIVE_TIME_START_MS;
    assert!((status.head.hive_ms.cast_signed() - here_ms).abs() < 60_000, "{} and {here_ms}", status.head.hive_ms);
    let term = member::take_as_member(&*hive, me, "duty/größe").await.unwrap();
    let another = Arc::new(MysqlHive::open(&Options::new(server.url())).unwrap());
    let Reply::View(view) = another.call(Request::View).await.unwrap() else { panic!("no view") };
    assert_eq!((&*view.nodes[0].name, &*view.nodes[0].meta), ("ü \\' x", meta));
    assert_eq!(
        (&*view.leases[0].name, view.leases[0].epoch, view.leases[0].holder),
        ("duty/größe", term.epoch(), Some(me))
    );
}
