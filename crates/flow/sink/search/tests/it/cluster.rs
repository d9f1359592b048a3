//! Several servers through the pool: which ones are discovered, which ones are kept, and where requests are retried.

use std::time::Duration;

use honeyflow_pool::{Execution, Kind, ServerId, ServerState, Settings, settings::Translate};
use honeyflow_sink_search::{Bulk, Cause, Config, Request};
use serde_json::json;

use crate::{
    PATIENCE, client, config, eventually, plain, ready,
    scripted::{Act, ReceivedRequest, ScriptedServers, answer, ok},
    states,
};

const A: &str = "10.0.0.1:9200";
const B: &str = "10.0.0.2:9200";
const C: &str = "10.0.0.3:9200";
const D: &str = "10.0.0.4:9200";

/// `(id, role, published address)`
type Nodes = &'static [(&'static str, &'static str, &'static str)];

fn described(nodes: Nodes) -> String {
    let node = |(id, role, at): &(&str, &str, &str)| {
        (id.to_string(), json!({"version": "2.19.6", "roles": [role], "http": {"publish_address": at}}))
    };
    json!({"nodes": nodes.iter().map(node).collect::<serde_json::Map<_, _>>()}).to_string()
}

fn names(nodes: Nodes) -> impl Fn(&ReceivedRequest) -> Vec<Act> + Send + Sync + Clone + 'static {
    let described = described(nodes);
    move |received| if received.target == "/_nodes/http" { ok(&described) } else { ok("{}") }
}

fn rounds(servers: &ScriptedServers, at: &[&str]) -> usize {
    at.iter().map(|at| servers.received(at).iter().filter(|received| received.target == "/_nodes/http").count()).sum()
}

#[tokio::test]
async fn pl_141_sniffing_finds_the_others_and_leaves_managers_out() {
    let servers = ScriptedServers::default();
    let cluster: Nodes =
        &[("a", "data", A), ("b", "ingest", "search-b/10.0.0.2:9200"), ("c", "data", C), ("m", "cluster_manager", D)];
    for at in [A, B, C, D] {
        servers.serve(at, names(cluster));
    }
    let client = client(&servers, config(&[A, B]), plain());
    ready(&client, 6).await;
    let up = |id: &str| (id.to_owned(), ServerState::Up);
    eventually("all are up", || states(&client) == [up("a"), up("b"), up("c")]).await;
    assert_eq!(servers.dialled(D), 0);
    let members = client.pool().connector().members();
    assert_eq!(members.len(), 3);
    assert_eq!((members[1].host.as_deref(), members[1].version.as_str()), (Some("search-b"), "2.19.6"));
    assert_eq!(client.pool().status().discovery_error, None);
    // A server that publishes a name is addressed by it: its certificate may contain nothing else.
    let host = |at: &str| servers.received(at).pop().map(|received| received.head.contains("host: search-b:9200"));
    let by_name = Request::get("/");
    let server = client.pool().status().servers.into_iter().find(|one| one.server.id.as_str() == "b").unwrap().server;
    let by = tokio::time::Instant::now() + PATIENCE;
    client.pool().once(&server, by, async |connection| connection.send(&by_name).await).await.unwrap();
    assert_eq!(host(B), Some(true));
}

#[tokio::test]
async fn pl_141_one_server_is_not_sniffed_unless_asked() {
    let servers = ScriptedServers::default();
    servers.serve(A, names(&[("a", "data", A), ("b", "data", B)]));
    servers.serve(B, names(&[("a", "data", A), ("b", "data", B)]));
    let alone = client(&servers, config(&[A]), plain());
    ready(&alone, 2).await;
    alone.send(&Request::get("/"), PATIENCE).await.unwrap();
    assert_eq!((rounds(&servers, &[A]), alone.pool().status().servers.len()), (0, 1));
    let asked = client(&servers, Config { sniff: Some(true), ..config(&[A]) }, plain());
    ready(&asked, 4).await;
    assert_eq!(asked.pool().status().servers.len(), 2);
}

