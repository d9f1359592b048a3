//! One connection: one request at a time, answers read to their end, and no request after an incomplete answer.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use honeyflow_pool::{Connection, Connector, Kind, Limits, Pool, Provider, Section, Server};
use honeyflow_sink_search::{Cause, Config, Login, Request, Search, Secret};
use tokio::{sync::watch, time::Instant};

use crate::{
    LIMITS, PATIENCE, client, config, connect, connect_within, error_chain, eventually, plain, ready,
    scripted::{Act, ReceivedRequest, ScriptedServers, WELL, answer, ok},
    within,
};

const AT: &str = "10.0.0.1:9200";

fn get(path: &str) -> Request {
    Request::get(path)
}

#[tokio::test]
async fn pl_140_a_request_is_sent_and_its_answer_returned() {
    let servers = ScriptedServers::default();
    servers.serve(AT, |_| ok(r#"{"took":1}"#));
    let connection = connect(&servers, config(&[AT])).await.unwrap();
    let answer = connection.send(&Request::read("/books/_search?size=1", r#"{"query":{}}"#)).await.unwrap();
    assert_eq!((answer.status, &answer.body[..]), (200, &br#"{"took":1}"#[..]));
    let received = servers.received(AT).pop().unwrap();
    assert_eq!(received.target, "/books/_search?size=1");
    assert_eq!(received.body, br#"{"query":{}}"#);
    for line in ["host: 10.0.0.1:9200", "content-type: application/json", "accept: application/json"] {
        assert!(received.head.lines().any(|one| one == line), "{line} in {}", received.head);
    }
    assert_eq!(connection.streams(), 1);
}

/// The server's certificate contains that name, and a gateway routes by it.
#[tokio::test]
async fn a_server_configured_by_name_is_addressed_by_that_name() {
    let servers = ScriptedServers::default();
    servers.serve("127.0.0.1:9200", |_| ok("{}"));
    let search = Search::dialling(config(&["localhost:9200"]), servers.clone());
    let connection = search.connect(&Server::at(([127, 0, 0, 1], 9200).into()), LIMITS).await.unwrap();
    connection.send(&get("/")).await.unwrap();
    let received = servers.received("127.0.0.1:9200").pop().unwrap();
    assert!(received.head.lines().any(|line| line == "host: localhost:9200"), "{}", received.head);
}

#[tokio::test]
async fn every_path_has_the_prefix() {
    let servers = ScriptedServers::default();
    servers.serve_all(AT, |received| {
        assert!(received.target.starts_with("/es/_"), "{}", received.target);
        ok(WELL)
    });
    let connection = connect(&servers, Config { prefix: "/es".to_owned(), ..config(&[AT]) }).await.unwrap();
    assert_eq!(connection.send(&get("/_count")).await.unwrap().body, WELL);
}

#[tokio::test]
async fn pl_140_a_connection_carries_one_request_at_a_time() {
    let servers = ScriptedServers::default();
    let (go, wait) = watch::channel(false);
    servers.serve(AT, move |received| match received.target.as_str() {
        "/first" => vec![Act::Wait(wait.clone()), Act::Send(answer("200 OK", "1"))],
        _ => ok("2"),
    });
    let connection = connect(&servers, config(&[AT])).await.unwrap();
    let (first, second) = (get("/first"), get("/second"));
    let both = async { tokio::join!(connection.send(&first), connection.send(&second)) };
    let release = async {
        eventually("the first is there", || servers.received(AT).len() == 1).await;
        // The second had every chance to overtake it.
        tokio::task::yield_now().await;
        assert_eq!(servers.received(AT).len(), 1);
        go.send_replace(true);
    };
    let ((one, two), ()) = tokio::join!(both, release);
    assert_eq!((&one.unwrap().body[..], &two.unwrap().body[..]), (&b"1"[..], &b"2"[..]));
    assert_eq!(servers.dialled(AT), 1);
}

#[tokio::test]
async fn pl_140_there_are_no_connections_beside_those_of_the_pool() {
    let servers = ScriptedServers::default();
    let (go, wait) = watch::channel(false);
    servers.serve(AT, move |_| vec![Act::Wait(wait.clone()), Act::Send(answer("200 OK", "{}"))]);
    let client = client(&servers, config(&[AT]), plain());
    ready(&client, 2).await;
    let requests: Vec<_> = (0..8)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.send(&get("/"), PATIENCE).await.map(|answer| answer.status) })
        })
        .collect();
    eventually("both are busy", || servers.received(AT).len() == 2).await;
    eventually("the others wait", || client.pool().status().waiting.iter().sum::<usize>() == 6).await;
    assert_eq!((servers.received(AT).len(), servers.dialled(AT)), (2, 2));
    go.send_replace(true);
    for request in requests {
        assert_eq!(within("answered", request).await.unwrap().unwrap(), 200);
    }
    assert_eq!(servers.dialled(AT), 2);
}

/// A caller goes away in the middle of its answer.
#[tokio::test]
async fn pl_140_a_body_not_read_to_its_end_closes_the_connection() {
    let servers = ScriptedServers::default();
    let (go, wait) = watch::channel(false);
    let whole = answer("200 OK", "the tail of an answer");
    servers.serve(AT, move |received| match received.target.as_str() {
        "/cut" => {
            let (early, late) = whole.split_at(whole.len() - 4);
            vec![Act::Send(early.to_vec()), Act::Wait(wait.clone()), Act::Send(late.to_vec())]
        }
        other => ok(other),
    });
    let client = client(&servers, config(&[AT]), plain());
    ready(&client, 2).await;
    let leaving = client.clone();
    let request = tokio::spawn(async move { leaving.send(&get("/cut"), PATIENCE).await });
    eventually("it is under way", || servers.received(AT).len() == 1).await;
    request.abort();
    assert!(request.await.unwrap_err().is_cancelled());
    // The server sees the end of the stream; it sends the rest only now.
    go.send_replace(true);
    eventually("replaced", || servers.dialled(AT) == 3 && servers.open(AT) == 2).await;
    for at in 0..8 {
        let path = format!("/{at}");
        assert_eq!(client.send(&get(&path), PATIENCE).await.unwrap().body, path);
    }
}

#[tokio::test]
async fn pl_140_an_answer_that_is_too_long_is_not_read_and_closes_the_connection() {
    let servers = ScriptedServers::default();
    servers.serve(AT, |received| match received.target.as_str() {
        "/announced" => vec![Act::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 1001\r\n\r\n".to_vec()), Act::Freeze],
        "/chunks" => {
            let chunk = format!("1f4\r\n{}\r\n", "x".repeat(500));
            let mut acts = vec![Act::Send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec())];
            acts.extend((0..3).map(|_| Act::Send(chunk.clone().into_bytes())));
            acts.push(Act::Freeze);
            acts
        }
        _ => ok(&"x".repeat(1000)),
    });
    for path in ["/announced", "/chunks"] {
        let connection = connect(&servers, Config { answer_bytes_max: 1000, ..config(&[AT]) }).await.unwrap();
        assert_eq!(connection.send(&get("/fits")).await.unwrap().body.len(), 1000);
        let error = within("refused", connection.send(&get(path))).await.unwrap_err();
        assert!(matches!(error.cause, Cause::TooLong { bytes_max: 1000 }), "{error}");
        assert!(connection.broken());
        within("closed", connection.closed()).await;
        let again = connection.send(&get("/fits")).await.unwrap_err();
        assert!(matches!(again.cause, Cause::NotSent(_)), "{again}");
    }
}

#[tokio::test]
async fn pl_140_a_server_that_says_it_closes_gets_no_further_request() {
    let servers = ScriptedServers::default();
    let goodbye = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: Close\r\n\r\n{}".to_vec();
    servers.serve(AT, move |_| vec![Act::Send(goodbye.clone()), Act::Freeze]);
    let connection = connect(&servers, config(&[AT])).await.unwrap();
    assert_eq!(connection.send(&get("/")).await.unwrap().status, 200);
    assert!(connection.broken());
}

#[tokio::test]
async fn pl_140_the_end_of_an_idle_connection_is_noticed() {
    let servers = ScriptedServers::default();
    servers.serve(AT, |received| match received.target.as_str() {
        "/bye" => vec![Act::Send(answer("200 OK", "{}")), Act::Close],
        _ => vec![Act::Send(answer("200 OK", "{}")), Act::Send(answer("200 OK", "unexpected"))],
    });
    for path in ["/bye", "/twice"] {
        let connection = connect(&servers, config(&[AT])).await.unwrap();
        connection.send(&get(path)).await.unwrap();
        within("seen", connection.closed()).await;
        assert!(connection.broken(), "{path}");
    }
}

#[tokio::test]
async fn pl_140_a_body_that_comes_too_slowly_costs_its_connection_and_no_other() {
    let servers = ScriptedServers::default();
    servers.serve(AT, |received| match received.target.as_str() {
        "/slow" => vec![Act::Send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nso far".to_vec()), Act::Freeze],
        _ => ok("{}"),
    });
    let client = client(&servers, config(&[AT]), plain());
    ready(&client, 2).await;
    let error = client.send(&get("/slow"), Duration::from_millis(60)).await.unwrap_err();
    assert_eq!(error.kind, Kind::UseTimeout, "{error}");
    assert!(error.to_string().starts_with("10.0.0.1:9200: did not answer in time"), "{error}");
    eventually("replaced", || servers.dialled(AT) == 3 && servers.open(AT) == 2).await;
    assert_eq!(client.send(&get("/"), PATIENCE).await.unwrap().status, 200);
}

/// PL-87
#[tokio::test]
async fn pl_140_a_connection_to_a_server_that_accepts_no_data_fails() {
    let servers = ScriptedServers::default();
    servers.serve_all(AT, |_| vec![Act::Send(answer("200 OK", WELL)), Act::Deafen]);
    let limits = Limits { write: Duration::from_millis(30), ..LIMITS };
    let connection = connect_within(&servers, config(&[AT]), limits).await.unwrap();
    let long = Request::post("/books/_doc", vec![b'x'; 1 << 20]);
    let error = within("given up", connection.send(&long)).await.unwrap_err();
    assert!(matches!(error.cause, Cause::Lost(_)), "{error}");
    assert!(error_chain(&error).ends_with("it accepted no data for 30ms"), "{}", error_chain(&error));
    assert!(connection.broken());
}

/// PL-164
#[tokio::test]
async fn pl_140_connecting_to_a_server_that_never_answers_fails() {
    let servers = ScriptedServers::default();
    servers.serve_all(AT, |_| vec![Act::Freeze]);
    let limits = Limits { ready: Duration::from_millis(30), ..LIMITS };
    let error = connect_within(&servers, config(&[AT]), limits).await.unwrap_err();
    assert!(matches!(error.cause, Cause::Silent { .. }), "{error}");
    assert_eq!(error.to_string(), "10.0.0.1:9200 did not answer the health check within 30ms");
    eventually("the stream is closed", || servers.open(AT) == 0).await;
}

#[tokio::test]
async fn every_request_has_the_login_and_every_connection_reads_its_secret() {
    let servers = ScriptedServers::default();
    servers.serve_all(AT, |received: &ReceivedRequest| {
        let known = received.head.contains("authorization: Basic dTpzZWNyZXQtMg==");
        if known { ok(WELL) } else { vec![Act::Send(answer("401 Unauthorized", "Unauthorized"))] }
    });
    let fetched = Arc::new(AtomicUsize::new(0));
    let counting = fetched.clone();
    let password = Secret::new(move || Ok(format!("secret-{}", counting.fetch_add(1, Ordering::SeqCst))));
    let config = Config { login: Some(Login::Basic { user: "u".to_owned(), password }), ..config(&[AT]) };
    let error = connect(&servers, config.clone()).await.unwrap_err();
    assert_eq!(error.to_string(), "10.0.0.1:9200 answered 401: check user and password");
    let client = client(&servers, config, honeyflow_pool::Settings { connections_per_server: Some(1), ..plain() });
    eventually("the error is in the status", || {
        client.pool().status().servers.iter().any(|one| one.last_error.is_some())
    })
    .await;
    let status = client.pool().status();
    let message = status.servers[0].last_error.clone().unwrap();
    assert!(message.contains("401") && !message.contains("secret"), "{message}");
    // The second attempt uses the secret of that moment.
    ready(&client, 1).await;
    assert_eq!(fetched.load(Ordering::SeqCst), 3);
    assert_eq!(client.send(&get("/"), PATIENCE).await.unwrap().status, 200);
}

/// PL-61
#[tokio::test]
async fn the_connectors_keys_apply_to_connections_opened_from_then_on() {
    let servers = ScriptedServers::default();
    servers.serve_all(AT, |received| match received.target.as_str() {
        "/long" => ok(&"x".repeat(2000)),
        _ => ok(WELL),
    });
    let section = |keys: &str| {
        let text = format!("[search]\nservers = [\"{AT}\"]\ndiscovery = false\n[search.http]\n{keys}");
        Section::from_toml(&text, "search").unwrap()
    };
    let search = Search::dialling(config(&[AT]), servers.clone());
    let to = Server::at(AT.parse().unwrap());
    let long = get("/long");
    search.configure(&section("answer-bytes-max = 1024").settings().unwrap().connector).unwrap();
    let before = search.connect(&to, LIMITS).await.unwrap();
    // A refused configuration changes nothing.
    let refused = search.configure(&section("answer-bytes-max = 1").settings().unwrap().connector);
    assert!(refused.unwrap_err().to_string().contains("http.answer-bytes-max"));
    let between = search.connect(&to, LIMITS).await.unwrap();
    search.configure(&section("").settings().unwrap().connector).unwrap();
    let after = search.connect(&to, LIMITS).await.unwrap();
    assert!(matches!(before.send(&long).await.unwrap_err().cause, Cause::TooLong { bytes_max: 1024 }));
    assert!(matches!(between.send(&long).await.unwrap_err().cause, Cause::TooLong { bytes_max: 1024 }));
    assert_eq!(after.send(&long).await.unwrap().body.len(), 2000);
    // A pool does not start with settings that its connector refuses.
    assert!(Pool::start(search, section("verson = 1")).is_err());
}

#[tokio::test]
async fn a_connection_whose_login_is_refused_later_is_not_used_again() {
    let servers = ScriptedServers::default();
    servers.serve(AT, |_| vec![Act::Send(answer("401 Unauthorized", "Unauthorized"))]);
    let connection = connect(&servers, config(&[AT])).await.unwrap();
    assert_eq!(connection.send(&get("/")).await.unwrap_err().status(), Some(401));
    assert!(connection.broken());
    assert!(matches!(connection.send(&get("/")).await.unwrap_err().cause, Cause::NotSent(_)));
}

#[tokio::test]
async fn pl_142_a_probe_asks_for_the_servers_own_health() {
    let servers = ScriptedServers::default();
    for (status, alive) in [
        ("200 OK", true),
        ("403 Forbidden", true),
        ("404 Not Found", true),
        ("405 Method Not Allowed", true),
        ("500 Internal Server Error", true),
        ("401 Unauthorized", false),
        ("429 Too Many Requests", false),
        ("502 Bad Gateway", false),
        ("503 Service Unavailable", false),
        ("504 Gateway Timeout", false),
    ] {
        servers.serve(AT, |_| ok("{}"));
        let connection = connect(&servers, config(&[AT])).await.unwrap();
        servers.serve_all(AT, move |received| {
            assert_eq!(received.target, "/_cluster/health?local=true");
            vec![Act::Send(answer(status, "{}"))]
        });
        assert_eq!(connection.probe(Instant::now() + PATIENCE).await, alive, "{status}");
        let opened = connect(&servers, config(&[AT])).await;
        assert_eq!(opened.is_ok(), alive, "{status}");
        if let Err(error) = opened {
            assert!(error_chain(&error).contains(&status[..3]), "{error}");
        }
    }
    servers.serve(AT, |_| ok("{}"));
    let connection = connect(&servers, config(&[AT])).await.unwrap();
    servers.serve_all(AT, |_| vec![Act::Freeze]);
    assert!(!connection.probe(Instant::now() + Duration::from_millis(20)).await);
    assert!(connection.broken());
}
