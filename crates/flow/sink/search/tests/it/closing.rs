//! How connections end, and how names are looked up while connecting. Sockets are counted at the stream, requests at
//! the server.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use honeyflow_pool::{Connection as _, Connector, Dial, Kind, Limits, Pool, Server, Settings};
use honeyflow_sink_search::{Client, Config, Http, Request, Search};
use tokio::{
    io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf},
    sync::{Notify, watch},
    time::Instant,
};

use crate::{
    LIMITS, PATIENCE, eventually,
    http2::{CountGuard, TestServer},
    plain, within,
};

/// Dials a test server and counts the streams that have not been dropped.
#[derive(Clone)]
struct CountingDialer {
    server: TestServer,
    open: watch::Sender<usize>,
}

struct CountedStream {
    stream: DuplexStream,
    _open: CountGuard,
}

impl CountingDialer {
    fn new(http: Http) -> CountingDialer {
        let mut server = TestServer::plain();
        server.speaks_http2 = http == Http::Two;
        CountingDialer { server, open: watch::channel(0).0 }
    }
}

impl Dial for CountingDialer {
    type Stream = CountedStream;

    async fn dial(&self, to: SocketAddr, within: Duration) -> io::Result<CountedStream> {
        let stream = self.server.dial(to, within).await?;
        Ok(CountedStream { stream, _open: CountGuard::new(self.open.clone()) })
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

fn config(http: Http, server: &str) -> Config {
    Config { http, ..Config::of_urls(&[format!("http://{server}")]).unwrap() }
}

const AT: &str = "10.0.0.1:9200";

/// PL-5: in both versions of HTTP, with a request in flight.
#[tokio::test]
async fn pl_5_a_closed_connection_has_no_open_socket() {
    for http in [Http::One, Http::Two] {
        let servers = CountingDialer::new(http);
        let search = Search::dialling(config(http, AT), servers.clone());
        let to = Server::at(AT.parse().unwrap());
        let connection = Arc::new(within("connected", search.connect(&to, LIMITS)).await.unwrap());
        let asking = tokio::spawn({
            let connection = connection.clone();
            async move { connection.send(&Request::get("/wait")).await.is_ok() }
        });
        eventually("it is under way", || *servers.server.waiting.borrow() == 1).await;
        connection.close(Instant::now() + PATIENCE).await;
        assert_eq!(*servers.open.borrow(), 0, "{http:?}");
        assert!(!within("an end", asking).await.unwrap(), "{http:?}");
    }
}

/// PL-140: the connection is replaced, and closed when its last request has its answer.
#[tokio::test]
async fn pl_140_a_refused_login_does_not_end_other_requests_in_flight() {
    let servers = CountingDialer::new(Http::Two);
    let config = config(Http::Two, AT);
    let settings = Settings { connections_per_server: Some(1), ..config.settings(plain()) };
    let client = Client::over(Pool::start(Search::dialling(config, servers.clone()), settings).unwrap());
    assert!(client.pool().control().ready(1, Instant::now() + PATIENCE).await);
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.send(&Request::get("/wait"), PATIENCE).await.map(|answer| answer.body) }
    });
    eventually("it is under way", || *servers.server.waiting.borrow() == 1).await;
    let error = client.send(&Request::get("/who"), PATIENCE).await.unwrap_err();
    assert_eq!(error.kind, Kind::Login, "{error}");
    eventually("another has been opened", || *servers.open.borrow() == 2).await;
    let next = client.send(&Request::get("/next"), PATIENCE).await.unwrap();
    assert_eq!(next.body, "/next");
    servers.server.gate.send_replace(true);
    assert_eq!(within("its answer", waiting).await.unwrap().unwrap(), "/wait");
    assert_eq!(client.pool().counters().retries, 0, "it was asked once");
    eventually("the first is closed", || *servers.open.borrow() == 1).await;
    assert_eq!(servers.server.dialled.available_permits(), 2);
}