#[tokio::test]
async fn pl_141_if_no_sniffed_address_can_be_reached_the_seeds_stay_and_status_says_why() {
    let servers = ScriptedServers::default();
    let inside: Nodes = &[("a", "data", "172.17.0.2:9200"), ("b", "data", "172.17.0.3:9200")];
    servers.serve(A, names(inside));
    servers.serve(B, names(inside));
    let client = client(&servers, config(&[A, B]), plain());
    ready(&client, 4).await;
    eventually("the error is in the status", || client.pool().status().discovery_error.is_some()).await;
    let message = client.pool().status().discovery_error.unwrap();
    for part in
        ["10.0.0.", "published 2 servers of which none can be reached", "172.17.0.", "refused", "turn sniffing off"]
    {
        assert!(message.contains(part), "{part} in {message}");
    }
    let up = |id: &str| (id.to_owned(), ServerState::Up);
    assert_eq!(states(&client), [up(A), up(B)]);
    assert_eq!(client.send(&Request::get("/"), PATIENCE).await.unwrap().status, 200);
    // Once one of them can be reached, the published addresses are used.
    servers.serve("172.17.0.3:9200", names(inside));
    client.pool().control().refresh();
    eventually("they are taken", || client.pool().status().servers.iter().any(|one| one.server.id.as_str() == "b"))
        .await;
    eventually("nothing is wrong", || client.pool().status().discovery_error.is_none()).await;
}

#[tokio::test]
async fn pl_141_addresses_are_translated_before_they_are_tried() {
    let servers = ScriptedServers::default();
    let inside: Nodes = &[("a", "data", "172.17.0.2:9200"), ("b", "data", "172.17.0.3:9200")];
    servers.serve(C, names(inside));
    servers.serve(D, names(inside));
    servers.serve(A, names(inside));
    let table = [("172.17.0.2:9200", C), ("172.17.0.3:9200", D)];
    let table = table.map(|(from, to)| (from.parse().unwrap(), to.parse().unwrap())).into();
    let config = Config { sniff: Some(true), translate: Translate { table, hook: None }, ..config(&[A]) };
    let client = client(&servers, config, plain());
    eventually("both are found", || states(&client) == ["a", "b"].map(|id| (id.to_owned(), ServerState::Up))).await;
    eventually("the seed has gone", || servers.open(A) <= 1).await;
    assert!(servers.dialled(C) >= 2 && servers.dialled(D) >= 2);
}

#[tokio::test]
async fn pl_141_a_description_that_cannot_be_read_changes_nothing() {
    let servers = ScriptedServers::default();
    let good = names(&[("a", "data", A), ("b", "data", B)]);
    servers.serve(A, good.clone());
    servers.serve(B, good);
    let client = client(&servers, config(&[A, B]), plain());
    let found = || states(&client) == ["a", "b"].map(|id| (id.to_owned(), ServerState::Up));
    eventually("both are found", found).await;
    for nonsense in [
        r#"{"nodes":[]}"#.to_owned(),
        "[".repeat(5000),
        format!("{{\"nodes\":{{}},\"x\":\"{}\"}}", "y".repeat(3 << 20)),
    ] {
        let before = client.pool().counters().rounds_failed;
        let answering = answer("200 OK", &nonsense);
        for at in [A, B] {
            let answering = answering.clone();
            servers.serve(at, move |received| match received.target.as_str() {
                "/_nodes/http" => vec![Act::Send(answering.clone())],
                _ => ok("{}"),
            });
        }
        client.pool().control().refresh();
        eventually("a round has failed", || client.pool().counters().rounds_failed > before).await;
        assert!(found());
        assert_eq!(client.send(&Request::get("/"), PATIENCE).await.unwrap().status, 200);
    }
}

/// PL-86
#[tokio::test]
async fn pl_142_a_lost_request_is_retried_elsewhere_only_if_it_is_idempotent() {
    let servers = ScriptedServers::default();
    servers.serve(A, |_| vec![Act::Close]);
    servers.serve(B, |_| ok("{}"));
    // Enough connections: each request closes one to the first server.
    let settings = Settings { retry_budget: 100, connections_per_server: Some(4), ..plain() };
    let client = client(&servers, Config { sniff: Some(false), ..config(&[A, B]) }, settings);
    ready(&client, 8).await;
    let mut bulk = Bulk::default();
    bulk.index("books", "1", 1, &json!({})).unwrap();
    let send = async |request: &Request| {
        let want = request.want(PATIENCE).near([ServerId::new(A)]);
        client.pool().with(want, |connection| async move { connection.send(request).await }).await
    };
    assert_eq!(send(&Request::get("/")).await.unwrap().status, 200);
    assert_eq!(send(&Request::bulk(bulk)).await.unwrap().status, 200);
    let error = send(&Request::post("/books/_doc", "{}")).await.unwrap_err();
    assert_eq!((error.executed, error.transient()), (Execution::Unknown, false), "{error}");
    assert!(error.to_string().starts_with(A), "{error}");
    let reached = |at: &str| servers.received(at).into_iter().map(|received| received.target).collect::<Vec<_>>();
    assert_eq!(reached(A), ["/", "/_bulk", "/books/_doc"]);
    assert_eq!(reached(B), ["/", "/_bulk"]);
}

