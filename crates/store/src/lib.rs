//! The store contract: outbox rows, journal, failures, parked events, documents. One store per SQL source, in the
//! source's own database, because completion and data must share a transaction.
//!
//! Requests and replies are plain data; the cores' effects *are* these requests. Every write may be repeated without
//! harm, so an outcome that stays unknown leaves the adapter as `Retry` and the same request is sent again.

pub mod admin;
pub mod capture;
pub mod catalogue;
pub mod keys;
pub mod names;
pub mod poll;
pub mod signal;
pub mod statement;
pub mod write;

use futures_util::future::BoxFuture;
use honeyflow_event::{EventId, Key};
use honeyflow_runtime::Failure;

pub use admin::{Admin, AdminReply};
pub use capture::{CaptureTable, Columns};
pub use catalogue::Catalogue;
pub use names::Names;
pub use poll::{Poll, Polled};
pub use signal::{Signal, Wanted};
pub use statement::{KeyColumn, KeyType, Load, Loaded, Statement};
pub use write::{NewEvent, Op, Recovered, Settled, Write};

#[derive(Clone, Debug)]
pub enum Request {
    /// Reads what is to be done; takes no lock.
    Poll(Poll),
    /// Runs a document or edge statement for a batch of keys: read-only, one snapshot.
    Load(Load),
    /// One fenced transaction.
    Write(Write),
    /// New events from the door or a command line; not fenced, since no shard owner speaks.
    Append { events: Vec<NewEvent>, idempotency: Option<Idempotency> },
    /// What a new owner of the shard needs to go on where the last one stopped: attempts and outputs that were written
    /// under that shard's lease, and what is paused.
    Recover { shard: u16 },
    /// Events that somebody may have waited for, as [`Op::Signal`] has kept them: a list for each that is wanted.
    Signals(Vec<Wanted>),
    /// What people ask and say.
    Admin(Admin),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Idempotency {
    pub key: String,
    /// Of the request's body: the same key with another body is a conflict.
    pub body_hash: u64,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Polled(Polled),
    Loaded(Vec<Loaded>),
    /// For edge statements (`Load::expand`): the keys found, in order.
    Keys(Vec<Key>),
    Committed,
    /// The fence did not hold: nothing was written.
    Fenced,
    Appended {
        ids: Vec<EventId>,
        repeated: bool,
    },
    /// The idempotency key was used with another body.
    Conflict,
    Recovered(Recovered),
    /// One list for each that was wanted, oldest first.
    Signals(Vec<Vec<Signal>>),
    Admin(AdminReply),
}

pub trait Store: Send + Sync {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>>;
}

impl<S: Store + ?Sized> Store for std::sync::Arc<S> {
    fn call(&self, request: Request) -> BoxFuture<'static, Result<Reply, Failure>> {
        (**self).call(request)
    }
}

/// A reply that does not belong to its request: a bug of the adapter.
pub fn misplaced(reply: &Reply) -> Failure {
    Failure::fatal("misplaced-reply", format!("the store answered another question: {reply:?}"))
}
