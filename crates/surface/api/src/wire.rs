//! A connection's stream with its deadlines.
//!
//! hyper's own header time-out would also end a connection that merely rests between two requests. So the deadlines
//! lie beneath it: whole headers within `headers` of accept (later: of their first byte), rest of at most `idle`
//! between requests, and a peer that takes nothing of what it is sent for `idle` is let go. A request's body has its
//! own deadline where it is read.
//!
//! | phase    | reading                    | becomes                                  |
//! |----------|----------------------------|------------------------------------------|
//! | Headers  | until the deadline         | Serving, when the service is called      |
//! | Serving  | without deadline           | Resting, when the answer's body is gone  |
//! | Resting  | at most `idle`             | Headers, with the first byte             |

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

/// Whether a request is being served; shared by a wire and the service behind it. That one was served is kept until the
/// wire has seen it: a quick answer is gone before the wire is read again.
#[derive(Clone, Default)]
pub(crate) struct Serving(Arc<State>);

#[derive(Default)]
struct State {
    now: AtomicU8,
    /// hyper reads before it sends: without being woken it would not look again, and rest would have no deadline.
    reader: AtomicWaker,
}

const WAITING: u8 = 0;
const SERVING: u8 = 1;
const SERVED: u8 = 2;

impl Serving {
    pub fn begin(&self) {
        self.0.now.store(SERVING, Ordering::Release);
    }

    /// Ends when the returned body is gone.
    pub fn until_sent(&self, body: Body) -> Body {
        Body::new(Sent { body, serving: self.clone() })
    }

    /// Whether one is being served, and whether one has been since the last look.
    fn look(&self) -> (bool, bool) {
        let served = self.0.now.compare_exchange(SERVED, WAITING, Ordering::AcqRel, Ordering::Acquire);
        (served == Err(SERVING), served.is_ok())
    }
}

struct Sent {
    body: Body,
    serving: Serving,
}

impl HttpBody for Sent {
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

impl Drop for Sent {
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
    /// Runs while the peer takes nothing.
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
        match self.serving.look() {
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
                // A trickle of bytes is always ready: the deadline must be looked at all the same.
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
