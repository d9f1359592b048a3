//! The traits that a protocol implements: how to connect, how many requests a connection carries, whether it is alive,
//! and what an error means.
//!
//! While the pool holds its lock it calls only those methods of a [`Connection`] that do no I/O: `streams`, `broken`,
//! `takes_more` and `answered_wrongly`. The pool may drop every future at any point.

use std::{error::Error, future::Future, io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::mpsc,
    time::Instant,
};

use crate::{
    error::{Execution, Kind},
    server::{Server, ServerId},
    settings::{SettingsError, Table, unknown},
};

#[expect(deprecated, reason = "the old names keep programs compiling that use them")]
pub use crate::renamed::Again;

/// How long the parts of connecting may take. The pool enforces the sum. A connector that checks them one by one can
/// name the part that was too slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// The time until the stream is open.
    pub tcp: Duration,
    /// The time from the open stream to the first request: TLS, handshake, login.
    pub ready: Duration,
    /// The longest time that a write may make no progress before the connection counts as dead.
    pub write: Duration,
    /// The longest time that a server may owe an answer to a heartbeat (`heartbeat-timeout`), for sockets that can
    /// check that themselves.
    pub silence: Duration,
}

/// A protocol: opens connections, asks a server for the other servers of its cluster, and judges errors.
pub trait Connector: Send + Sync + 'static {
    type Connection: Connection;
    type Error: Error + Send + Sync + 'static;

    /// Opens one connection, ready for requests.
    fn connect(
        &self,
        to: &Server,
        limits: Limits,
    ) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// Registers for notices, then returns. The pool calls this on the discovery connection only, before
    /// [`Connector::discover`]. A connector without notices keeps this default: a channel that stays open and empty.
    fn watch(&self, on: &Self::Connection) -> impl Future<Output = Result<mpsc::Receiver<Notice>, Self::Error>> + Send {
        let _ = on;
        let (sender, receiver) = mpsc::channel(1);
        async move {
            // The channel must stay open: the pool takes a closed one as a lost connection.
            tokio::spawn(async move { sender.closed().await });
            Ok(receiver)
        }
    }

    /// Returns all servers of the cluster, including the one that answers. An empty answer counts as a failure.
    fn discover(&self, on: &Self::Connection) -> impl Future<Output = Result<Vec<Server>, Self::Error>> + Send;

    /// Looks up the addresses of `host:port`, in every discovery round. A connector that uses a [`Dial`] forwards to
    /// it.
    fn look_up(&self, name: &str) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        look_up(name)
    }

    /// Says what an error of a connect or a request means.
    fn verdict(&self, error: &Self::Error) -> Verdict;

    /// Receives the connector's part of the settings: the tables below the pool's own keys, by name. The pool calls
    /// this once before it opens anything, and again with every change. The connector accepts all of it or refuses all
    /// of it; refused settings change nothing, neither here nor in the pool.
    ///
    /// # Errors
    /// Everything that is wrong. A connector without settings keeps this default, which refuses every table.
    fn configure(&self, own: &Table) -> Result<(), SettingsError> {
        let wrong: Vec<_> = own.keys().map(|key| (key.clone(), unknown(key))).collect();
        if wrong.is_empty() { Ok(()) } else { Err(SettingsError { wrong }) }
    }

    /// The connector's own counters, by name: totals since it was created, which never decrease. The pool shows them
    /// beside its own.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Remarks about the cluster for the status, such as a configured feature that the servers do not offer.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One connection. Methods take `&self` because many requests use a shared connection at once.
