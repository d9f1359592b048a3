//! What a protocol brings: how to connect, what a connection can carry, whether it lives, and what an error means.
//!
//! The pool calls nothing here while it holds its lock, except those methods of a [`Connection`] that do no I/O: `streams`,
//! `broken`, `takes_more` and `answered_wrongly`. Every future may be dropped at any point.

use std::{error::Error, future::Future, io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::mpsc,
    time::Instant,
};

use crate::{
    error::{Executed, Kind},
    server::{Server, ServerId},
    settings::{SettingsError, Table, unknown},
};

/// How long the parts of connecting may take. The pool enforces the sum; a connector can name the part that was too slow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Until the stream is open.
    pub tcp: Duration,
    /// From there until the first request may be sent: TLS, handshake, login.
    pub ready: Duration,
    /// The longest a write may stand still before the connection counts as dead.
    pub write: Duration,
    /// The longest a server may owe a sign of life (`heartbeat-timeout`): for sockets that can watch over that themselves.
    pub silence: Duration,
}

/// A protocol: opens connections, asks them who else is there, and judges errors.
pub trait Connector: Send + Sync + 'static {
    type Connection: Connection;
    type Error: Error + Send + Sync + 'static;

    /// Opens one connection, ready for requests.
    fn connect(
        &self,
        to: &Server,
        limits: Limits,
    ) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;

    /// Registers for notices, then returns. Called on the discovery connection alone, before [`Connector::discover`].
    /// A connector without notices keeps this default: open, and silent.
    fn watch(&self, on: &Self::Connection) -> impl Future<Output = Result<mpsc::Receiver<Notice>, Self::Error>> + Send {
        let _ = on;
        let (sender, receiver) = mpsc::channel(1);
        async move {
            // The channel must stay open: a closed one says that the connection is lost.
            tokio::spawn(async move { sender.closed().await });
            Ok(receiver)
        }
    }

    /// All servers of the cluster, the answering one among them. An empty answer counts as a failed one.
    fn discover(&self, on: &Self::Connection) -> impl Future<Output = Result<Vec<Server>, Self::Error>> + Send;

    /// The addresses of `host:port`, asked for with every round. Connectors that dial by a [`Dial`] ask that.
    fn look_up(&self, name: &str) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        look_up(name)
    }

    /// What an error of a connect or a use means.
    fn verdict(&self, error: &Self::Error) -> Verdict;

    /// Its own part of the settings: the tables that stand below the pool's, by name. Told once before anything is opened
    /// and again with every change. Taken whole or refused whole; what is refused changes nothing, here or in the pool.
    ///
    /// # Errors
    /// All that is wrong. A connector without settings of its own keeps this default, which knows no table.
    fn configure(&self, own: &Table) -> Result<(), SettingsError> {
        let wrong: Vec<_> = own.keys().map(|key| (key.clone(), unknown(key))).collect();
        if wrong.is_empty() { Ok(()) } else { Err(SettingsError { wrong }) }
    }

    /// What it counts itself, by name: totals since it was made, which never go down. They are shown with the pool's own.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What people should know about the cluster, for the status: what was asked for and cannot be had.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }
}

/// One connection. Methods take `&self`: a shared connection is used by many requests at once.
pub trait Connection: Send + Sync + 'static {
    /// How many requests it carries at once: 1 = exclusive. Asked once, when it has been opened.
    fn streams(&self) -> u32 {
        1
    }

    /// Whether it is known to be of no more use. Cheap, no I/O: it is asked at every hand-off.
    fn broken(&self) -> bool;

    /// Whether the server takes anything new on the connection; what is under way is answered all the same. Cheap, no
    /// I/O: it is asked at every hand-off. Most protocols know no such goodbye; whoever does says it here and by
    /// [`Connection::takes_no_more`], which belongs to it: what nobody asks for would else stay until somebody does.
    fn takes_more(&self) -> bool {
        true
    }

    /// Whether something came that the connection itself took for no answer to what was asked: not of this protocol, or
    /// to a request that nobody made. Such a connection has ended or is about to. It is asked once, when it is let go
    /// of, so of one that never came about nothing is heard.
    fn answered_wrongly(&self) -> bool {
        false
    }

    /// Ends when the connection has ended, for whatever reason. Awaited by one task per connection; on an idle exclusive
    /// connection it may read, since nobody else does.
    fn closed(&self) -> impl Future<Output = ()> + Send;

    /// Ends when [`Connection::takes_more`] says no: the connection is replaced, and closed when the last has its answer.
    fn takes_no_more(&self) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Asks the server for a sign of life; false if there is none by then. On exclusive connections only while idle.
    fn probe(&self, by: Instant) -> impl Future<Output = bool> + Send;

    /// When a byte was last read, if the connection keeps count. Without it the pool goes by the last use.
    fn last_read(&self) -> Option<Instant> {
        None
    }

    /// Says goodbye, if the protocol has one, and closes. After `by` it is dropped in any case.
    fn close(&self, by: Instant) -> impl Future<Output = ()> + Send;
}

/// What a server says about its cluster. Hints: they make the pool look, they decide nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    Up(SocketAddr),
    Down(SocketAddr),
    Added(SocketAddr),
    Removed(SocketAddr),
    Moved(ServerId),
    /// Of no use to the pool, counted all the same.
    Schema,
}

/// Whose doing an error was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    Server,
    Request,
    Caller,
}

/// Whether the same request may be sent again, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Again {
    Never,
    Elsewhere,
    /// On one other server, and then no more.
    ElsewhereOnce,
}

/// A connector's judgement of an error.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Verdict {
    pub kind: Kind,
    pub fault: Fault,
    pub executed: Executed,
    pub again: Again,
    /// Whether it counts against the server's health.
    pub health: bool,
    /// When the server asked to be left alone for a while.
    pub retry_after: Option<Duration>,
}

impl Verdict {
    /// The connection failed under a request: nobody knows whether it was executed.
    pub const fn lost() -> Verdict {
        Verdict {
            kind: Kind::Protocol,
            fault: Fault::Server,
            executed: Executed::Unknown,
            again: Again::Elsewhere,
            health: true,
            retry_after: None,
        }
    }

    /// No connection came about, so nothing was executed.
    pub const fn unreachable() -> Verdict {
        Verdict { kind: Kind::Connect, executed: Executed::No, ..Verdict::lost() }
    }

    /// The server refused who we are. No sign of ill health: a password may be rotating.
    pub const fn login() -> Verdict {
        Verdict { kind: Kind::Login, again: Again::Never, health: false, ..Verdict::unreachable() }
    }

    /// The server answered that the request is wrong.
    pub const fn refused(code: u32) -> Verdict {
        Verdict {
            kind: Kind::Server(code),
            fault: Fault::Request,
            executed: Executed::No,
            again: Again::Never,
            health: false,
            retry_after: None,
        }
    }
}

/// Opens byte streams, and says where names lead. Connectors take one of these, so that tests can give them streams without
/// sockets.
pub trait Dial: Send + Sync + 'static {
    type Stream: AsyncRead + AsyncWrite + Send + Unpin + 'static;

    fn dial(&self, to: SocketAddr, within: Duration) -> impl Future<Output = io::Result<Self::Stream>> + Send;

    /// The addresses of `host:port`. It may take its time: that is the caller's to limit.
    fn look_up(&self, name: &str) -> impl Future<Output = io::Result<Vec<SocketAddr>>> + Send {
        look_up(name)
    }
}

/// As the system does it.
async fn look_up(name: &str) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host(name).await?.collect())
}

/// TCP without delay of small packets.
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
