//! HTTP/2: one connection carries many requests, and a caller that goes away ends only its own.

use std::{
    io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use honeyflow_pool::{Connection, Connector, Dial, Pool, Server, Settings};
use honeyflow_sink_search::{Cause, Client, Config, Error, Http, Request, Search, Tls};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream},
    sync::{Semaphore, watch},
};
use tokio_rustls::TlsAcceptor;

use crate::{LIMITS, PATIENCE, eventually, plain, within};

const AT: &str = "https://10.0.0.1:9200";
const STREAMS: u32 = 7;

/// A test server. It answers `/wait…` when the gate opens, `/who` with 401, `/host` with the name in the request, and
/// everything else with the path.
#[derive(Clone)]
pub struct TestServer {
    tls: Option<TlsAcceptor>,
    /// Whether it speaks HTTP/2; otherwise HTTP/1.1.
    pub speaks_http2: bool,
    pub gate: watch::Sender<bool>,
    /// The first connections, up to this number, get a GOAWAY frame: only requests in flight are still answered.
    pub goodbyes: watch::Sender<usize>,
    pub waiting: watch::Sender<usize>,
    pub dialled: Arc<Semaphore>,
    /// The number of bytes from the server that arrive before the connection breaks.
    breaks_after: Option<u64>,
    /// The number of bytes from the server that have arrived.
    sent: Arc<AtomicU64>,
    /// If set, the server sends only these bytes and closes.
    sends_only: Option<Vec<u8>>,
}

impl TestServer {
    pub fn plain() -> TestServer {
        let (gate, waiting) = (watch::channel(false).0, watch::channel(0).0);
        TestServer {
            tls: None,
            speaks_http2: true,
            gate,
            goodbyes: watch::channel(0).0,
            waiting,
            dialled: Arc::new(Semaphore::new(0)),
            breaks_after: None,
            sent: Arc::default(),
            sends_only: None,
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let (gate, waiting) = (self.gate.clone(), self.waiting.clone());
        let service = service_fn(move |request: http::Request<Incoming>| {
            let (mut open, waiting) = (gate.subscribe(), waiting.clone());
            async move {
                if request.uri().path().starts_with("/wait") {
                    let _here = CountGuard::new(waiting);
                    let _ = open.wait_for(|open| *open).await;
                }
                let status = if request.uri().path() == "/who" { 401 } else { 200 };
                let host = request.headers().get("host").and_then(|host| host.to_str().ok());
                let host = request.uri().authority().map(http::uri::Authority::as_str).or(host);
                let body =
                    if request.uri().path() == "/host" { host.unwrap_or_default() } else { request.uri().path() };
                let mut response = http::Response::new(Full::new(Bytes::from(body.to_owned())));
                *response.status_mut() = http::StatusCode::from_u16(status).expect("a status");
                Ok::<_, io::Error>(response)
            }
        });
        let io = TokioIo::new(stream);
        if self.speaks_http2 {
            let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            let number = self.dialled.available_permits();
            let mut goodbyes = self.goodbyes.subscribe();
            let mut serving = pin!(builder.max_concurrent_streams(STREAMS).serve_connection(io, service));
            tokio::select! {
                _ = &mut serving => return,
                _ = goodbyes.wait_for(|goodbyes| *goodbyes >= number) => serving.as_mut().graceful_shutdown(),
            }
            let _ = serving.await;
        } else {
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
        }
    }
}

impl TestServer {
    /// Forwards both directions and breaks both after `bytes` from the server.
    fn relay(&self, far: DuplexStream, bytes: u64) -> DuplexStream {
        let (server, mut between) = tokio::io::duplex(4096);
        let sent = self.sent.clone();
        tokio::spawn(async move {
            let (mut from_client, mut to_client) = tokio::io::split(far);
            let (from, mut to) = tokio::io::split(&mut between);
            let mut from_server = from.take(bytes);
            let answering = async {
                let mut chunk = [0; 256];
                while let Ok(length @ 1..) = from_server.read(&mut chunk).await {
                    sent.fetch_add(length as u64, Ordering::SeqCst);
                    let _ = to_client.write_all(&chunk[..length]).await;
                }
            };
            tokio::select! {
                () = answering => {}
                _ = tokio::io::copy(&mut from_client, &mut to) => {}
            }
        });
        server
    }
}

pub struct CountGuard(watch::Sender<usize>);

impl CountGuard {
    pub fn new(count: watch::Sender<usize>) -> CountGuard {
        count.send_modify(|count| *count += 1);
        CountGuard(count)
    }
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Dial for TestServer {
    type Stream = DuplexStream;

    async fn dial(&self, _to: SocketAddr, _within: Duration) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(4096);
        self.dialled.add_permits(1);
        let server = self.clone();
        let far = match self.breaks_after {
            None => far,
            Some(bytes) => self.relay(far, bytes),
        };
        tokio::spawn(async move {
            if let Some(bytes) = &server.sends_only {
                let (mut from_client, mut to_client) = tokio::io::split(far);
                let _ = to_client.write_all(bytes).await;
                let _ = to_client.shutdown().await;
                let _ = tokio::io::copy(&mut from_client, &mut tokio::io::sink()).await;
                return;
            }
            match &server.tls {
                None => server.clone().serve(far).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(far).await {
                        server.clone().serve(stream).await;
                    }
                }
            }
        });
        Ok(near)
    }
}

