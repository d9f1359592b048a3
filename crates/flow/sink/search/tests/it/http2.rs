//! HTTP/2: one connection, many requests, and a caller that leaves takes nothing with it.

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

/// A server that answers `/wait…` when the gate opens, `/who` that it knows nobody, `/host` with the name it was called by.
#[derive(Clone)]
pub struct Two {
    tls: Option<TlsAcceptor>,
    /// Whether it speaks HTTP/2 at all.
    pub speaks: bool,
    pub gate: watch::Sender<bool>,
    /// So many connections, from the first on, are told that there will be no more answers than those under way.
    pub goodbyes: watch::Sender<usize>,
    pub waiting: watch::Sender<usize>,
    pub dialled: Arc<Semaphore>,
    /// How many bytes of what it says arrive before the connection breaks.
    breaks_after: Option<u64>,
    /// How many did.
    said: Arc<AtomicU64>,
    /// Instead of anything that it should say; then it closes.
    says: Option<Vec<u8>>,
}

impl Two {
    pub fn plain() -> Two {
        let (gate, waiting) = (watch::channel(false).0, watch::channel(0).0);
        Two {
            tls: None,
            speaks: true,
            gate,
            goodbyes: watch::channel(0).0,
            waiting,
            dialled: Arc::new(Semaphore::new(0)),
            breaks_after: None,
            said: Arc::default(),
            says: None,
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(self, stream: S) {
        let (gate, waiting) = (self.gate.clone(), self.waiting.clone());
        let service = service_fn(move |request: http::Request<Incoming>| {
            let (mut open, waiting) = (gate.subscribe(), waiting.clone());
            async move {
                if request.uri().path().starts_with("/wait") {
                    let _here = Counted::new(waiting);
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
        if self.speaks {
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

impl Two {
    /// Breaks in both directions, as a cable does.
    fn relay(&self, far: DuplexStream, bytes: u64) -> DuplexStream {
        let (server, mut between) = tokio::io::duplex(4096);
        let said = self.said.clone();
        tokio::spawn(async move {
            let (mut asked, mut told) = tokio::io::split(far);
            let (from, mut to) = tokio::io::split(&mut between);
            let mut heard = from.take(bytes);
            let telling = async {
                let mut chunk = [0; 256];
                while let Ok(length @ 1..) = heard.read(&mut chunk).await {
                    said.fetch_add(length as u64, Ordering::SeqCst);
                    let _ = told.write_all(&chunk[..length]).await;
                }
            };
            tokio::select! {
                () = telling => {}
                _ = tokio::io::copy(&mut asked, &mut to) => {}
            }
        });
        server
    }
}

pub struct Counted(watch::Sender<usize>);

impl Counted {
    pub fn new(count: watch::Sender<usize>) -> Counted {
        count.send_modify(|count| *count += 1);
        Counted(count)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Dial for Two {
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
            if let Some(says) = &server.says {
                let (mut asked, mut told) = tokio::io::split(far);
                let _ = told.write_all(says).await;
                let _ = told.shutdown().await;
                let _ = tokio::io::copy(&mut asked, &mut tokio::io::sink()).await;
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

async fn connect(server: &Two, config: Config) -> Result<honeyflow_sink_search::Connection, Error> {
    let to = Server::at("10.0.0.1:9200".parse().unwrap());
    within("connected", Search::dialling(config, server.clone()).connect(&to, LIMITS)).await
}

#[tokio::test]
async fn pl_140_http2_is_shared_as_far_as_the_server_allows() {
    let server = Two::plain();
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
async fn pl_140_a_caller_that_leaves_takes_its_stream_and_not_the_connection() {
    let server = Two::plain();
    let connection = connect(&server, config(Http::Two)).await.unwrap();
    assert_eq!(connection.streams(), STREAMS);
    let request = Request::get("/wait");
    let leaving = tokio::time::timeout(Duration::from_millis(20), connection.send(&request)).await;
    assert!(leaving.is_err());
    // The server is told that nobody waits.
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
        let server = Two { breaks_after: Some(breaks_after), ..Two::plain() };
        let connection = connect(&server, config(Http::Two)).await?;
        let answer = within("an end", connection.send(&Request::get("/answer"))).await?;
        Ok::<_, Error>((answer.body, server.said.load(Ordering::SeqCst)))
    };
    let whole = exchange(u64::MAX).await.unwrap().1;
    assert!(whole > 60, "{whole}");
    let mut broken = 0;
    for end in 0..whole {
        match exchange(end).await {
            // The last bytes are of no answer.
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
async fn pl_140_what_is_no_http2_is_an_error_that_names_the_server() {
    for said in
        [&b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n"[..], b"\0\0\0\0\0\0\0\0\0", &[0xff; 4096], b""]
    {
        let error = connect(&Two { says: Some(said.to_vec()), ..Two::plain() }, config(Http::Two)).await.unwrap_err();
        assert!(matches!(error.cause, Cause::Lost(_) | Cause::NotSent(_) | Cause::Malformed(_)), "{error}");
        assert!(error.to_string().starts_with("10.0.0.1:9200 "), "{error}");
    }
}

struct Certified {
    _folder: tempfile::TempDir,
    roots: std::path::PathBuf,
    key: CertifiedKey<rcgen::KeyPair>,
}

/// A certificate for this name, and a file that makes it believed.
fn certified(name: &str) -> Certified {
    let key = generate_simple_self_signed([name.to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let roots = folder.path().join("roots.pem");
    std::fs::write(&roots, key.cert.pem()).unwrap();
    Certified { _folder: folder, roots, key }
}

impl Certified {
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

fn secure(http: Http, certified: &Certified, name: Option<&str>) -> Config {
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
        let server = Two { tls: Some(certified.acceptor(offered)), speaks: streams > 1, ..Two::plain() };
        let connection = connect(&server, secure(http, &certified, Some("search.example.com"))).await.unwrap();
        assert_eq!(connection.streams(), streams, "{http:?} {offered:?}");
        assert_eq!(connection.send(&Request::get("/x")).await.unwrap().body, "/x");
    }
    let server = Two { tls: Some(certified.acceptor(&[])), speaks: false, ..Two::plain() };
    let error = connect(&server, secure(Http::Two, &certified, Some("search.example.com"))).await.unwrap_err();
    assert!(matches!(error.cause, Cause::NotHttp2), "{error}");
}

#[tokio::test]
async fn a_certificate_of_another_name_or_of_a_stranger_is_refused() {
    let (right, other) = (certified("search.example.com"), certified("search.example.com"));
    let server = Two { tls: Some(right.acceptor(&["http/1.1"])), speaks: false, ..Two::plain() };
    for config in [
        secure(Http::One, &right, Some("elsewhere.example.com")),
        // Without a name its address must be in it.
        secure(Http::One, &right, None),
        secure(Http::One, &other, Some("search.example.com")),
    ] {
        let error = connect(&server, config).await.unwrap_err();
        assert!(matches!(error.cause, Cause::Tls(_)), "{error}");
        assert!(error.to_string().starts_with("10.0.0.1:9200 could not be connected to by TLS"), "{error}");
    }
}
