//! The live stream.

use std::time::Duration;

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use crate::harness::{PATIENCE, Server, start, start_with};

async fn watch(server: &Server) -> TcpStream {
    let mut stream = server.connect().await;
    stream.write_all(b"GET /v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    stream
}

async fn read_until(stream: &mut TcpStream, read: &mut String, what: &str, times: usize) {
    let reading = async {
        while read.matches(what).count() < times {
            let mut piece = [0; 16384];
            let count = stream.read(&mut piece).await.unwrap();
            assert!(count > 0, "the stream ended: {read}");
            read.push_str(std::str::from_utf8(&piece[..count]).unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, reading).await.expect("it comes");
}

#[tokio::test]
async fn a_snapshot_comes_every_second_with_the_texts_of_the_page() {
    let server = start().await;
    let mut stream = watch(&server).await;
    let mut read = String::new();
    read_until(&mut stream, &mut read, "data: ", 1).await;
    server.status.lock().unwrap().events += 500;
    read_until(&mut stream, &mut read, "data: ", 4).await;
    assert!(read.starts_with("HTTP/1.1 200 OK") && read.contains("content-type: text/event-stream"), "{read}");
    let snapshots: Vec<Value> = read
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .filter_map(|snapshot| serde_json::from_str(snapshot).ok())
        .collect();
    let page = server.get("/").await.body;
    let first = snapshots.first().unwrap();
    for id in first["texts"].as_object().unwrap().keys() {
        assert!(page.contains(&format!("id=\"{id}\"")), "{id} is not on the page");
    }
    assert!(snapshots.iter().any(|snapshot| snapshot["texts"]["events-note"] == "512 in all"), "{snapshots:?}");
    assert!(snapshots.iter().any(|snapshot| snapshot["texts"]["events-rate"] != "0"), "a rate is seen");
    assert_eq!(first["texts"]["state"], "working");
}

#[tokio::test]
async fn se_18_watching_clients_are_bounded_and_release_their_permits() {
    let server = start_with(|node| node.limits.live_clients_max = 2).await;
    let (mut one, mut two) = (watch(&server).await, watch(&server).await);
    for stream in [&mut one, &mut two] {
        read_until(stream, &mut String::new(), "200 OK", 1).await;
    }
    let refused = server.get("/v1/live").await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "too-many-watchers"));
    assert_ne!(refused.header("retry-after"), "");
    drop(one);
    let again = async {
        while server.get("/v1/live").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("the permit is released");
}

#[tokio::test]
async fn the_store_is_not_called_while_no_client_watches() {
    let server = start().await;
    tokio::time::sleep(Duration::from_millis(2200)).await;
    assert_eq!(*server.outbox.asked.lock().unwrap(), 0);
    let streams = [watch(&server).await, watch(&server).await, watch(&server).await];
    tokio::time::sleep(Duration::from_millis(2200)).await;
    let asked = *server.outbox.asked.lock().unwrap();
    assert!((1..=4).contains(&asked), "three clients, one request per second: {asked}");
    drop(streams);
}

#[tokio::test]
async fn serving_ends_while_a_client_watches() {
    let server = start().await;
    let mut stream = watch(&server).await;
    read_until(&mut stream, &mut String::new(), "data: ", 1).await;
    server.stop().await.unwrap();
}
