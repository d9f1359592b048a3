//! Hostile and clumsy peers: each bound at its limit and beyond it.

use std::time::{Duration, Instant};

use honeyflow_api::Limits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::harness::{PATIENCE, Server, answer, event, start, start_with};

const SHORT: Duration = Duration::from_millis(300);

async fn hurried() -> Server {
    start_with(|node| {
        node.limits.headers_timeout = SHORT;
        node.limits.body_timeout = SHORT;
    })
    .await
}

async fn healthy(server: &Server) {
    assert_eq!(server.get("/health").await.status, 200);
}

#[test]
fn se_18_the_defaults_are_those_of_the_table() {
    let limits = Limits::default();
    assert_eq!((limits.body_bytes_max, limits.payload_bytes_max), (4 << 20, 1 << 20));
    assert_eq!((limits.header_bytes_max, limits.url_bytes_max), (16 << 10, 8 << 10));
    assert_eq!((limits.json_depth_max, limits.json_members_max), (64, 100_000));
    assert_eq!((limits.connections_per_peer_max, limits.connections_max), (200, 4096));
    assert_eq!((limits.headers_timeout, limits.body_timeout), (Duration::from_secs(5), Duration::from_secs(30)));
    assert_eq!((limits.idle_timeout, limits.live_clients_max), (Duration::from_secs(60), 100));
    assert_eq!((limits.hits_max, limits.parameters_max), (500, 64));
}

#[tokio::test]
async fn se_18_a_silent_connection_is_closed() {
    let server = hurried().await;
    let started = Instant::now();
    assert_eq!(answer(&mut server.connect().await).await.status, 0);
    assert!(started.elapsed() >= SHORT && started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    healthy(&server).await;
}

#[tokio::test]
async fn se_18_slow_headers_do_not_keep_a_connection_open() {
    let server = hurried().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n").await.unwrap();
    let started = Instant::now();
    let trickle = async {
        while stream.write_all(b"X-A: b\r\n").await.is_ok() {
            tokio::time::sleep(SHORT / 10).await;
        }
    };
    tokio::time::timeout(PATIENCE, trickle).await.expect("the connection is closed under the trickle");
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    healthy(&server).await;
}

#[tokio::test]
async fn se_18_a_second_request_may_come_later_than_headers_may_take() {
    let server = hurried().await;
    let mut stream = server.connect().await;
    for _ in 0..2 {
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut stream).await.status, 200);
        tokio::time::sleep(SHORT * 2).await;
    }
    stream.write_all(b"GET /hea").await.unwrap();
    let started = Instant::now();
    assert_eq!(answer(&mut stream).await.status, 0, "but its headers have the same time limit as the first");
    assert!(started.elapsed() < PATIENCE);
}

#[tokio::test]
async fn se_18_a_connection_that_rests_too_long_is_closed() {
    let server = start_with(|node| node.limits.idle_timeout = SHORT).await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(answer(&mut stream).await.status, 200);
    let started = Instant::now();
    assert_eq!(answer(&mut stream).await.status, 0);
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
}

#[tokio::test]
async fn se_18_a_body_that_does_not_arrive_times_out() {
    let server = hurried().await;
    let begun = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
    let answer = server.send(begun).await;
    assert_eq!((answer.status, answer.code().as_str()), (408, "body-too-slow"));
    assert_eq!(server.stored(), 0);
}

#[tokio::test]
async fn se_18_five_declared_gibibytes_are_refused_at_once() {
    let server = start().await;
    for length in ["5368709120", "4194305", "18446744073709551615"] {
        let started = Instant::now();
        let asked = format!("POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n");
        let answer = server.send(asked).await;
        assert!(matches!(answer.status, 413 | 431), "{length}: {answer:?}");
        assert!(started.elapsed() < PATIENCE);
    }
    healthy(&server).await;
}

#[tokio::test]
async fn se_18_an_undeclared_body_is_counted_while_it_comes() {
    let server = start().await;
    let mut stream = server.connect().await;
    let head = b"POST /v1/events HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    let flood = tokio::spawn(async move {
        let piece = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
        for _ in 0..200 {
            if writer.write_all(piece.as_bytes()).await.is_err() {
                return;
            }
        }
    });
    let mut head = [0; 12];
    tokio::time::timeout(PATIENCE, reader.read_exact(&mut head)).await.unwrap().unwrap();
    assert_eq!(&head, b"HTTP/1.1 413");
    flood.abort();
    healthy(&server).await;
}

