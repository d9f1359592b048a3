//! One connection that carries many requests at once.
//!
//! A task of its own owns the socket; handles send it messages over a bounded channel and wait for their answers. Who
//! stops waiting leaves an orphan: its stream stays taken until the answer has come, so no late answer reaches another.
//! Of a connection on loan every request is known to the lender, also those that nobody waits for any more.

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
use transport::{Exchange, Guard, Transport};

pub use honeyflow_tls::Tls;
pub use login::{Dialogue, Login, Password, Secret};
pub use settings::{Settings, Versions};

/// Notices that nobody has taken yet; more are dropped, since a notice is only a hint to look.
const NOTICES_MAX: usize = 64;
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Connection {
    shared: Arc<Shared>,
    /// While it is on loan: goes with every request until the answer has come.
    guard: Option<Guard>,
    /// Whoever has the loan ends every request in time.
    timed: bool,
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Debug::fmt(&self.shared, f)
    }
}

#[derive(Debug)]
struct Shared {
    /// As errors name it.
    server: Arc<str>,
    version: Version,
    compression: Compression,
    streams_max: u16,
    /// What names without a keyspace mean.
    keyspace: Option<String>,
    requests: mpsc::Sender<Exchange>,
    /// Why it ended.
    ended: watch::Receiver<Option<Arc<Cause>>>,
    closing: watch::Sender<Option<Instant>>,
    notices: std::sync::Mutex<Option<mpsc::Receiver<Notice>>>,
    tally: Arc<Tally>,
    /// Of a cluster: statements that were prepared again.
    forgotten: OnceLock<Arc<AtomicU64>>,
}

/// What the transport tells about itself while it runs.
#[derive(Debug)]
struct Tally {
    begun: Instant,
    in_flight: AtomicU32,
    orphans: AtomicU32,
    /// Milliseconds after `begun`.
    last_read: AtomicU64,
    /// Too many orphans, or one too old: it takes nothing new.
    worn: AtomicBool,
    /// It has ended. Asked at every checkout, so nobody is to wait for a lock here.
    over: AtomicBool,
    notices_dropped: AtomicU64,
    /// Something came that was no answer to what was asked.
    wrong: AtomicBool,
}

impl Tally {
    fn new() -> Self {
        Self {
            begun: Instant::now(),
            in_flight: AtomicU32::new(0),
            orphans: AtomicU32::new(0),
            last_read: AtomicU64::new(0),
            worn: AtomicBool::new(false),
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

/// Whether a connection has ended.
#[derive(Debug)]
pub(crate) struct Life(watch::Receiver<Option<Arc<Cause>>>);

impl Life {
    pub fn is_over(&self) -> bool {
        self.0.borrow().is_some() || self.0.has_changed().is_err()
    }
}

/// How long the parts of connecting may take.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Until the stream is open.
    pub tcp: Duration,
    /// From there until the first request may be sent: TLS, versions, login, keyspace.
    pub ready: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { tcp: Duration::from_millis(500), ready: Duration::from_secs(2) }
    }
}

impl Connection {
    /// Connects to a server by TCP. A refused version of the protocol is followed by the next lower one, on a new stream.
    pub async fn connect(to: SocketAddr, settings: &Settings, limits: Limits) -> Result<Self, Error> {
        let server: Arc<str> = to.to_string().into();
        Self::connect_as(&server, settings, limits, || tcp(to, settings, limits.tcp)).await
    }

    /// The same over streams of any kind. What the server has prepared is remembered under its name.
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
                Some(how) => {
                    let secured = async {
                        let stream = timeout_at(by, tls::secure(how, stream, server)).await;
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

    /// The same connection, for as long as it is on loan: the pool knows of each request until its answer has come. Each has
    /// its own deadline, as without a loan.
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
        let guard: Guard = Arc::new(loan.in_flight());
        Self { shared: Arc::clone(&loan.shared), guard: Some(guard), timed: false }
    }

    /// The same inside `Pool::with`, which ends in time whatever runs in it: one timer for each request is enough.
    pub(crate) fn in_with(loan: &mut Loan<Cluster>) -> Self {
        Self { timed: true, ..Self::of_loan(loan) }
    }

    /// As errors name it.
    pub fn server(&self) -> &Arc<str> {
        &self.shared.server
    }

    pub fn version(&self) -> Version {
        self.shared.version
    }

    /// What was agreed on; may be another than the one that was asked for.
    pub fn compression(&self) -> Compression {
        self.shared.compression
    }

    /// How many requests it carries at once.
    pub fn streams_max(&self) -> u16 {
        self.shared.streams_max
    }

    /// Requests that were sent and not answered yet, orphans included.
    pub fn in_flight(&self) -> u32 {
        self.shared.tally.in_flight.load(Ordering::Relaxed)
    }

    /// Those of them whose caller has gone, as of the last look (once a second).
    pub fn orphans(&self) -> u32 {
        self.shared.tally.orphans.load(Ordering::Relaxed)
    }

    pub fn last_read(&self) -> Instant {
        let tally = &self.shared.tally;
        tally.begun + Duration::from_millis(tally.last_read.load(Ordering::Relaxed))
    }

    /// It has ended, or is worn out: nothing new should be sent.
    pub fn broken(&self) -> bool {
        let tally = &self.shared.tally;
        tally.over.load(Ordering::Acquire) || tally.worn.load(Ordering::Relaxed)
    }

    /// Something came that was no answer to what was asked: it gets no further request.
    pub fn answered_wrongly(&self) -> bool {
        self.shared.tally.wrong.load(Ordering::Relaxed)
    }

    /// Ends when the connection has.
    pub async fn closed(&self) {
        let mut ended = self.shared.ended.clone();
        let _ = ended.wait_for(Option::is_some).await;
    }

    /// Tells whether it has ended, without keeping it open.
    pub(crate) fn life(&self) -> Life {
        Life(self.shared.ended.clone())
    }

    /// Where statements are counted that have to be prepared again.
    pub(crate) fn count_forgotten(&self, count: &Arc<AtomicU64>) {
        let _ = self.shared.forgotten.set(Arc::clone(count));
    }

    /// Why it ended, if it has.
    pub fn ended(&self) -> Option<Error> {
        let cause = self.shared.ended.borrow().clone();
        cause.map(|cause| (*cause).clone().at(&self.shared.server))
    }

    /// Asks for a sign of life.
    pub async fn probe(&self, by: Instant) -> bool {
        matches!(self.send(&Request::Options, by, false).await, Ok(response) if matches!(response.answer, Answer::Supported(_)))
    }

    /// Takes no more requests, lets those under way finish until then, and closes.
    pub async fn close(&self, by: Instant) {
        self.shared.closing.send_replace(Some(by));
        self.closed().await;
    }

    /// Has the server tell about its cluster from now on; the second call on a connection gets an empty channel.
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

/// Small messages go at once, and a peer that is gone without a word is noticed by the kernel.
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
