//! Tables that do not fit, and clusters that cannot be reached.

use std::sync::Arc;

use honeyflow_cassandra::{
    Session,
    connection::{Password, Secret, Settings},
};
use honeyflow_conformance::sink::put;
use honeyflow_runtime::Class;
use honeyflow_sink::{Outcome, Sink};
use honeyflow_sink_cassandra::{CassandraSink, KeyKind, TableError};
use serde_json::json;

use crate::cluster::{Cluster, part, stamp};

#[tokio::test]
async fn each_misfit_is_reported_with_its_correction() {
    let Some(cluster) = Cluster::join().await else { return };
    let table = cluster.table("id int PRIMARY KEY, title text, visits duration").await;
    let mut options = cluster.options(&table, vec![part("id", KeyKind::Text)]);
    options.columns.insert("titel".to_owned(), "title".to_owned());
    let Err(TableError::Misfits(misfits)) = CassandraSink::look(&cluster.session, &options, &[]).await else {
        panic!("it fits")
    };
    let reported: Vec<_> = misfits.iter().map(|misfit| (misfit.at.as_str(), misfit.code)).collect();
    assert_eq!(
        reported,
        [
            ("column.titel", "unknown-column"),
            ("table", "unknown-column"),
            ("column.id", "wrong-type"),
            ("column.visits", "wrong-type")
        ]
    );
    assert_eq!(misfits[0].help, "did you mean `title`?");
    assert!(misfits[1].help.starts_with("ALTER TABLE"), "{}", misfits[1].help);
    for (keyspace, table, message) in
        [("honeyflow_sink", "nothing", "no table `nothing`"), ("honeyflow_sinc", "t", "no keyspace `honeyflow_sinc`")]
    {
        let mut options = cluster.options(table, vec![part("id", KeyKind::Text)]);
        options.keyspace = keyspace.to_owned();
        let failure = CassandraSink::open(cluster.session.clone(), options).await.err().expect("refused");
        assert_eq!(failure.class, Class::Fatal);
        assert!(failure.message.contains(message), "{}", failure.message);
    }
}

/// A dropped table is not the fault of a row: the workflow stops and no event is parked.
#[tokio::test]
async fn a_table_that_is_dropped_stops_the_workflow() {
    let Some(cluster) = Cluster::join().await else { return };
    let table = cluster.table("id int PRIMARY KEY, title text, honeyflow_version bigint").await;
    let options = cluster.options(&table, vec![part("id", KeyKind::Integer)]);
    let sink = CassandraSink::open(cluster.session.clone(), options).await.expect("the table fits");
    assert_eq!(sink.write(vec![put("1", stamp(1, 1), json!({"title": "a"}))]).await, [Outcome::Done]);
    cluster.run(&format!("DROP TABLE honeyflow_sink.{table}")).await;
    let answers = sink.write(vec![put("1", stamp(1, 2), json!({"title": "b"}))]).await;
    let [Outcome::Failed(failure)] = &answers[..] else { panic!("{answers:?}") };
    assert_eq!((failure.class, &*failure.code), (Class::Fatal, "cassandra-table"), "{failure}");
}

/// PL-91
#[tokio::test]
async fn pl_91_a_cluster_that_is_away_or_refuses_the_login_is_tried_again() {
    let Some(url) = honeyflow_services::cassandra().map(|service| service.url) else { return };
    let address = url.rsplit('@').next().expect("an address").trim_end_matches('/').to_owned();
    let login = Password { user: "bee".to_owned(), password: Secret::Plain("wrong".to_owned()) };
    let wrong = Settings { login: Some(Arc::new(login)), ..Settings::default() };
    for (settings, server, why) in [
        (wrong, address, "refused the login"),
        (Settings::default(), "127.0.0.1:1".to_owned(), "could not be connected to"),
    ] {
        let servers = honeyflow_pool::Settings {
            servers: vec![server],
            discovery: false,
            handshake_timeout: std::time::Duration::from_secs(30),
            ..honeyflow_pool::Settings::default()
        };
        let session = Session::open(settings, servers).expect("settings");
        let mut options = honeyflow_sink_cassandra::Options::new("a", "b", vec![part("id", KeyKind::Integer)]);
        options.deadline = std::time::Duration::from_secs(5);
        let sink = CassandraSink::open(session, options).await.expect("it may come later");
        let answers = sink.write(vec![put("1", stamp(1, 1), json!({}))]).await;
        let [Outcome::Failed(failure)] = &answers[..] else { panic!("{answers:?}") };
        assert!(matches!(failure.class, Class::Retry | Class::RetryAfter), "{failure}");
        assert!(failure.message.contains(why), "{failure}");
    }
}