pub trait Connection: Send + Sync + 'static {
    /// How many requests it carries at once; 1 means exclusive. The pool asks once, after it has opened the connection.
    fn streams(&self) -> u32 {
        1
    }

    /// Whether the connection is known to be unusable. Must be cheap and do no I/O: the pool asks at every hand-off.
    fn broken(&self) -> bool;

    /// Whether the server accepts new requests on the connection; requests in flight are answered in any case. Must be
    /// cheap and do no I/O: the pool asks at every hand-off. Most protocols have no such goodbye. A connection of one
    /// that has it answers here and in [`Connection::takes_no_more`]: without the second, an idle connection would stay
    /// open until a request asks for it.
    fn takes_more(&self) -> bool {
        true
    }

    /// Whether the connection received data that answers no request: not of this protocol, or for a request that was
    /// never sent. Such a connection has ended or is about to end. The pool asks once, when it lets go of the
    /// connection, so it never asks about a connect that failed.
    fn answered_wrongly(&self) -> bool {
        false
    }

    /// Completes when the connection has ended, for any reason. One task per connection awaits it. On an idle exclusive
    /// connection it may read, since no request reads there.
    fn closed(&self) -> impl Future<Output = ()> + Send;

    /// Completes when [`Connection::takes_more`] returns false. The pool then replaces the connection, and closes it
    /// when its last request is answered.
    fn takes_no_more(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Sends a heartbeat; false if there is no answer by then. The pool probes an exclusive connection only while it is
    /// idle.
    fn probe(&self, by: Instant) -> impl Future<Output = bool> + Send;

    /// When a byte was last read, if the connection knows. Without it the pool uses the time of the last heartbeat.
    fn last_read(&self) -> Option<Instant> {
        None
    }

    /// Says goodbye, if the protocol has a goodbye, and closes. After `by` the pool drops the connection in any case.
    fn close(&self, by: Instant) -> impl Future<Output = ()> + Send;
}

/// What a server announces about its cluster. Notices are hints: they make the pool look, and decide nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    Up(SocketAddr),
    Down(SocketAddr),
    Added(SocketAddr),
    Removed(SocketAddr),
    Moved(ServerId),
    /// The schema changed. The pool only counts it.
    Schema,
}

/// Who caused an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Server,
    Request,
    Caller,
}

/// Whether the same request may be sent again, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RetryPolicy {
    Never,
    Elsewhere,
    /// The request may be sent to one other server, once.
    ElsewhereOnce,
}

/// What an error means, in the judgement of the connector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub kind: Kind,
    pub fault: Fault,
    pub executed: Execution,
    pub again: RetryPolicy,
    /// Whether it counts against the server's health.
    pub health: bool,
    /// How long to wait, if the server asked for a pause.
    pub retry_after: Option<Duration>,
}

impl Verdict {
    /// The connection failed during a request: it is unknown whether the server executed it.
    pub const fn lost() -> Verdict {
        Verdict {
            kind: Kind::Protocol,
            fault: Fault::Server,
            executed: Execution::Unknown,
            again: RetryPolicy::Elsewhere,
            health: true,
            retry_after: None,
        }
    }

    /// The connect failed, so nothing was executed.
    pub const fn unreachable() -> Verdict {
        Verdict { kind: Kind::Connect, executed: Execution::No, ..Verdict::lost() }
    }

    /// The server refused our login. This does not count against its health: a password may be rotating.
    pub const fn login() -> Verdict {
        Verdict { kind: Kind::Login, again: RetryPolicy::Never, health: false, ..Verdict::unreachable() }
    }

    /// The server answered that the request is wrong.
    pub const fn refused(code: u32) -> Verdict {
        Verdict {
            kind: Kind::Server(code),
            fault: Fault::Request,
            executed: Execution::No,
            again: RetryPolicy::Never,
            health: false,
            retry_after: None,
        }
    }
}

/// Opens byte streams and looks up names. Connectors are generic over it, so that tests can give them streams without
/// sockets.
pub trait Dial: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn dial(&self, to: SocketAddr, within: Duration) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// Looks up the addresses of `host:port`. The caller limits the time.
    fn look_up(&self, name: &str) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        look_up(name)
    }
}

/// Looks a name up with the system's resolver.
async fn look_up(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host(name).await?.collect())
}

/// TCP with `TCP_NODELAY`.
#[derive(Clone, Copy, Default, Debug)]
pub struct Tcp;

impl Dial for Tcp {
    type Stream = TcpStream;

    async fn dial(&self, to: SocketAddr, within: Duration) -> io::Result<TcpStream> {
        let stream = tokio::time::timeout(within, TcpStream::connect(to)).await.map_err(|_| {
            io::Error::new(io::ErrorKind::TimedOut, format!("{to} did not accept a connection within {within:?}"))
        })??;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}