/// PL-140: a server that is about to restart takes no new requests, and answers those in flight.
#[tokio::test]
async fn pl_140_a_goaway_does_not_end_requests_in_flight() {
    let servers = CountingDialer::new(Http::Two);
    let config = config(Http::Two, AT);
    let settings = Settings { connections_per_server: Some(1), ..config.settings(plain()) };
    let client = Client::over(Pool::start(Search::dialling(config, servers.clone()), settings).unwrap());
    assert!(client.pool().control().ready(1, Instant::now() + PATIENCE).await);
    let wait = |path: &'static str| {
        let client = client.clone();
        tokio::spawn(async move { client.send(&Request::get(path), PATIENCE).await.map(|answer| answer.body) })
    };
    let waiting = [wait("/wait/one"), wait("/wait/two")];
    eventually("both are under way", || *servers.server.waiting.borrow() == 2).await;
    servers.server.goodbyes.send_replace(1);
    eventually("another has been opened", || *servers.open.borrow() == 2).await;
    let next = within("an answer", client.send(&Request::get("/next"), PATIENCE)).await.unwrap();
    assert_eq!(next.body, "/next");
    assert_eq!((*servers.server.waiting.borrow(), *servers.open.borrow()), (2, 2), "they are under way still");
    servers.server.gate.send_replace(true);
    for (waiting, path) in waiting.into_iter().zip(["/wait/one", "/wait/two"]) {
        assert_eq!(within("its answer", waiting).await.unwrap().unwrap(), path);
    }
    assert_eq!(client.pool().counters().retries, 0, "each was asked once");
    eventually("the first is closed", || *servers.open.borrow() == 1).await;
    assert_eq!(servers.server.dialled.available_permits(), 2);
}

/// Dials a test server and resolves names as the test says.
struct NameResolver {
    server: TestServer,
    /// The address of every name; `None` = no look-up ever ends.
    known: Option<SocketAddr>,
    /// A name whose look-up never ends.
    silent: &'static str,
    asked: Notify,
}

impl Dial for NameResolver {
    type Stream = DuplexStream;

    async fn dial(&self, to: SocketAddr, within: Duration) -> io::Result<DuplexStream> {
        // The look-up must run at the same time as the dial.
        self.asked.notified().await;
        self.server.dial(to, within).await
    }

    async fn look_up(&self, name: &str) -> io::Result<Vec<SocketAddr>> {
        self.asked.notify_one();
        match self.known {
            Some(address) if name != self.silent => Ok(vec![address]),
            _ => std::future::pending().await,
        }
    }
}

/// PL-12: a name server that never answers takes no time from the handshake.
#[tokio::test]
async fn pl_12_a_name_is_looked_up_while_its_server_is_dialled() {
    let at: SocketAddr = AT.parse().unwrap();
    let limits = Limits { tcp: Duration::from_millis(50), ..LIMITS };
    for (known, called) in [(Some(at), "search.example.com:9200"), (None, AT)] {
        let named = NameResolver { server: TestServer::plain(), known, silent: "", asked: Notify::new() };
        let search = Search::dialling(config(Http::Two, "search.example.com:9200"), named);
        let connection = within("connected", search.connect(&Server::at(at), limits)).await.unwrap();
        assert_eq!(connection.send(&Request::get("/host")).await.unwrap().body, called);
    }
}

/// PL-12: a name that is never resolved does not prevent another one from being used, and the first resolved name wins.
#[tokio::test]
async fn pl_12_names_are_looked_up_together() {
    let at: SocketAddr = AT.parse().unwrap();
    let names = ["one.example.com", "two.example.com", "three.example.com"];
    for (silent, called) in [("one.example.com:9200", "two"), ("two.example.com:9200", "one"), ("", "one")] {
        // Only a name before the resolved one is waited for.
        let limits = Limits { tcp: if called == "two" { Duration::from_millis(50) } else { PATIENCE }, ..LIMITS };
        let named = NameResolver { server: TestServer::plain(), known: Some(at), silent, asked: Notify::new() };
        let urls: Vec<String> = names.iter().map(|name| format!("http://{name}:9200")).collect();
        let config = Config { http: Http::Two, ..Config::of_urls(&urls).unwrap() };
        let search = Search::dialling(config, named);
        let connection = within("connected", search.connect(&Server::at(at), limits)).await.unwrap();
        let host = connection.send(&Request::get("/host")).await.unwrap().body;
        assert_eq!(host, format!("{called}.example.com:9200"), "silent: {silent}");
    }
}

/// PL-140: the pool can see at once, before it lends the connection, that it takes no more requests.
#[tokio::test]
async fn pl_140_a_goaway_is_known_without_a_request() {
    for http in [Http::One, Http::Two] {
        let servers = CountingDialer::new(http);
        let search = Search::dialling(config(http, AT), servers.clone());
        let to = Server::at(AT.parse().unwrap());
        let connection = Arc::new(within("connected", search.connect(&to, LIMITS)).await.unwrap());
        assert!(connection.takes_more());
        if http == Http::One {
            continue;
        }
        let asking = tokio::spawn({
            let connection = connection.clone();
            async move { connection.send(&Request::get("/wait")).await.map(|answer| answer.body) }
        });
        eventually("it is under way", || *servers.server.waiting.borrow() == 1).await;
        servers.server.goodbyes.send_replace(1);
        within("a GOAWAY frame", connection.takes_no_more()).await;
        assert!(!connection.takes_more() && !connection.broken());
        servers.server.gate.send_replace(true);
        assert_eq!(within("its answer", asking).await.unwrap().unwrap(), "/wait");
    }
}
