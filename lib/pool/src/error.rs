//! What can go wrong, in words that do not depend on the protocol.

use std::fmt;

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
