//! A connection's stream with its deadlines.
//!
//! hyper's own header time-out would also end a connection that is idle between two requests, so this stream enforces
//! the deadlines instead: complete headers within `headers` after accept (for later requests: after their first byte),
//! at most `idle` between requests, and a peer that reads nothing of an answer for `idle` is disconnected. A request's
//! body has its own deadline where it is read.
//!
//! | phase    | reading                    | becomes                                  |
//! |----------|----------------------------|------------------------------------------|
//! | Headers  | until the deadline         | Serving, when the service is called      |
//! | Serving  | without a deadline         | Resting, when the answer's body is dropped |
//! | Resting  | at most `idle`             | Headers, at the first byte               |

use std::{
    future::Future,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use axum::body::{Body, Bytes, HttpBody};
use futures_util::task::AtomicWaker;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep_until},
};

/// Whether a request is being served; a wire and its service share this. The state "served" stays until the wire has
/// read it, because a quick answer is complete before the wire is polled again.
#[derive(Clone, Default)]
pub(crate) struct Serving(Arc<State>);

#[derive(Default)]
struct State {
    now: AtomicU8,
    /// hyper reads before it sends: without a wake-up it would not poll again, and the idle time would have no
    /// deadline.
    reader: AtomicWaker,
}

const WAITING: u8 = 0;
const SERVING: u8 = 1;
const SERVED: u8 = 2;

impl Serving {
    pub fn begin(&self) {
        self.0.now.store(SERVING, Ordering::Release);
    }

    /// Wraps the body: the request counts as being served until the returned body is dropped.
    pub fn until_sent(&self, body: Body) -> Body {
        Body::new(TrackedBody { body, serving: self.clone() })
    }

    /// Returns whether a request is being served, and whether one was served since the last call.
    fn take_state(&self) -> (bool, bool) {
        let served = self.0.now.compare_exchange(SERVED, WAITING, Ordering::AcqRel, Ordering::Acquire);
        (served == Err(SERVING), served.is_ok())
    }
}

struct TrackedBody {
    body: Body,
    serving: Serving,
}

impl HttpBody for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<hyper::body::Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.serving.0.now.store(SERVED, Ordering::Release);
        self.serving.0.reader.wake();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Headers,
    Serving,
    Resting,
}

pub(crate) struct Wire<S> {
    stream: S,
    serving: Serving,
    phase: Phase,
    headers: Duration,
    idle: Duration,
    read_by: Pin<Box<Sleep>>,
    /// Runs while the peer reads nothing.
    write_by: Option<Pin<Box<Sleep>>>,
}

impl<S> Wire<S> {
    pub fn new(stream: S, serving: Serving, headers: Duration, idle: Duration) -> Wire<S> {
        let read_by = Box::pin(sleep_until(Instant::now() + headers));
        Wire { stream, serving, phase: Phase::Headers, headers, idle, read_by, write_by: None }
    }

    fn enter(&mut self, phase: Phase) {
        let wait = if phase == Phase::Headers { self.headers } else { self.idle };
        self.phase = phase;
        self.read_by.as_mut().reset(Instant::now() + wait);
    }

    fn stalled<T>(&mut self, context: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.write_by = None;
            return result;
        }
        let idle = self.idle;
        let write_by = self.write_by.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + idle)));
        ready!(write_by.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.serving.0.reader.register(context.waker());
        match self.serving.take_state() {
            (true, _) => self.phase = Phase::Serving,
            (false, true) => self.enter(Phase::Resting),
            (false, false) => {}
        }
        let before = into.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, into) {
            Poll::Ready(result) => {
                if self.phase == Phase::Resting && into.filled().len() > before {
                    self.enter(Phase::Headers);
                }
                // A slow stream of single bytes is always ready, so the deadline is checked here too.
                if self.phase == Phase::Headers && Instant::now() >= self.read_by.deadline() {
                    return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                }
                Poll::Ready(result)
            }
            Poll::Pending if self.phase == Phase::Serving => Poll::Pending,
            Poll::Pending => {
                ready!(self.read_by.as_mut().poll(context));
                Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.stalled(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.stalled(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let closed = Pin::new(&mut self.stream).poll_shutdown(context);
        self.stalled(context, closed)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.stalled(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
