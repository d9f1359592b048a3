//! A real OpenSearch: versions decide which write wins, the cluster lists its servers, and a server stops, dies and
//! comes back.

use std::time::Duration;

use honeyflow_pool::{Drain, ServerState, Settings};
use honeyflow_services::{opensearch, throwaway_opensearch};
use honeyflow_sink_search::{Bulk, Client, Config, Request};
use serde_json::{Value, json};

use crate::{PATIENCE, plain, within};

/// A name of an index for this test run alone.
fn index(name: &str) -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    format!("{name}-{}-{}", std::process::id(), now.as_nanos())
}

async fn ask(client: &Client, request: &Request) -> Value {
    let answer = client.send(request, PATIENCE).await.unwrap();
    serde_json::from_slice(&answer.body).unwrap()
}

/// Sends a bulk and returns the status of each write, in order.
async fn write(client: &Client, bulk: Bulk) -> Vec<u64> {
    let answer = ask(client, &Request::bulk(bulk)).await;
    let items = answer["items"].as_array().unwrap();
    items.iter().map(|item| item.as_object().unwrap().values().next().unwrap()["status"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn pl_142_a_versioned_bulk_may_arrive_twice_and_late() {
    let Some(server) = opensearch() else { return };
    let client = Client::open(Config::of_urls(&[server.url]).unwrap(), plain()).unwrap();
    let books = index("bulk");
    // Too large to be exact as a 64-bit float.
    let version = (1_u64 << 53) + 1;
    let mut bulk = Bulk::default();
    bulk.index(&books, "1", version, &json!({"title": "Momo"})).unwrap();
    bulk.index(&books, "2", 0, &json!({"title": "Emma"})).unwrap();
    assert_eq!(write(&client, bulk.clone()).await, [201, 201]);
    assert_eq!(write(&client, bulk).await, [409, 409]);
    let mut late = Bulk::default();
    late.index(&books, "1", version - 1, &json!({"title": "older"})).unwrap();
    late.delete(&books, "2", 1).unwrap();
    late.index(&books, "2", 1, &json!({"title": "after its end"})).unwrap();
    assert_eq!(write(&client, late).await, [409, 200, 409]);
    let found = ask(&client, &Request::get(format!("/{books}/_doc/1"))).await;
    assert_eq!((&found["_version"], &found["_source"]["title"]), (&json!(version), &json!("Momo")));
    let gone = client.send(&Request::get(format!("/{books}/_doc/2")), PATIENCE).await.unwrap_err();
    assert_eq!(gone.cause.as_ref().unwrap().status(), Some(404));
    let broken = client.send(&Request::read(format!("/{books}/_search"), "{"), PATIENCE).await.unwrap_err();
    assert!(!broken.transient(), "{broken}");
    client.send(&Request::delete(format!("/{books}")), PATIENCE).await.unwrap();
    client.pool().control().close(Drain::within(PATIENCE)).await;
}

#[tokio::test]
async fn pl_141_a_real_server_lists_itself() {
    let Some(server) = opensearch() else { return };
    let config = Config { sniff: Some(true), ..Config::of_urls(&[server.url]).unwrap() };
    let client = Client::open(config.clone(), plain()).unwrap();
    let named = || client.pool().status().servers.iter().all(|one| one.server.id.as_str().len() == 22);
    crate::eventually("it has an id", || !client.pool().connector().members().is_empty() && named()).await;
    let members = client.pool().connector().members();
    assert_eq!(members[0].address.to_string(), config.servers[0]);
    assert!(members[0].version.split('.').count() == 3 && members[0].roles.iter().any(|role| role == "data"));
    client.pool().control().close(Drain::within(PATIENCE)).await;
}

/// Whether the server refuses the bulk's write because of its version; false also if the server does not answer.
async fn is_outdated(client: &Client, bulk: Bulk) -> bool {
    let Ok(answer) = client.send(&Request::bulk(bulk), Duration::from_secs(5)).await else { return false };
    let answer: Value = serde_json::from_slice(&answer.body).unwrap();
    answer["items"][0]["index"]["status"] == 409
}

/// Waits until the server answers `/` again.
async fn recovered(client: &Client) {
    let asking = async {
        while client.send(&Request::get("/"), Duration::from_secs(5)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within("it answers again", asking).await;
}

/// PL-161, PL-160
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pl_140_a_server_that_was_paused_or_killed_is_used_again_automatically() {
    let Some(mut server) = throwaway_opensearch() else { return };
    let settings = Settings {
        handshake_timeout: Duration::from_secs(5),
        heartbeat_idle: Duration::from_millis(200),
        heartbeat_timeout: Duration::from_secs(2),
        ..plain()
    };
    let client = Client::open(Config::of_urls(&[server.url()]).unwrap(), settings).unwrap();
    let books = index("survives");
    recovered(&client).await;
    let mut bulk = Bulk::default();
    bulk.index(&books, "1", 7, &json!({"title": "Momo"})).unwrap();
    assert_eq!(write(&client, bulk.clone()).await, [201]);

    server.pause();
    let error = client.send(&Request::get("/"), Duration::from_millis(100)).await.unwrap_err();
    assert!(error.transient(), "{error}");
    // The paused server still accepts connections, but they do not count as healthy.
    let down = || client.pool().status().servers.iter().all(|one| one.state == ServerState::Down);
    crate::eventually("it is down", down).await;
    server.resume();
    recovered(&client).await;

    server.kill();
    crate::eventually("it is down", down).await;
    let error = client.send(&Request::get("/"), Duration::from_millis(100)).await.unwrap_err();
    assert!(error.transient(), "{error}");
    tokio::task::block_in_place(|| server.start()).unwrap();
    recovered(&client).await;
    // The acknowledged write is still there, and its version still refuses an older one.
    let asking = async {
        while !is_outdated(&client, bulk.clone()).await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("its index is back", asking).await;
    let wanted = client.pool().status().wanted;
    assert!(client.pool().control().ready(wanted, tokio::time::Instant::now() + PATIENCE).await);
    client.pool().control().close(Drain::within(PATIENCE)).await;
}
