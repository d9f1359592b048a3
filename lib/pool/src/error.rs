//! The error of a request, in terms that do not depend on the protocol.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use honeyflow_runtime::Class;

use crate::{
    connect::{Connector, Fault},
    core::State,
    outage::{Outage, about, brief},
    server::Server,
};

#[expect(deprecated, reason = "the old names keep programs compiling that use them")]
pub use crate::renamed::Executed;

/// Whether the server executed the request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Execution {
    No,
    Yes,
    Unknown,
}

/// The kind of an error.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// The pool is disabled.
    Disabled,
    /// The pool is inactive and holds no connections.
    Inactive,
    /// The pool is draining.
    Draining,
    /// The pool's own tasks failed too often.
    Broken,
    /// No connection was free, and the settings forbid to wait.
    NoConnection,
    QueueFull,
    /// The estimated wait is longer than the deadline allows, so the request was refused at once.
    WouldTimeOut,
    WaitTimeout,
    UseTimeout,
    UnknownServer,
    ServerDown,
    Connect,
    Login,
    /// The connection failed during a request, or the server broke the protocol.
    Protocol,
    /// The server answered with this error code.
    Server(u32),
    /// The caller made a request that cannot be sent.
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
            Kind::QueueFull => "too many requests are waiting",
            Kind::WouldTimeOut => "the wait would outlast the deadline",
            Kind::WaitTimeout => "no connection came free in time",
            Kind::UseTimeout => "did not answer in time",
            Kind::UnknownServer => "is not a server of this pool",
            Kind::ServerDown => "has no open connection",
            Kind::Connect => "could not be connected to",
            Kind::Login => "refused the login",
            Kind::Protocol => "failed during the request",
            Kind::Server(code) => return write!(f, "answered with error {code:#06x}"),
            Kind::Caller => "the request could not be made",
            Kind::Closed => "the pool is closed",
        })
    }
}

/// The details of a failed request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Report<E> {
    pub kind: Kind,
    /// Who caused the error, if a server was reached.
    pub fault: Fault,
    /// The server of the last try.
    pub server: Option<Server>,
    pub executed: Execution,
    pub idempotent: bool,
    pub waited: Duration,
    pub used: Duration,
    /// The earlier tries and their errors.
    pub tries: Vec<(Server, E)>,
    /// The servers that got the same request as a hedge and did not answer.
    pub silent: Vec<Server>,
    /// The state of the pool when the request failed.
    pub state: State,
    pub waiters: usize,
    pub idle: usize,
    pub lent: usize,
    pub retry_after: Option<Duration>,
    pub cause: Option<E>,
    /// Why no server could be used, if that is the cause.
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

    /// The failure class: what the caller should do about it.
    pub fn class(&self) -> Class {
        let sent = matches!(self.kind, Kind::UseTimeout | Kind::Protocol | Kind::Server(_) | Kind::Caller);
        match (sent, self.fault) {
            (true, Fault::Request) => Class::Reject,
            (true, Fault::Caller) => Class::Fatal,
            (true, Fault::Server) if self.executed == Execution::Unknown && !self.idempotent => Class::Reject,
            _ if self.retry_after.is_some() => Class::RetryAfter,
            _ => Class::Retry,
        }
    }

    /// Whether the same request may succeed later.
    pub fn transient(&self) -> bool {
        matches!(self.class(), Class::Retry | Class::RetryAfter)
    }

    /// Whether a server refused our login, so that an operator must check the password.
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
            write!(f, "; retry after {after:?}")?;
        }
        for (server, cause) in &self.tries {
            write!(f, "; before, {}", about(server, &brief(&cause.to_string())))?;
        }
        for server in &self.silent {
            write!(f, "; no answer from {server}")?;
        }
        if self.executed == Execution::Unknown && !self.idempotent {
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
