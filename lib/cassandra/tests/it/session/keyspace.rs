//! Requests with a keyspace, in clusters where not every server can receive one.

use super::*;
use crate::network::Network;

/// A server that answers every query and execution with the version of the connection.
fn server(versions: &[Version]) -> Script {
    let mut script = Script::new(|received| match &received.request {
        RequestBody::Query(_) | RequestBody::Execute(_) => text_row(&received.version.to_string()),
        RequestBody::Prepare(_) => {
            Reply::Answer(opcode::RESULT, speak::prepared(received.version, b"id", &[], &[], &[("text", Type::Text)]))
        }
        RequestBody::Batch(_) => Reply::Answer(opcode::RESULT, Body::new().i32(1).0),
        _ => Reply::Nothing,
    });
    script.versions = versions.to_vec();
    script
}

fn text(response: honeyflow_cassandra::wire::Response) -> String {
    response.into_rows().first::<(String,)>().unwrap().unwrap().0
}

#[tokio::test(start_paused = true)]
async fn cq_14_a_request_with_a_keyspace_goes_to_servers_that_can_receive_it() {
    let network = Network::of([server(&[Version::V4]), server(&[Version::V4, Version::V5]), server(&[Version::V4])]);
    let session = network.session(network.quiet(1));
    assert!(session.pool().control().ready(3, Instant::now() + PATIENCE).await);
    for _ in 0..30 {
        let answer = session.query("SELECT v FROM t", &patient().keyspace("shop")).await.unwrap();
        assert_eq!(text(answer), "v5");
    }
    let statement = session.prepare_in("shop", "SELECT v FROM t").await.unwrap();
    for _ in 0..30 {
        assert_eq!(text(session.execute(&statement, (), &patient()).await.unwrap()), "v5");
    }
    let mut batch = honeyflow_cassandra::Batch::logged();
    batch.push(&statement, ());
    session.batch(&batch, &patient()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cq_14_if_no_server_can_receive_a_keyspace_the_request_is_refused_and_never_sent() {
    let scripts = [server(&[Version::V4]), server(&[Version::V4])];
    let network = Network::of(scripts.clone());
    let session = network.session(network.quiet(1));
    assert!(session.pool().control().ready(2, Instant::now() + PATIENCE).await);
    let queried = session.query("INSERT INTO t (k) VALUES (1)", &patient().keyspace("shop")).await.unwrap_err();
    let prepared = session.prepare_in("shop", "SELECT v FROM t").await.unwrap_err();
    for error in [queried, prepared] {
        assert_eq!((error.kind, error.executed, error.transient()), (Kind::Caller, Execution::No, false), "{error}");
        let cause = std::error::Error::source(&error).unwrap().to_string();
        assert!(cause.contains("version 4") && cause.contains("`shop.table`"), "{cause}");
    }
    for script in scripts {
        assert!(script.received().iter().all(|word| word == "OPTIONS" || word == "STARTUP"), "{:?}", script.received());
    }
}

#[tokio::test]
async fn cq_14_a_real_server_uses_the_keyspace_of_a_request() {
    let Some(real) = RealServer::server() else { return };
    let [five, four] = [Version::V5, Version::V4]
        .map(|version| Session::open(real.settings(version, Compression::None), patient_pool(real.address)).unwrap());
    for statement in [
        "DROP KEYSPACE IF EXISTS heeded",
        "CREATE KEYSPACE heeded WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE heeded.t (id int PRIMARY KEY)",
    ] {
        five.query(statement, &patient()).await.unwrap();
    }
    let how = patient().keyspace("heeded");
    five.query("INSERT INTO t (id) VALUES (1)", &how).await.unwrap();
    let put = five.prepare_in("heeded", "INSERT INTO t (id) VALUES (?)").await.unwrap();
    five.execute(&put, (2_i32,), &patient()).await.unwrap();
    let mut batch = honeyflow_cassandra::Batch::logged();
    batch.push_text("INSERT INTO t (id) VALUES (3)");
    five.batch(&batch, &how).await.unwrap();
    assert_eq!(five.query("SELECT id FROM t", &how).await.unwrap().into_rows().len(), 3);
    let refused = four.query("SELECT id FROM t", &how).await.unwrap_err();
    assert_eq!(refused.kind, Kind::Caller, "{refused}");
}