fn config(http: Http) -> Config {
    Config { http, tls: None, ..Config::of_urls(&[AT]).unwrap() }
}

async fn connect(server: &TestServer, config: Config) -> Result<honeyflow_sink_search::Connection, Error> {
    let to = Server::at("10.0.0.1:9200".parse().unwrap());
    within("connected", Search::dialling(config, server.clone()).connect(&to, LIMITS)).await
}

#[tokio::test]
async fn pl_140_http2_is_shared_as_far_as_the_server_allows() {
    let server = TestServer::plain();
    let config = config(Http::Two);
    let settings = Settings { connections_per_server: Some(1), ..config.settings(plain()) };
    let client = Client::over(Pool::start(Search::dialling(config, server.clone()), settings).unwrap());
    assert!(client.pool().control().ready(1, tokio::time::Instant::now() + PATIENCE).await);
    let requests: Vec<_> = (0..STREAMS + 3)
        .map(|at| {
            let client = client.clone();
            let path = format!("/wait/{at}");
            tokio::spawn(async move { (client.send(&Request::get(&path), PATIENCE).await.unwrap().body, path) })
        })
        .collect();
    eventually("as many as it allows", || *server.waiting.borrow() == STREAMS as usize).await;
    eventually("the others wait", || client.pool().status().waiting.iter().sum::<usize>() == 3).await;
    server.gate.send_replace(true);
    for request in requests {
        let (body, path) = within("answered", request).await.unwrap();
        assert_eq!(body, path);
    }
    assert_eq!(server.dialled.available_permits(), 1);
}

#[tokio::test]
async fn pl_140_a_caller_that_leaves_ends_its_stream_and_not_the_connection() {
    let server = TestServer::plain();
    let connection = connect(&server, config(Http::Two)).await.unwrap();
    assert_eq!(connection.streams(), STREAMS);
    let request = Request::get("/wait");
    let leaving = tokio::time::timeout(Duration::from_millis(20), connection.send(&request)).await;
    assert!(leaving.is_err());
    // The server learns that the caller has gone.
    eventually("it has stopped", || *server.waiting.borrow() == 0).await;
    assert!(!connection.broken());
    assert_eq!(connection.send(&Request::get("/next")).await.unwrap().body, "/next");
    connection.close(tokio::time::Instant::now() + PATIENCE).await;
    assert!(connection.broken());
    let error = connection.send(&Request::get("/")).await.unwrap_err();
    assert!(matches!(error.cause, Cause::NotSent(_)), "{error}");
}

/// PL-165
#[tokio::test]
async fn pl_140_an_http2_connection_that_breaks_at_any_byte_gives_no_half_answer() {
    let exchange = async |breaks_after| {
        let server = TestServer { breaks_after: Some(breaks_after), ..TestServer::plain() };
        let connection = connect(&server, config(Http::Two)).await?;
        let answer = within("an end", connection.send(&Request::get("/answer"))).await?;
        Ok::<_, Error>((answer.body, server.sent.load(Ordering::SeqCst)))
    };
    let whole = exchange(u64::MAX).await.unwrap().1;
    assert!(whole > 60, "{whole}");
    let mut broken = 0;
    for end in 0..whole {
        match exchange(end).await {
            // The last bytes do not belong to the answer.
            Ok((body, _)) => assert_eq!(body, "/answer"),
            Err(error) => {
                assert!(error.to_string().starts_with("10.0.0.1:9200 "), "{error}");
                assert!(matches!(error.cause, Cause::Lost(_) | Cause::NotSent(_) | Cause::Malformed(_)), "{error}");
                broken += 1;
            }
        }
    }
    assert!(broken > 60, "{broken}");
}

