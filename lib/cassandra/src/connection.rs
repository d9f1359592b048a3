//! One connection that carries many requests at once.
//!
//! A separate task owns the socket. Handles send it messages over a bounded channel and wait for the answers. A caller
//! that stops waiting leaves an orphan: its stream stays in use until the answer has come, so no late answer reaches
//! another request. The lender of a connection on loan knows every request of it, orphans included.

mod handshake;
mod login;
mod prepare;
mod request;
mod settings;
mod streams;
mod tls;
mod transport;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use honeyflow_pool::Loan;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout_at};

use crate::cluster::Cluster;
use crate::error::{Cause, Error};
use crate::wire::{Answer, Compression, Notice, Request, Topic, Version};
use transport::{Exchange, SharedGuard, Transport};

pub use honeyflow_tls::Tls;
pub use login::{Dialogue, Login, Password, Secret};
pub use settings::{Settings, Versions};

/// The largest number of unread notices. More are dropped, since a notice is only a hint to run discovery.
const NOTICES_MAX: usize = 64;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    /// Set while the connection is on loan; every request holds it until its answer has come.
    guard: Option<SharedGuard>,
    /// The holder of the loan enforces the deadline of every request.
    timed: bool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.shared, f)
    }
}

#[derive(Debug)]
struct Shared {
    /// The name of the server in errors.
    server: Arc<str>,
    version: Version,
    compression: Compression,
    streams_max: u16,
    /// The keyspace of names without one.
    keyspace: Option<String>,
    requests: mpsc::Sender<Exchange>,
    /// The reason of the end; `None` while the connection is open.
    ended: watch::Receiver<Option<Arc<Cause>>>,
    closing: watch::Sender<Option<Instant>>,
    notices: std::sync::Mutex<Option<mpsc::Receiver<Notice>>>,
    tally: Arc<Tally>,
    /// The cluster's counter of statements that were prepared again.
    forgotten: OnceLock<Arc<AtomicU64>>,
}

/// The state of the transport task that handles can read.
#[derive(Debug)]
struct Tally {
    begun: Instant,
    in_flight: AtomicU32,
    orphans: AtomicU32,
    /// Milliseconds after `begun`.
    last_read: AtomicU64,
    /// There are too many orphans, or one is too old: the connection takes no new request.
    unusable: AtomicBool,
    /// The connection has ended. Read at every checkout, so it must not need a lock.
    over: AtomicBool,
    notices_dropped: AtomicU64,
    /// The server sent something that is not an answer to a request.
    wrong: AtomicBool,
}

impl Tally {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            in_flight: AtomicU32::new(0),
            orphans: AtomicU32::new(0),
            last_read: AtomicU64::new(0),
            unusable: AtomicBool::new(false),
            over: AtomicBool::new(false),
            notices_dropped: AtomicU64::new(0),
            wrong: AtomicBool::new(false),
        }
    }

    fn read_now(&self) {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_read.store(elapsed, Ordering::Relaxed);
    }
}

/// Tells whether a connection has ended, without keeping it open.
#[derive(Debug)]
pub(crate) struct Liveness(watch::Receiver<Option<Arc<Cause>>>);

impl Liveness {
    pub fn has_ended(&self) -> bool {
        self.0.borrow().is_some() || self.0.has_changed().is_err()
    }
}

/// The time limits of connecting.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The time until the stream is open.
    pub tcp: Duration,
    /// The time from then until the first request can be sent: TLS, versions, login, keyspace.
    pub ready: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tcp: Duration::from_millis(500), ready: Duration::from_secs(2) }
    }
}

impl Connection {
    /// Connects to a server by TCP. If the server refuses a version of the protocol, tries the next lower one on a new
    /// stream.
    pub async fn connect(to: SocketAddr, settings: &Settings, limits: Limits) -> Result<Self, Error> {
        let server: Arc<str> = to.to_string().into();
        Self::connect_as(&server, settings, limits, || tcp(to, settings, limits.tcp)).await
    }