fn throttled(header: &'static str) -> impl Fn(&ReceivedRequest) -> Vec<Act> + Send + Sync + 'static {
    move |_| {
        let head = format!("HTTP/1.1 429 Too Many Requests\r\n{header}content-length: 2\r\n\r\n{{}}");
        vec![Act::Send(head.into_bytes())]
    }
}

#[tokio::test]
async fn pl_142_a_throttling_server_gets_few_requests_and_another_is_used() {
    let servers = ScriptedServers::default();
    servers.serve(A, throttled(""));
    servers.serve(B, |_| ok("{}"));
    servers.serve(C, |_| ok("{}"));
    let settings = Settings { retry_budget: 100, ..plain() };
    let client = client(&servers, Config { sniff: Some(false), ..config(&[A, B, C]) }, settings);
    ready(&client, 6).await;
    // Although it is not idempotent, it may be retried elsewhere: a throttled request was not executed.
    let write = Request::post("/books/_doc", "{}");
    for _ in 0..40 {
        assert_eq!(client.send(&write, PATIENCE).await.unwrap().status, 200);
    }
    let asked = servers.received(A).len();
    assert!((1..=10).contains(&asked), "{asked}");
    assert_eq!(states(&client)[0], (A.to_owned(), ServerState::Suspect));
}

#[tokio::test]
async fn pl_142_a_request_throttled_everywhere_says_when_to_retry() {
    for (header, expected) in [
        ("retry-after: 7\r\n", 7),
        ("date: Sun, 09 Sep 2001 01:46:55 GMT\r\nretry-after: Sun, 09 Sep 2001 01:47:04 GMT\r\n", 9),
        ("retry-after: soon\r\n", 1),
        ("", 1),
    ] {
        let servers = ScriptedServers::default();
        servers.serve(A, throttled(header));
        let client = client(&servers, config(&[A]), plain());
        ready(&client, 2).await;
        let error = client.send(&Request::get("/"), PATIENCE).await.unwrap_err();
        assert_eq!(
            (error.kind, error.retry_after),
            (Kind::Server(429), Some(Duration::from_secs(expected))),
            "{header}"
        );
        assert!(error.transient());
    }
}

#[tokio::test]
async fn pl_142_gateway_errors_count_for_health_and_wrong_requests_do_not() {
    for (status, suspect) in [
        ("502 Bad Gateway", true),
        ("503 Service Unavailable", true),
        ("504 Gateway Timeout", true),
        ("400 Bad Request", false),
        ("404 Not Found", false),
        ("409 Conflict", false),
        ("413 Payload Too Large", false),
    ] {
        let servers = ScriptedServers::default();
        servers.serve(A, move |_| vec![Act::Send(answer(status, "{}"))]);
        // If half of the servers fail, the pool suspects none of them.
        servers.serve(B, |_| ok("{}"));
        servers.serve(C, |_| ok("{}"));
        let client = client(&servers, Config { sniff: Some(false), ..config(&[A, B, C]) }, plain());
        ready(&client, 6).await;
        let server = client.pool().status().servers.into_iter().find(|one| one.server.to_string() == A).unwrap().server;
        for _ in 0..8 {
            let want = Request::get("/").want(PATIENCE).on(&server);
            let request = Request::get("/");
            let request = &request;
            let failed = client.pool().with(want, |connection| async move { connection.send(request).await }).await;
            assert!(matches!(failed.unwrap_err().cause.as_ref().unwrap().cause, Cause::Refused(_)));
        }
        let state = states(&client)[0].1;
        assert_eq!(state == ServerState::Suspect, suspect, "{status}");
    }
}