#[tokio::test]
async fn pl_140_a_server_that_does_not_speak_http2_gives_an_error_that_names_it() {
    for bytes in
        [&b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"[..], b"\0\0\0\0\0\0\0\0\0", &[0xff; 4096], b""]
    {
        let error = connect(&TestServer { sends_only: Some(bytes.to_vec()), ..TestServer::plain() }, config(Http::Two))
            .await
            .unwrap_err();
        assert!(matches!(error.cause, Cause::Lost(_) | Cause::NotSent(_) | Cause::Malformed(_)), "{error}");
        assert!(error.to_string().starts_with("10.0.0.1:9200 "), "{error}");
    }
}

struct TestCertificate {
    _folder: tempfile::TempDir,
    roots: std::path::PathBuf,
    key: CertifiedKey<rcgen::KeyPair>,
}

/// Makes a certificate for this name, and a file of roots that contains it.
fn certified(name: &str) -> TestCertificate {
    let key = generate_simple_self_signed([name.to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, key.cert.pem()).unwrap();
    TestCertificate { _folder: folder, roots, key }
}

impl TestCertificate {
    fn acceptor(&self, protocols: &[&str]) -> TlsAcceptor {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let private = rustls::pki_types::PrivateKeyDer::try_from(self.key.signing_key.serialize_der()).unwrap();
        let mut config =
            builder.with_no_client_auth().with_single_cert(vec![self.key.cert.der().clone()], private).unwrap();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        TlsAcceptor::from(Arc::new(config))
    }
}

fn secure(http: Http, certified: &TestCertificate, name: Option<&str>) -> Config {
    let tls = Tls { roots: Some(certified.roots.clone()), certificate: None, name: name.map(str::to_owned) };
    Config { tls: Some(tls), ..config(http) }
}

#[tokio::test]
async fn pl_140_tls_agrees_on_the_version() {
    let certified = certified("search.example.com");
    for (http, offered, streams) in [
        (Http::Agreed, &["h2", "http/1.1"][..], STREAMS),
        (Http::Agreed, &["http/1.1"], 1),
        (Http::One, &["h2", "http/1.1"], 1),
        (Http::Two, &["h2"], STREAMS),
    ] {
        let server =
            TestServer { tls: Some(certified.acceptor(offered)), speaks_http2: streams > 1, ..TestServer::plain() };
        let connection = connect(&server, secure(http, &certified, Some("search.example.com"))).await.unwrap();
        assert_eq!(connection.streams(), streams, "{http:?} {offered:?}");
        assert_eq!(connection.send(&Request::get("/x")).await.unwrap().body, "/x");
    }
    let server = TestServer { tls: Some(certified.acceptor(&[])), speaks_http2: false, ..TestServer::plain() };
    let error = connect(&server, secure(Http::Two, &certified, Some("search.example.com"))).await.unwrap_err();
    assert!(matches!(error.cause, Cause::NotHttp2), "{error}");
}

#[tokio::test]
async fn a_certificate_with_another_name_or_from_an_unknown_issuer_is_refused() {
    let (right, other) = (certified("search.example.com"), certified("search.example.com"));
    let server = TestServer { tls: Some(right.acceptor(&["http/1.1"])), speaks_http2: false, ..TestServer::plain() };
    for config in [
        secure(Http::One, &right, Some("elsewhere.example.com")),
        // Without a configured name, the certificate must contain the address.
        secure(Http::One, &right, None),
        secure(Http::One, &other, Some("search.example.com")),
    ] {
        let error = connect(&server, config).await.unwrap_err();
        assert!(matches!(error.cause, Cause::Tls(_)), "{error}");
        assert!(error.to_string().starts_with("10.0.0.1:9200 could not be connected to by TLS"), "{error}");
    }
}