    /// Connects over streams of any kind. Prepared statements are remembered under the name `server`.
    pub async fn connect_as<S, F>(
        server: &Arc<str>,
        settings: &Settings,
        limits: Limits,
        dial: impl Fn() -> F,
    ) -> Result<Self, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        F: Future<Output = std::io::Result<S>>,
    {
        let mut version = settings.versions.highest;
        loop {
            let stream = dial().await.map_err(|error| Cause::Connect(Arc::new(error)).at(server))?;
            let by = Instant::now() + limits.ready;
            let opened = match &settings.tls {
                None => open(stream, version, server, settings, by, limits.ready).await,
                Some(tls) => {
                    let secured = async {
                        let stream = timeout_at(by, tls::secure(tls, stream, server)).await;
                        stream.map_err(|_| Cause::Silent { asked: "the TLS handshake", within: limits.ready })?
                    };
                    match secured.await {
                        Ok(stream) => open(stream, version, server, settings, by, limits.ready).await,
                        Err(cause) => Err(cause),
                    }
                }
            };
            match (opened, version.lower().filter(|lower| *lower >= settings.versions.lowest)) {
                (Ok(connection), _) => return Ok(connection),
                (Err(Cause::Version { .. }), Some(lower)) => version = lower,
                (Err(cause), _) => return Err(cause.at(server)),
            }
        }
    }

    /// Returns a handle for the time of a loan: the pool counts each request until its answer has come. Each request
    /// has its own deadline, as without a loan.
    ///
    /// ```no_run
    /// # use honeyflow_cassandra::{Connection, Options, Session, session::Error};
    /// # async fn example(session: &Session) -> Result<(), Error> {
    /// let how = Options::default();
    /// let mut loan = session.pool().get(Default::default()).await?;
    /// let answer = Connection::of_loan(&mut loan).query("SELECT now() FROM system.local", &how).await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn of_loan(loan: &mut Loan<Cluster>) -> Self {
        let guard: SharedGuard = Arc::new(loan.in_flight());
        Self { shared: Arc::clone(&loan.shared), guard: Some(guard), timed: false }
    }

    /// Returns a handle for use inside `Pool::with`, which enforces the deadline itself: a request needs only one
    /// timer.
    pub(crate) fn of_timed_loan(loan: &mut Loan<Cluster>) -> Self {
        Self { timed: true, ..Self::of_loan(loan) }
    }

    /// The name of the server in errors.
    pub fn server(&self) -> &Arc<str> {
        &self.shared.server
    }

    pub fn version(&self) -> Version {
        self.shared.version
    }

    /// The negotiated compression; it may differ from the requested one.
    pub fn compression(&self) -> Compression {
        self.shared.compression
    }

    /// The largest number of concurrent requests.
    pub fn streams_max(&self) -> u16 {
        self.shared.streams_max
    }

    /// The number of requests that were sent and not answered yet, orphans included.
    pub fn in_flight(&self) -> u32 {
        self.shared.tally.in_flight.load(Ordering::Relaxed)
    }

    /// The number of them whose caller has gone, counted once a second.
    pub fn orphans(&self) -> u32 {
        self.shared.tally.orphans.load(Ordering::Relaxed)
    }

    pub fn last_read(&self) -> Instant {
        let tally = &self.shared.tally;
        tally.begun + Duration::from_millis(tally.last_read.load(Ordering::Relaxed))
    }

    /// Whether the connection has ended, or has too many orphans and takes no new request.
    pub fn broken(&self) -> bool {
        let tally = &self.shared.tally;
        tally.over.load(Ordering::Acquire) || tally.unusable.load(Ordering::Relaxed)
    }

    /// Whether the server sent something that is not an answer to a request; the connection gets no further request.
    pub fn answered_wrongly(&self) -> bool {
        self.shared.tally.wrong.load(Ordering::Relaxed)
    }

    /// Waits until the connection has ended.
    pub async fn closed(&self) {
        let mut ended = self.shared.ended.clone();
        let _ = ended.wait_for(Option::is_some).await;
    }

    /// Returns a value that tells whether the connection has ended, without keeping it open.
    pub(crate) fn liveness(&self) -> Liveness {
        Liveness(self.shared.ended.clone())
    }

    /// Sets the counter of statements that have to be prepared again.
    pub(crate) fn count_forgotten(&self, count: &Arc<AtomicU64>) {
        let _ = self.shared.forgotten.set(Arc::clone(count));
    }

    /// Returns the reason of the end, if the connection has ended.
    pub fn ended(&self) -> Option<Error> {
        let cause = self.shared.ended.borrow().clone();
        cause.map(|cause| (*cause).clone().at(&self.shared.server))
    }

    /// Sends a request that every server answers, and returns whether the answer came in time.
    pub async fn probe(&self, by: Instant) -> bool {
        matches!(self.send(&Request::Options, by, false).await, Ok(response) if matches!(response.answer, Answer::Supported(_)))
    }

    /// Takes no more requests, lets those in flight finish until `by`, and closes the connection.
    pub async fn close(&self, by: Instant) {
        self.shared.closing.send_replace(Some(by));
        self.closed().await;
    }

    /// Subscribes to the server's notices about its cluster. A second call on the same connection gets an empty
    /// channel.
    pub async fn listen(&self, by: Instant) -> Result<mpsc::Receiver<Notice>, Error> {
        let notices = self.shared.notices.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        let response = self.send(&Request::Register(&Topic::ALL), by, false).await?;
        match response.answer {
            Answer::Ready => Ok(notices.unwrap_or_else(|| mpsc::channel(1).1)),
            other => Err(Cause::Unexpected { asked: "REGISTER", got: other.name() }.at(&self.shared.server)),
        }
    }
}

