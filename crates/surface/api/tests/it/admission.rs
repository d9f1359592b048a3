//! The admission of requests: hosts, origins, paths, methods.

use honeyflow_api::ROUTES;
use tokio::io::AsyncWriteExt as _;

use crate::harness::{answer, event, start};

#[tokio::test]
async fn se_8_the_routes_are_exactly_these() {
    let committed = [
        "GET /",
        "GET /static/<hash>.js",
        "GET /static/<hash>.css",
        "GET /health",
        "GET /ready",
        "GET /metrics",
        "GET /v1/status",
        "GET /v1/search",
        "GET /v1/runs",
        "GET /v1/live",
        "POST /v1/events",
        "POST /v1/pools",
    ];
    assert_eq!(ROUTES.map(|(method, path)| format!("{method} {path}")), committed);
    let server = start().await;
    for path in
        ["/debug", "/debug/pprof", "/config", "/v1/workflows", "/v1/config", "/v1", "/v1/", "/static", "/static/"]
    {
        assert_eq!(server.get(path).await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn se_7_a_foreign_host_is_refused_on_every_route() {
    let server = start().await;
    for (method, path) in ROUTES {
        let path = path.replace("<hash>", "0123456789abcdef");
        for host in ["evil.example", "evil.example:7171", "127.0.0.1.evil.example", "localhost.evil.example", ""] {
            let asked = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n");
            assert_eq!(server.send(asked).await.status, 403, "{method} {path} {host}");
        }
    }
    let several = "GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n";
    assert_eq!(server.send(several).await.status, 403);
    assert_eq!(server.send("GET / HTTP/1.0\r\n\r\n").await.status, 403, "no host at all");
    assert_eq!(server.send("GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n").await.status, 403);
    for host in ["127.0.0.1", "localhost:7171", "LOCALHOST", "[::1]:7171"] {
        let asked = format!("GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(server.send(asked).await.status, 200, "{host}");
    }
}

#[tokio::test]
async fn se_7_a_foreign_host_is_refused_on_an_admitted_connection() {
    let server = start().await;
    let mut stream = server.connect().await;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    assert_eq!(answer(&mut stream).await.status, 200);
    stream.write_all(b"GET /v1/status HTTP/1.1\r\nHost: evil.example\r\n\r\n").await.unwrap();
    assert_eq!(answer(&mut stream).await.status, 403);
}

#[tokio::test]
async fn se_7_state_changes_come_from_our_own_page_or_from_no_page() {
    let server = start().await;
    let body = event("1").to_string();
    for lines in [
        "Origin: https://evil.example\r\n",
        "Origin: null\r\n",
        "Origin: http://localhost:3000\r\n",
        "Origin: https://localhost:7171\r\n",
        "Origin: http://localhost:7171\r\nOrigin: https://evil.example\r\n",
        "Sec-Fetch-Site: cross-site\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Origin: http://localhost:7171\r\nSec-Fetch-Site: cross-site\r\n",
    ] {
        let answer = server.post_with(lines, &body).await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "foreign-origin"), "{lines}");
    }
    assert_eq!(server.stored(), 0);
    for lines in [
        "",
        "Origin: http://localhost:7171\r\n",
        "Origin: http://localhost:7171\r\nSec-Fetch-Site: same-origin\r\n",
        "Sec-Fetch-Site: none\r\n",
    ] {
        assert_eq!(server.post_with(lines, &body).await.status, 202, "{lines}");
    }
}

#[tokio::test]
async fn se_7_a_foreign_page_neither_watches_nor_searches() {
    let server = start().await;
    for path in ["/v1/live", "/v1/search?q=a", "/v1/status"] {
        let asked = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n");
        assert_eq!(server.send(asked).await.status, 403, "{path}");
    }
    let link = "GET / HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: cross-site\r\n\r\n";
    assert_eq!(server.send(link).await.status, 200, "a link to the first page works");
}

#[tokio::test]
async fn se_10_no_other_spelling_of_a_path_leads_anywhere() {
    let server = start().await;
    for path in [
        "//",
        "//health",
        "/health/",
        "/health//",
        "/Health",
        "/HEALTH",
        "/V1/status",
        "/v1//status",
        "/v1/status/",
        "/v1/./status",
        "/v1/../v1/status",
        "/static/../v1/status",
        "/v1%2fstatus",
        "/v1%2Fstatus",
        "/%761/status",
        "/v1/status;x=1",
        "/v1/status%00",
        "/v1/status%20",
        "/v1/status/configs",
        "/configs",
        "/health/configs",
        "/..%2f..%2fetc%2fpasswd",
        "/static/../../Cargo.toml",
        "/static/page.js",
        "/v1/events/",
        "/v1\\status",
        "*",
    ] {
        let answer = server.get(path).await;
        assert!(matches!(answer.status, 404 | 400), "{path}: {answer:?}");
    }
    let connect = "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost:80\r\n\r\n";
    assert_eq!(server.send(connect).await.status, 404);
}

#[tokio::test]
async fn se_10_only_the_listed_method_is_answered() {
    let server = start().await;
    for (listed, path) in ROUTES.into_iter().filter(|(_, path)| !path.contains('<')) {
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
            if method == listed {
                continue;
            }
            let asked = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
            let answer = server.send(asked).await;
            assert_eq!((answer.status, answer.header("allow")), (405, listed), "{method} {path}");
            assert_eq!(answer.header("access-control-allow-origin"), "");
        }
    }
}

#[tokio::test]
async fn errors_are_json_for_programs_and_a_page_for_people() {
    let server = start().await;
    let program = server.get("/v1/nothing").await;
    assert_eq!(program.header("content-type"), "application/json");
    let error = &program.json()["error"];
    assert!(error["code"] == "not-found" && error["message"].is_string() && error["hint"].is_string(), "{error}");
    let person = server.get("/nothing").await;
    assert!(person.header("content-type").starts_with("text/html") && person.body.contains("<h1>404"), "{person:?}");
}
