//! What can go wrong, in words that do not depend on the protocol.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use honeyflow_runtime::Class;

use crate::{
    connect::{Connector, Fault},
    core::State,
    outage::{Outage, about, brief},
    server::Server,
};

/// Whether the server did what was asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Executed {
    No,
    Yes,
    Unknown,
}

/// What went wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The pool is switched off.
    Disabled,
    /// The pool holds no connections now.
    Inactive,
    /// The pool is being emptied.
    Draining,
    /// The pool's own tasks failed too often.
    Broken,
    /// Nothing was free, and the settings say not to wait.
    NoConnection,
    QueueFull,
    /// The wait would outlast the deadline, so it was not begun.
    WouldTimeOut,
    WaitTimeout,
    UseTimeout,
    UnknownServer,
    ServerDown,
    Connect,
    Login,
    /// The connection failed or spoke nonsense under a request.
    Protocol,
    /// The server answered with an error; its own code.
    Server(u32),
    /// The caller's own doing.
    Caller,
    /// The pool is closed for good.
    Closed,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Disabled => "the pool is disabled",
            Kind::Inactive => "the pool is inactive",
            Kind::Draining => "the pool is draining",
            Kind::Broken => "the pool is broken",
            Kind::NoConnection => "no connection is free",
            Kind::QueueFull => "too many wait already",
            Kind::WouldTimeOut => "the wait would outlast the deadline",
            Kind::WaitTimeout => "no connection came free in time",
            Kind::UseTimeout => "did not answer in time",
            Kind::UnknownServer => "is not a server of this pool",
            Kind::ServerDown => "has no open connection",
            Kind::Connect => "could not be connected to",
            Kind::Login => "refused the login",
            Kind::Protocol => "failed under the request",
            Kind::Server(code) => return write!(f, "answered with error {code:#06x}"),
            Kind::Caller => "the request could not be made",
            Kind::Closed => "the pool is closed",
        })
    }
}

/// What is known about a request that failed.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<E> {
    pub kind: Kind,
    /// Whose doing it was, once a server was reached.
    pub fault: Fault,
    /// The server of the last try.
    pub server: Option<Server>,
    pub executed: Executed,
    pub idempotent: bool,
    pub waited: Duration,
    pub used: Duration,
    /// Earlier tries and why they failed.
    pub tries: Vec<(Server, E)>,
    /// Who was asked beside it and did not answer.
    pub silent: Vec<Server>,
    /// The pool as it was then.
    pub state: State,
    pub waiters: usize,
    pub idle: usize,
    pub lent: usize,
    pub retry_after: Option<Duration>,
    pub cause: Option<E>,
    /// Why there was no server to send it to, if that was so.
    pub outage: Option<Outage>,
    /// Why the pool is broken, if it is.
    pub broken_by: Option<Arc<str>>,
}

/// Why a request failed. Cheap to pass on; derefs to its [`Report`].
pub struct Error<C: Connector>(Box<Report<C::Error>>);

impl<C: Connector> Error<C> {
    pub(crate) fn new(report: Report<C::Error>) -> Error<C> {
        Error(Box::new(report))
    }

    pub(crate) fn report_mut(&mut self) -> &mut Report<C::Error> {
        &mut self.0
    }

    /// What to do about it.
    pub fn class(&self) -> Class {
        let sent = matches!(self.kind, Kind::UseTimeout | Kind::Protocol | Kind::Server(_) | Kind::Caller);
        match (sent, self.fault) {
            (true, Fault::Request) => Class::Reject,
            (true, Fault::Caller) => Class::Fatal,
            (true, Fault::Server) if self.executed == Executed::Unknown && !self.idempotent => Class::Reject,
            _ if self.retry_after.is_some() => Class::RetryAfter,
            _ => Class::Retry,
        }
    }

    /// Whether the same request may do better later.
    pub fn transient(&self) -> bool {
        matches!(self.class(), Class::Retry | Class::RetryAfter)
    }

    /// Whether a server refused who we are: for people, who know the password.
    pub fn login_refused(&self) -> bool {
        self.kind == Kind::Login || self.outage.as_ref().is_some_and(Outage::login_refused)
    }

    /// The protocol's own error, if there is one.
    pub fn into_cause(self) -> Option<C::Error> {
        self.0.cause
    }
}

impl<C: Connector> Deref for Error<C> {
    type Target = Report<C::Error>;

    fn deref(&self) -> &Report<C::Error> {
        &self.0
    }
}

impl<C: Connector> fmt::Debug for Error<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `127.0.0.2:9042: did not answer in time (waited 3ms, used 1.997s)`
impl<C: Connector> fmt::Display for Error<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(server) = &self.server {
            write!(f, "{server}: ")?;
        }
        write!(f, "{}", self.kind)?;
        match (&self.outage, &self.server) {
            (Some(outage), Some(server)) => write!(f, ": {}", outage.of(server))?,
            (Some(outage), None) => write!(f, ": {outage}")?,
            (None, _) => {}
        }
        if let Some(why) = &self.broken_by {
            write!(f, ": {}", brief(why))?;
        }
        write!(f, " (waited {:?}, used {:?}", self.waited, self.used)?;
        if self.server.is_none() {
            write!(f, "; pool {}, {} waiting, {} idle, {} lent", self.state, self.waiters, self.idle, self.lent)?;
        }
        if let Some(after) = self.retry_after {
            write!(f, "; again after {after:?}")?;
        }
        for (server, cause) in &self.tries {
            write!(f, "; before, {}", about(server, &brief(&cause.to_string())))?;
        }
        for server in &self.silent {
            write!(f, "; no answer from {server}")?;
        }
        if self.executed == Executed::Unknown && !self.idempotent {
            f.write_str("; it may have been executed")?;
        }
        f.write_str(")")
    }
}

impl<C: Connector> std::error::Error for Error<C> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause as _)
    }
}
