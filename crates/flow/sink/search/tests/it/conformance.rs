//! PL-143: the conformance suite of pool connectors, on HTTP/1.1 with exclusive connections and on HTTP/2 with shared
//! ones. The servers are hyper's, over streams in memory.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use honeyflow_pool::{Dial, Loan, Pool, Server, Settings, SettingsError, testing::Rig};
use honeyflow_sink_search::{Config, Connection, Error, Http, Request, Search};
use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::{io::DuplexStream, sync::watch};

const STREAMS: u32 = 16;

/// Servers by address. A dial to a stopped server, or to any other address, is refused.
#[derive(Clone)]
pub struct Cluster {
    hosts: Arc<BTreeMap<SocketAddr, Host>>,
    /// The list of servers that each of them sends.
    listing: watch::Sender<String>,
    two: bool,
}

#[derive(Default)]
struct Host {
    stopped: watch::Sender<bool>,
    silent: watch::Sender<bool>,
    open: Arc<AtomicUsize>,
    accepted: AtomicUsize,
}

fn address(at: usize) -> SocketAddr {
    ([10, 0, 0, 1], 9200 + u16::try_from(at).unwrap()).into()
}

impl Cluster {
    fn new(servers: usize, two: bool) -> Cluster {
        let hosts = (0..servers).map(|at| (address(at), Host::default()));
        Cluster { hosts: Arc::new(hosts.collect()), listing: watch::Sender::default(), two }
    }

    fn tell(&self, cluster: &[usize]) {
        let node = |at: &usize| (format!("node-{at}"), json!({"http": {"publish_address": address(*at).to_string()}}));
        let nodes: serde_json::Map<_, _> = cluster.iter().map(node).collect();
        self.listing.send_replace(json!({ "nodes": nodes }).to_string());
    }

    fn config(&self) -> Config {
        let urls: Vec<String> = self.hosts.keys().map(|address| format!("http://{address}")).collect();
        Config { http: if self.two { Http::Two } else { Http::One }, ..Config::of_urls(&urls).unwrap() }
    }

    fn host(&self, at: usize) -> &Host {
        &self.hosts[&address(at)]
    }
}

async fn answer(
    request: http::Request<Incoming>,
    listing: watch::Receiver<String>,
    mut silent: watch::Receiver<bool>,
) -> io::Result<Response<Full<Bytes>>> {
    let _ = silent.wait_for(|silent| !silent).await;
    let mut response = Response::new(Full::new(Bytes::from_static(b"{}")));
    match request.uri().path() {
        "/hang" => std::future::pending().await,
        "/refuse" => *response.status_mut() = StatusCode::NOT_FOUND,
        "/_nodes/http" => *response.body_mut() = Full::new(listing.borrow().clone().into()),
        _ => {}
    }
    Ok(response)
}

async fn serve(stream: DuplexStream, two: bool, listing: watch::Receiver<String>, silent: watch::Receiver<bool>) {
    let service = service_fn(move |request| answer(request, listing.clone(), silent.clone()));
    let io = TokioIo::new(stream);
    if two {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = builder.max_concurrent_streams(STREAMS).serve_connection(io, service).await;
    } else {
        let _ = hyper::server::conn::http1::Builder::new().serve_connection(io, service).await;
    }
}

impl Dial for Cluster {
    type Stream = DuplexStream;

    async fn dial(&self, to: SocketAddr, _within: Duration) -> io::Result<DuplexStream> {
        let host = self.hosts.get(&to).ok_or(io::ErrorKind::ConnectionRefused)?;
        let (mut stopped, open, two) = (host.stopped.subscribe(), host.open.clone(), self.two);
        if *stopped.borrow() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = tokio::io::duplex(64 * 1024);
        let (listing, silent) = (self.listing.subscribe(), host.silent.subscribe());
        host.accepted.fetch_add(1, Ordering::SeqCst);
        open.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            tokio::select! {
                () = serve(far, two, listing, silent) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(near)
    }
}

async fn ask(on: &Connection, path: &str) -> Result<(), Error> {
    on.send(&Request::get(path)).await.map(drop)
}

macro_rules! rig {
    ($rig:ident, $two:expr) => {
        pub struct $rig(Cluster);

        impl Rig for $rig {
            type Connector = Search<Cluster>;

            async fn start(servers: usize) -> $rig {
                $rig(Cluster::new(servers, $two))
            }

            fn pool(&self, settings: Settings) -> Result<Pool<Search<Cluster>>, SettingsError> {
                Pool::start(Search::dialling(self.0.config(), self.0.clone()), settings)
            }

            fn server(&self, at: usize) -> Server {
                Server::at(address(at))
            }

            async fn ask(loan: Loan<Search<Cluster>>) -> Result<(), Error> {
                ask(&loan, "/").await
            }

            async fn hang(loan: Loan<Search<Cluster>>) -> Result<(), Error> {
                ask(&loan, "/hang").await
            }

            async fn refuse(loan: Loan<Search<Cluster>>) -> Result<(), Error> {
                ask(&loan, "/refuse").await
            }

            async fn ask_once(on: &Connection) -> Result<(), Error> {
                ask(on, "/").await
            }

            async fn stop(&self, at: usize) {
                self.0.host(at).stopped.send_replace(true);
            }

            async fn restart(&self, at: usize) {
                self.0.host(at).stopped.send_replace(false);
            }

            fn tell(&self, cluster: &[usize]) {
                self.0.tell(cluster);
            }

            fn silence(&self, at: usize, silent: bool) {
                self.0.host(at).silent.send_replace(silent);
            }

            fn open(&self, at: usize) -> usize {
                self.0.host(at).open.load(Ordering::SeqCst)
            }

            fn accepted(&self, at: usize) -> usize {
                self.0.host(at).accepted.load(Ordering::SeqCst)
            }
        }
    };
}

rig!(Http1Rig, false);
rig!(Http2Rig, true);

mod one {
    honeyflow_pool::conformance!(super::Http1Rig);
}

mod two {
    honeyflow_pool::conformance!(super::Http2Rig);
}
