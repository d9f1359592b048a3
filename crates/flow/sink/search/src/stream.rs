//! A byte stream that records when it last read something, fails if the peer accepts no data for too long, and signals
//! its end.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures_util::task::AtomicWaker;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
    time::{Instant, Sleep},
};

/// Signals when it is dropped, also if its owner is aborted.
pub struct DropSignal(watch::Sender<bool>);

impl DropSignal {
    pub fn new() -> (DropSignal, watch::Receiver<bool>) {
        let (sender, receiver) = watch::channel(false);
        (DropSignal(sender), receiver)
    }
}

impl Drop for DropSignal {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// The time at which the peer last sent something.
#[derive(Debug)]
pub struct Pulse {
    begun: Instant,
    /// Milliseconds after `begun`.
    last_read: AtomicU64,
    /// The task that examines the connection after something was read.
    reader: AtomicWaker,
}

impl Pulse {
    pub fn new() -> Arc<Pulse> {
        Arc::new(Pulse { begun: Instant::now(), last_read: AtomicU64::new(0), reader: AtomicWaker::new() })
    }

    fn read_now(&self) {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_read.store(elapsed, Ordering::Relaxed);
    }

    /// Registers the task to wake after everything that arrived has been read.
    pub fn wake_after_read(&self, waker: &Waker) {
        self.reader.register(waker);
    }

    pub fn last_read(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_read.load(Ordering::Relaxed))
    }
}

pub struct WatchedStream<S> {
    stream: S,
    pulse: Arc<Pulse>,
    write_timeout: Duration,
    /// The timer of a write that makes no progress.
    stuck: Option<Pin<Box<Sleep>>>,
    /// Something was read since the last wake-up.
    has_read: bool,
    _end: Arc<DropSignal>,
}

impl<S> WatchedStream<S> {
    pub fn new(stream: S, pulse: Arc<Pulse>, write_timeout: Duration, end: Arc<DropSignal>) -> WatchedStream<S> {
        WatchedStream { stream, pulse, write_timeout, stuck: None, has_read: false, _end: end }
    }

    fn progress<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stuck = None;
            return polled;
        }
        let within = self.write_timeout;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, format!("it accepted no data for {within:?}"))))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, into);
        if into.filled().len() > before {
            self.pulse.read_now();
            self.has_read = true;
        } else if polled.is_pending() && std::mem::take(&mut self.has_read) {
            // The HTTP library asks for more, so it has processed what it got.
            self.pulse.reader.wake();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.progress(cx, polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_flush(cx);
        self.progress(cx, polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.progress(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, bytes);
        self.progress(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
