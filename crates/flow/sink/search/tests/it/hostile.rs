//! Answers that are cut, damaged, endless or not HTTP at all: the request gets a typed error that names the server, the
//! connection is lost, and nothing else happens.

use honeyflow_pool::{Connection, Connector, Execution};
use honeyflow_sink_search::{Cause, Config, Request, Search};

use crate::{
    config, connect, error_chain,
    scripted::{Act, ScriptedServers, WELL, answer, ok},
    within,
};

const AT: &str = "10.0.0.1:9200";

/// Connects to a healthy server that answers `/` with these bytes.
async fn answered_with(
    bytes: Vec<u8>,
    then: Act,
) -> (honeyflow_sink_search::Connection, Result<u16, honeyflow_sink_search::Error>) {
    let servers = ScriptedServers::default();
    servers.serve(AT, move |_| vec![Act::Send(bytes.clone()), then.clone()]);
    let connection = connect(&servers, Config { answer_bytes_max: 1 << 20, ..config(&[AT]) }).await.unwrap();
    let answer = within("an end", connection.send(&Request::get("/"))).await;
    (connection, answer.map(|answer| answer.status))
}

/// PL-165 PL-177
#[tokio::test]
async fn pl_140_an_answer_cut_at_any_byte_is_never_taken_as_complete() {
    let chunked =
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n3; x=y\r\n yo\r\n0\r\nt: v\r\n\r\n"
            .to_vec();
    let interim = [b"HTTP/1.1 100 Continue\r\n\r\n".to_vec(), answer("200 OK", "{}")].concat();
    let refusal = answer("429 Too Many Requests", r#"{"error":{"type":"circuit_breaking_exception"}}"#);
    for whole in [answer("200 OK", r#"{"took":1}"#), chunked, interim, refusal] {
        for end in 0..whole.len() {
            let (connection, answer) = answered_with(whole[..end].to_vec(), Act::Close).await;
            let error = answer.unwrap_err();
            assert!(matches!(error.cause, Cause::Lost(_) | Cause::Malformed(_)), "{end}: {error}");
            assert!(error.to_string().starts_with("10.0.0.1:9200 "), "{error}");
            let verdict = Search::new(config(&[AT])).verdict(&error);
            assert_eq!((verdict.executed, verdict.health), (Execution::Unknown, true), "{end}");
            assert!(connection.broken());
            assert_eq!(connection.answered_wrongly(), matches!(error.cause, Cause::Malformed(_)), "{error}");
        }
        let (_, answer) = answered_with(whole, Act::Close).await;
        assert!(answer.is_ok() || answer.unwrap_err().status() == Some(429));
    }
}

#[tokio::test]
async fn pl_140_an_invalid_answer_is_an_error_that_names_the_server() {
    let long_line = format!("HTTP/1.1 200 OK\r\nx: {}\r\ncontent-length: 0\r\n\r\n", "y".repeat(1 << 20));
    let many = (0..500).map(|at| format!("x-{at}: y\r\n")).collect::<String>();
    let many_lines = format!("HTTP/1.1 200 OK\r\n{many}content-length: 0\r\n\r\n");
    let endless_head = format!("HTTP/1.1 200 OK\r\n{}", "x: y\r\n".repeat(1 << 16));
    let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(10_000);
    let mut wrong = 0;
    for text in [
        "",
        "\0\0\0\0",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "\u{15}\u{3}\u{3}\0\u{2}\u{2}(",
        "<html><body>504</body></html>",
        "HTTP/1.1 OK\r\n\r\n",
        "HTTP/1.1 99999 OK\r\n\r\n",
        "HTTP/9.9 200 OK\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1e3\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n-5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello world\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n : empty\r\ncontent-length: 0\r\n\r\n",
        "HTTP/1.1 200 OK\r\n\r\nuntil the end",
        "HTTP/1.0 200 OK\r\n\r\nuntil the end",
        "HTTP/1.1 101 Switching Protocols\r\nupgrade: smtp\r\nconnection: upgrade\r\n\r\n",
        &long_line,
        &many_lines,
        &endless_head,
        &interim,
    ] {
        let (connection, answer) = answered_with(text.as_bytes().to_vec(), Act::Close).await;
        let start: String = text.chars().take(60).collect();
        let Err(error) = answer else { panic!("taken: {start:?}") };
        assert!(error.to_string().starts_with("10.0.0.1:9200 "), "{start:?}: {error}");
        assert!(connection.broken(), "{start:?}");
        wrong += usize::from(connection.answered_wrongly());
    }
    assert!(wrong > 10, "the other servers send nothing, or too little to be recognised as wrong: {wrong}");
}

/// A content length that is too small leaves a tail; the next request must not get it as its answer.
#[tokio::test]
async fn pl_140_the_tail_of_one_answer_reaches_no_other_request() {
    let servers = ScriptedServers::default();
    servers.serve(AT, |received| match received.target.as_str() {
        "/short" => {
            let tail = String::from_utf8(answer("200 OK", "of another")).unwrap();
            vec![Act::Send(format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{{}}{tail}").into_bytes())]
        }
        _ => ok("mine"),
    });
    let connection = connect(&servers, config(&[AT])).await.unwrap();
    assert_eq!(connection.send(&Request::get("/short")).await.unwrap().body, "{}");
    let next = within("an end", connection.send(&Request::get("/next"))).await.unwrap_err();
    assert!(matches!(next.cause, Cause::NotSent(_)), "{next}");
    // With a length that is too large, the request waits for the rest until the server closes the connection.
    let (_, answer) = answered_with(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}".to_vec(), Act::Close).await;
    assert!(matches!(answer.unwrap_err().cause, Cause::Lost(_)));
}

#[tokio::test]
async fn errors_and_their_debug_forms_quote_no_answer() {
    let canary = "canary-in-a-document";
    for (status, body) in [
        (
            "400 Bad Request",
            format!(r#"{{"error":{{"type":"mapper_parsing_exception","reason":"{canary}"}},"status":400}}"#),
        ),
        ("500 Oops", format!(r#"{{"error":{{"type":"{canary} {canary}"}}}}"#)),
        ("503 Gone", canary.to_owned()),
    ] {
        let (_, answer) = answered_with(crate::scripted::answer(status, &body), Act::Close).await;
        let error = answer.unwrap_err();
        let text = format!("{} {error:?}", error_chain(&error));
        assert!(text.contains(&status[..3]) && !text.contains(canary), "{text}");
    }
}

#[tokio::test]
async fn many_small_pieces_are_one_answer() {
    let mut whole = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n".to_vec();
    for _ in 0..20_000 {
        whole.extend_from_slice(b"1\r\nx\r\n");
    }
    whole.extend_from_slice(b"0\r\n\r\n");
    let servers = ScriptedServers::default();
    servers
        .serve_all(AT, move |received| if received.target == "/" { vec![Act::Send(whole.clone())] } else { ok(WELL) });
    let connection = connect(&servers, config(&[AT])).await.unwrap();
    assert_eq!(connection.send(&Request::get("/")).await.unwrap().body.len(), 20_000);
    assert_eq!(connection.send(&Request::get("/_cluster/health")).await.unwrap().body, WELL);
}