#[tokio::test]
async fn se_18_a_body_of_exactly_the_limit_is_read() {
    let server = start_with(|node| node.limits.body_bytes_max = 4096).await;
    let padded = |length: usize| {
        let event = event("1").to_string();
        " ".repeat(length - event.len()) + &event
    };
    assert_eq!(server.post(padded(4096)).await.status, 202);
    assert_eq!(server.post(padded(4097)).await.status, 413);
    assert_eq!(server.post(padded(4096 * 1000)).await.status, 413);
    assert_eq!(server.stored(), 1);
}

#[tokio::test]
async fn se_18_all_bodies_share_one_memory_limit() {
    let server = start_with(|node| node.limits.bodies_bytes_max = 64 << 10).await;
    let large = format!("{:<40000}", event("1").to_string());
    let mut slow = server.connect().await;
    let head = "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 40000\r\n\r\n";
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.write_all(&large.as_bytes()[..39_000]).await.unwrap();
    tokio::time::sleep(SHORT).await;
    let answered = server.post(&large).await;
    assert_eq!((answered.status, answered.code().as_str()), (503, "busy"));
    slow.write_all(&large.as_bytes()[39_000..]).await.unwrap();
    assert_eq!(answer(&mut slow).await.status, 202);
    assert_eq!(server.post(&large).await.status, 202, "the room is free again");
}

#[tokio::test]
async fn se_18_a_compressed_body_is_not_unpacked() {
    let server = start().await;
    let answer = server.post_with("Content-Encoding: gzip\r\n", "\u{1f}bomb").await;
    assert_eq!((answer.status, answer.code().as_str()), (415, "compressed-body"));
}

#[tokio::test]
async fn se_18_url_and_headers_are_bounded() {
    let server = start().await;
    let path = |length: usize| format!("/?q={}", "a".repeat(length - 4));
    assert_eq!(server.get(&path(8 << 10)).await.status, 200);
    assert_eq!(server.get(&path((8 << 10) + 1)).await.status, 414);
    assert!(matches!(server.get(&path(60_000)).await.status, 414 | 431));
    let headers = |length: usize| {
        // Four bytes of each line are punctuation.
        let host = "host127.0.0.1".len() + 4;
        let value = "a".repeat(length - host - "x-a".len() - 4);
        format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nX-A: {value}\r\n\r\n")
    };
    assert_eq!(server.send(headers(16 << 10)).await.status, 200);
    assert_eq!(server.send(headers((16 << 10) + 1)).await.status, 431);
    assert!(matches!(server.send(headers(16 << 20)).await.status, 431 | 0), "refused, or closed while it was sent");
    let many = "X-A: b\r\n".repeat(1000);
    let asked = format!("GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n{many}\r\n");
    assert_eq!(server.send(asked).await.status, 431);
    let parameters = |count: usize| format!("/v1/search?{}", vec!["q=a"; count].join("&"));
    assert_eq!(server.get(&parameters(64)).await.code(), "repeated-parameter");
    assert_eq!(server.get(&parameters(65)).await.code(), "too-many-parameters");
    healthy(&server).await;
}

#[tokio::test]
async fn se_18_one_peer_has_a_bounded_number_of_connections() {
    let server = start_with(|node| node.limits.connections_per_peer_max = 3).await;
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut stream = server.connect().await;
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
        assert_eq!(answer(&mut stream).await.status, 200);
        held.push(stream);
    }
    assert_eq!(server.get("/health").await.status, 0, "the fourth is closed at once");
    drop(held);
    let again = async {
        while server.get("/health").await.status != 200 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, again).await.expect("connections are accepted again");
}

#[tokio::test]
async fn se_18_all_peers_have_a_bounded_number_of_connections() {
    let server = start_with(|node| node.limits.connections_max = 1).await;
    let mut held = server.connect().await;
    held.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(answer(&mut held).await.status, 200);
    assert_eq!(server.get("/health").await.status, 0);
}

#[tokio::test]
async fn se_32_no_bytes_stop_the_server() {
    let server = start().await;
    let mut seed = 11_u64;
    let mut random = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 33
    };
    let pieces: [&[u8]; 16] = [
        b"GET / HTTP/1.1\r\n",
        b"POST /v1/events HTTP/1.1\r\n",
        b"Host: localhost\r\n",
        b"\r\n",
        b"\r\n\r\n",
        b"\xff\xfe",
        b"Content-Length: 3\r\n",
        b"Content-Length: -1\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"[{",
        b"\"",
        b"\\u",
        b"\0",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"Expect: 100-continue\r\n",
        b"1e999",
    ];
    for _ in 0..200 {
        let mut bytes = Vec::new();
        for _ in 0..random() % 8 {
            bytes.extend_from_slice(pieces[usize::try_from(random()).unwrap() % pieces.len()]);
        }
        let mut stream = server.connect().await;
        let _ = stream.write_all(&bytes).await;
        let _ = stream.shutdown().await;
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("it ends");
    }
    healthy(&server).await;
}
