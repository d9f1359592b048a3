//! The accept loop. It is our own, because the bounds of SE-18 apply before there is a request.

use std::{
    collections::HashMap,
    convert::Infallible,
    future::Future,
    io,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{body::Body, http::Response};
use hyper::{Request, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore, watch},
    task::JoinSet,
};

use crate::{
    admission,
    answer::{Refusal, with_common_headers},
    events::EventEndpoint,
    live, metrics,
    node::Node,
    page::{self, Assets},
    pool, readiness,
    route::Route,
    runs,
    sample::Sampler,
    search::Searches,
    status,
    wire::{Serving, Wire},
};

/// The size of a request line with its headers above which the protocol parser refuses it. It is above our own limits,
/// so that our own check refuses first, with a reason.
const HEAD_BYTES_MAX: usize = 32 << 10;
/// How long answers in flight may take when the node stops.
const GRACE: Duration = Duration::from_secs(2);
/// The wait after a failed accept (no file descriptors): the listener stays ready, so without it the loop would spin.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);

/// The state that all requests share.
pub(crate) struct App {
    pub node: Arc<Node>,
    pub assets: Assets,
    pub sampler: Sampler,
    pub searches: Searches,
    pub events: EventEndpoint,
    pub live: live::Live,
}

/// Serves until `shutdown` completes, then waits a moment for the answers in flight.
///
/// # Errors
/// If the listener has no address, which means that it is closed.
pub async fn serve(
    listener: TcpListener,
    node: Arc<Node>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    listener.local_addr()?;
    let limits = node.limits.clone();
    let (stop, stopped) = watch::channel(false);
    let app = Arc::new(App {
        assets: Assets::new(),
        sampler: Sampler::new(node.clone()),
        searches: Searches::new(limits.searches_max),
        events: EventEndpoint::new(limits.bodies_bytes_max),
        live: live::Live::new(limits.live_clients_max, stopped.clone()),
        node,
    });
    let total = Arc::new(Semaphore::new(limits.connections_max));
    let peers = Peers::default();
    let mut connections = JoinSet::new();
    connections.spawn(live::run(app.clone(), stopped.clone()));
    connections.spawn(readiness::run(app.clone(), stopped.clone()));
    tokio::pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            // Remove ended connections from the set, or it would only grow.
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_AGAIN).await;
                continue;
            }
        };
        // Above a bound the connection is closed without an answer, which would cost what the bound saves.
        let Ok(permit) = total.clone().try_acquire_owned() else { continue };
        let Some(seat) = peers.seat(peer.ip(), limits.connections_per_peer_max) else { continue };
        connections.spawn(connection(app.clone(), stream, stopped.clone(), (permit, seat)));
    }
    drop(listener);
    stop.send_replace(true);
    let ended = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(GRACE, ended).await.is_err() {
        connections.shutdown().await;
    }
    Ok(())
}

async fn connection(
    app: Arc<App>,
    stream: TcpStream,
    mut stopped: watch::Receiver<bool>,
    _held: (OwnedSemaphorePermit, Seat),
) {
    let _ = stream.set_nodelay(true);
    let serving = Serving::default();
    let limits = &app.node.limits;
    let wire = Wire::new(stream, serving.clone(), limits.headers_timeout, limits.idle_timeout);
    let service = service_fn(|request: Request<Incoming>| {
        let (app, serving) = (app.clone(), serving.clone());
        async move {
            serving.begin();
            let answer = answer(&app, request).await.map(|body| serving.until_sent(body));
            Ok::<_, Infallible>(answer)
        }
    });
    let mut builder = http1::Builder::new();
    // The wire enforces the deadlines.
    builder.max_buf_size(HEAD_BYTES_MAX).header_read_timeout(None);
    let served = builder.serve_connection(TokioIo::new(wire), service);
    tokio::pin!(served);
    let result = tokio::select! {
        result = &mut served => result,
        () = until_stopped(&mut stopped) => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Waits until the node stops.
pub(crate) async fn until_stopped(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped, which happens only when serving has ended.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}

async fn answer(app: &Arc<App>, request: Request<Incoming>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let answered = match admission::admit(&parts, &app.node.limits, &app.assets) {
        Ok(route) => dispatch(app, route, &parts, body).await,
        Err(refusal) => Err(refusal),
    };
    with_common_headers(answered.unwrap_or_else(|refusal| refusal.answer(parts.uri.path())))
}

async fn dispatch(
    app: &Arc<App>,
    route: Route,
    parts: &axum::http::request::Parts,
    body: Incoming,
) -> Result<Response<Body>, Refusal> {
    if route.is_traffic() {
        app.node.engage();
    }
    match route {
        Route::Page => page::answer(app, &parts.uri).await,
        Route::Script => Ok(app.assets.script.answer()),
        Route::Style => Ok(app.assets.style.answer()),
        Route::Health => Ok(status::health()),
        Route::Ready => Ok(status::ready(app).await),
        Route::Metrics => metrics::answer(app).await,
        Route::Status => Ok(status::status(app).await),
        Route::Search => app.searches.answer(&app.node, &parts.uri).await,
        Route::Runs => runs::answer(&app.node, &parts.uri).await,
        Route::Live => app.live.answer(),
        Route::Events => app.events.answer(app, parts, body).await,
        Route::Pools => pool::answer(app, parts, body).await,
    }
}

/// The number of connections of each peer.
#[derive(Clone, Default)]
struct Peers(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection of a peer; it no longer counts when this is dropped.
struct Seat {
    peers: Peers,
    peer: IpAddr,
}

impl Peers {
    fn seat(&self, peer: IpAddr, max: usize) -> Option<Seat> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(peer).or_default();
        if *count >= max {
            return None;
        }
        *count += 1;
        Some(Seat { peers: self.clone(), peer })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut counts = self.peers.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}
