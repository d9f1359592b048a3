//! The keyspace of a request: version 5 carries it, version 4 refuses it.

use cassandra_protocol::frame::message_request::RequestBody;
use honeyflow_cassandra::connection::Settings;
use honeyflow_cassandra::error::{Cause, Executed};
use honeyflow_cassandra::wire::{Compression, Version};
use honeyflow_cassandra::{Batch, Statement, Type};
use std::sync::{Arc, Mutex};

use super::{connect, patient, settings};
use crate::scripted::{Reply, Script, text_row};
use crate::speak::{self, Body, opcode};

/// Returns a script, and the keyspaces of the requests it has received.
fn script() -> (Script, Arc<Mutex<Vec<Option<String>>>>) {
    let keyspaces: Arc<Mutex<Vec<Option<String>>>> = Arc::default();
    let recorded = Arc::clone(&keyspaces);
    let script = Script::new(move |received| {
        let record = |keyspace: &Option<String>| recorded.lock().unwrap().push(keyspace.clone());
        match &received.request {
            RequestBody::Query(query) => {
                record(&query.query_params.keyspace);
                text_row(&query.query)
            }
            RequestBody::Prepare(prepare) => {
                record(&prepare.keyspace);
                let body = speak::prepared(received.version, b"id", &[], &[], &[("text", Type::Text)]);
                Reply::Answer(opcode::RESULT, body)
            }
            RequestBody::Execute(execute) => {
                record(&execute.query_parameters.keyspace);
                text_row("executed")
            }
            RequestBody::Batch(batch) => {
                record(&batch.keyspace);
                Reply::Answer(opcode::RESULT, Body::new().i32(1).0)
            }
            _ => Reply::Nothing,
        }
    });
    (script, keyspaces)
}

fn texts() -> Batch {
    let mut batch = Batch::logged();
    batch.push_text("INSERT INTO t (k) VALUES (1)");
    batch
}

#[tokio::test]
async fn cq_14_version_5_carries_a_keyspace_with_all_requests_but_executions() {
    let (script, keyspaces) = script();
    let connection = connect(&script, &settings(Version::V5, Compression::None)).await.unwrap();
    let how = patient().keyspace("shop");
    connection.query("SELECT v FROM t", &how).await.unwrap();
    connection.batch(&texts(), &how).await.unwrap();
    connection.execute(&Statement::in_keyspace("SELECT v FROM t", "shop"), (), &how).await.unwrap();
    let shop = Some("shop".to_owned());
    assert_eq!(*keyspaces.lock().unwrap(), [shop.clone(), shop.clone(), shop, None]);
    // The server would ignore it.
    let elsewhere = Statement::in_keyspace("SELECT v FROM t", "farm");
    for statement in [elsewhere, Statement::new("SELECT v FROM t")] {
        let error = connection.execute(&statement, (), &how).await.unwrap_err();
        assert!(matches!(&error.cause, Cause::KeyspaceOfPrepared(asked) if asked == "shop"), "{error}");
        assert_eq!(error.cause.executed(), Executed::No);
    }
    assert_eq!(keyspaces.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn cq_14_a_keyspace_that_version_4_cannot_carry_is_refused_before_sending() {
    let (script, keyspaces) = script();
    let plain = settings(Version::V4, Compression::None);
    let connection = connect(&script, &plain).await.unwrap();
    let how = patient().keyspace("shop");
    let statement = Statement::in_keyspace("SELECT v FROM t", "shop");
    for error in [
        connection.query("SELECT v FROM t", &how).await.unwrap_err(),
        connection.batch(&texts(), &how).await.unwrap_err(),
        connection.execute(&statement, (), &patient()).await.unwrap_err(),
    ] {
        assert!(matches!(&error.cause, Cause::KeyspaceUnspoken(asked) if asked == "shop"), "{error}");
        assert_eq!(error.cause.executed(), Executed::No);
        assert!(error.to_string().starts_with(&**connection.server()), "{error}");
    }
    assert_eq!(*keyspaces.lock().unwrap(), []);
    // A connection that is already in the keyspace need not send it; for another keyspace the request is refused.
    let inside = Settings { keyspace: Some("shop".to_owned()), ..plain };
    let connection = connect(&script, &inside).await.unwrap();
    connection.query("SELECT v FROM t", &how).await.unwrap();
    connection.batch(&texts(), &how).await.unwrap();
    connection.execute(&statement, (), &how).await.unwrap();
    assert_eq!(*keyspaces.lock().unwrap(), vec![None; 4]);
    connection.query("SELECT v FROM t", &patient().keyspace("farm")).await.unwrap_err();
    assert_eq!(keyspaces.lock().unwrap().len(), 4);
}
