//! The headers that every answer has.

use crate::harness::{Answer, Server, event, start};

fn sealed(answer: &Answer, what: &str) {
    assert_eq!(
        answer.header("content-security-policy"),
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; \
         connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
        "{what}: {answer:?}"
    );
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("cross-origin-opener-policy", "same-origin"),
        ("cross-origin-resource-policy", "same-origin"),
    ] {
        assert_eq!(answer.header(name), value, "{what}");
    }
    assert_eq!(answer.header("access-control-allow-origin"), "", "{what}");
}

async fn files(server: &Server) -> Vec<String> {
    let page = server.get("/").await.body;
    let named = page.split('"').filter(|part| part.starts_with("/static/"));
    named.map(str::to_owned).collect()
}

#[tokio::test]
async fn se_34_every_answer_carries_the_headers() {
    let server = start().await;
    for path in ["/", "/health", "/ready", "/metrics", "/v1/status", "/v1/search?q=a", "/v1/runs", "/v1/live"] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        sealed(&answer, path);
        assert_eq!(answer.header("cache-control"), "no-store", "{path}");
    }
    let files = files(&server).await;
    assert_eq!(files.len(), 2);
    for path in &files {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{path}");
        sealed(&answer, path);
        assert!(answer.header("cache-control").contains("immutable"), "the name changes with the content");
        assert!(!answer.body.is_empty());
    }
    sealed(&server.post(event("1").to_string()).await, "202");
    let long = "a".repeat(9 << 10);
    for (status, asked) in [
        (404, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()),
        (404, "GET /v1/nothing HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()),
        (405, "DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()),
        (403, "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned()),
        (400, "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".to_owned()),
        (413, "POST /v1/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5368709120\r\n\r\n".to_owned()),
        (414, format!("GET /?q={long} HTTP/1.1\r\nHost: localhost\r\n\r\n")),
        (431, format!("GET / HTTP/1.1\r\nHost: localhost\r\nX-A: {long}\r\nX-B: {long}\r\n\r\n")),
        (400, "GET /v1/search?limit=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned()),
    ] {
        let answer = server.send(&asked).await;
        assert_eq!(answer.status, status, "{asked:.60}");
        sealed(&answer, &format!("{asked:.40}"));
        assert_eq!(answer.header("cache-control"), "no-store");
    }
    *server.outbox.away.lock().unwrap() = true;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let answer = server.post(event("1").to_string()).await;
    assert_eq!(answer.status, 503);
    sealed(&answer, "503");
}