async fn open<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
    version: Version,
    server: &Arc<str>,
    settings: &Settings,
    by: Instant,
    within: Duration,
) -> Result<Connection, Cause> {
    let ready = handshake::Handshake::new(stream, version, settings, by, within).run().await?;
    let (requests, received) = mpsc::channel(settings.queue_max);
    let keyspace = settings.keyspace.clone();
    let (end, ended) = watch::channel(None);
    let (closing, close) = watch::channel(None);
    let (notify, notices) = mpsc::channel(NOTICES_MAX);
    let tally = Arc::new(Tally::new());
    let compression = ready.compression;
    let transport = Transport::new(ready, received, notify, Arc::clone(&tally), settings);
    tokio::spawn(transport.run(close, end));
    let shared = Shared {
        server: Arc::clone(server),
        version,
        compression,
        streams_max: settings.streams_max,
        keyspace,
        requests,
        ended,
        closing,
        notices: Some(notices).into(),
        tally,
        forgotten: OnceLock::new(),
    };
    Ok(Connection { shared: Arc::new(shared), guard: None, timed: false })
}

pub(crate) async fn tcp(to: SocketAddr, settings: &Settings, within: Duration) -> std::io::Result<TcpStream> {
    let late = |_| {
        let text = format!("no connection was accepted within {within:?}");
        std::io::Error::new(std::io::ErrorKind::TimedOut, text)
    };
    let stream = tokio::time::timeout(within, TcpStream::connect(to)).await.map_err(late)??;
    bound_dead_peers(&stream, settings.dead_after)?;
    Ok(stream)
}

/// Makes the socket send small messages at once, and makes the kernel detect a peer that has vanished.
pub fn bound_dead_peers(stream: &TcpStream, dead_after: Duration) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = socket2::SockRef::from(stream);
    // The kernel counts these in whole seconds.
    let (time, interval) = (dead_after.max(SECOND), (dead_after / 4).max(SECOND));
    socket.set_tcp_keepalive(&socket2::TcpKeepalive::new().with_time(time).with_interval(interval))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(dead_after))?;
    Ok(())
}
