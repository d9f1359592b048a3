//! A byte stream that knows when it last read something, that gives up on a peer that takes nothing, and whose end is heard.

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

/// However its owner ends, aborted too, that is known.
pub struct SaysWhenDropped(watch::Sender<bool>);

impl SaysWhenDropped {
    pub fn new() -> (SaysWhenDropped, watch::Receiver<bool>) {
        let (sender, receiver) = watch::channel(false);
        (SaysWhenDropped(sender), receiver)
    }
}

impl Drop for SaysWhenDropped {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

/// When the peer was last heard.
#[derive(Debug)]
pub struct Pulse {
    begun: Instant,
    /// Milliseconds after `begun`.
    last_read: AtomicU64,
    /// Whoever looks what became of a connection when something has come.
    stirs: AtomicWaker,
}

impl Pulse {
    pub fn new() -> Arc<Pulse> {
        Arc::new(Pulse { begun: Instant::now(), last_read: AtomicU64::new(0), stirs: AtomicWaker::new() })
    }

    fn read_now(&self) {
        let elapsed = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last_read.store(elapsed, Ordering::Relaxed);
    }

    /// This one is woken when all has been taken in that came.
    pub fn stirs(&self, waker: &Waker) {
        self.stirs.register(waker);
    }

    pub fn last_read(&self) -> Instant {
        self.begun + Duration::from_millis(self.last_read.load(Ordering::Relaxed))
    }
}

pub struct Watched<S> {
    stream: S,
    pulse: Arc<Pulse>,
    write_timeout: Duration,
    /// Runs while a write stands still.
    stuck: Option<Pin<Box<Sleep>>>,
    /// Something has come that nobody was woken for.
    came: bool,
    _end: Arc<SaysWhenDropped>,
}

impl<S> Watched<S> {
    pub fn new(stream: S, pulse: Arc<Pulse>, write_timeout: Duration, end: Arc<SaysWhenDropped>) -> Watched<S> {
        Watched { stream, pulse, write_timeout, stuck: None, came: false, _end: end }
    }

    fn progress<T>(&mut self, cx: &mut Context<'_>, polled: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if polled.is_ready() {
            self.stuck = None;
            return polled;
        }
        let within = self.write_timeout;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(within)));
        ready!(stuck.as_mut().poll(cx));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, format!("it took no byte for {within:?}"))))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, into);
        if into.filled().len() > before {
            self.pulse.read_now();
            self.came = true;
        } else if polled.is_pending() && std::mem::take(&mut self.came) {
            // Whoever asks for more has understood what it got.
            self.pulse.stirs.wake();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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
