//! The store contract: outbox rows, journal, failures, parked events, documents. One store per SQL source, in the
//! source's own database, because completion and data must share a transaction.
//!
//! Requests and replies are plain data; the effects of the engine's state machines *are* these requests. Every write
//! is idempotent: if its outcome is unknown, the adapter returns `Retry` and the caller sends the same request again.

pub mod admin;
pub mod capture;
pub mod catalogue;
pub mod codes;
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
pub use poll::{Poll, PollReply};
pub use signal::{Signal, SignalQuery};
pub use statement::{KeyColumn, KeyType, Load, LoadResult, Statement};
pub use write::{NewEvent, Op, RecoveredState, RunKey, Write};

#[derive(Clone, Debug)]
pub enum Request {
    /// Reads the waiting rows of the outbox; takes no lock.
    Poll(Poll),
    /// Runs a document or edge statement for a batch of keys: read-only, one snapshot.
    Load(Load),
    /// Executes one fenced transaction.
    Write(Write),
    /// Stores new events from the event endpoint or the command line. It has no fence: the caller owns no shard.
    Append { events: Vec<NewEvent>, idempotency: Option<Idempotency> },
    /// Reads what a new owner of the shard needs to continue where the last owner stopped: the attempts and outputs
    /// that were written under that shard's lease, and the pauses.
    Recover { shard: u16 },
    /// Looks up the signals that [`Op::Signal`] has stored. The reply has one list per query.
    Signals(Vec<SignalQuery>),
    /// A request of an operator.
    Admin(Admin),
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Idempotency {
    pub key: String,
    /// The hash of the request's body: the same key with another body is a conflict.
    pub body_hash: u64,
}

#[derive(Clone, Debug)]
pub enum Reply {
    Polled(PollReply),
    Loaded(Vec<LoadResult>),
    /// The reply to an edge statement (`Load::expand`): the container keys, in order.
    Keys(Vec<Key>),
    Committed,
    /// The fence was not valid: the store wrote nothing.
    Fenced,
    Appended {
        ids: Vec<EventId>,
        repeated: bool,
    },
    /// The idempotency key was used with another body.
    Conflict,
    Recovered(RecoveredState),
    /// One list per query, oldest signal first.
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

/// The failure for a reply that does not fit its request: a bug in the adapter.
pub fn mismatched_reply(reply: &Reply) -> Failure {
    Failure::fatal(codes::MISPLACED_REPLY, format!("the store's reply does not fit the request: {reply:?}"))
}
