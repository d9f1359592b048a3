//! The task that owns a socket: it combines requests into few writes, and splits what arrives into answers.
//!
//! | event                                            | the connection                 | the request               |
//! |--------------------------------------------------|--------------------------------|---------------------------|
//! | an answer on a stream in use                     | stays, the stream is free      | answered                  |
//! | the same, but the caller has gone                | stays, the stream is free      | one orphan less           |
//! | an answer on a stream that is not in use         | ends: nothing can be trusted   | lost                      |
//! | bytes that are not a frame, a wrong checksum     | ends                           | lost                      |
//! | the peer closes it, or `write_timeout` is over   | ends                           | lost, or never sent       |
//! | too many orphans, or one too old                 | takes no new request, then ends | those in flight continue |
//!
//! The last row applies to requests outside of loans. The lender of a connection counts the orphans of its loans: a
//! pool first opens another connection and only then closes this one.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use honeyflow_pool::{Connector, InFlight};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};

use super::Tally;
use super::handshake::ReadyStream;
use super::settings::Settings;
use super::streams::Streams;
use crate::error::Cause;
use crate::wire::envelope::Outgoing;
use crate::wire::frame::{Inbound, Outbound};
use crate::wire::{Answer, Envelope, Notice, Opcode, Response, Version};

/// With more unwritten bytes than this, further requests wait in the channel.
const UNWRITTEN_BYTES_MAX: usize = 256 * 1024;
const READ_BYTES: usize = 32 * 1024;
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A request on its way to the transport.
pub struct Exchange {
    pub message: Outgoing,
    pub answer: oneshot::Sender<Outcome>,
    /// Held until the answer has come, also after the caller has gone.
    pub guard: Option<SharedGuard>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({} bytes)", self.message.len())
    }
}

/// The lender's guard, shared by all requests of a loan.
pub type SharedGuard = Arc<dyn RequestGuard>;

/// The lender's mark of a request in flight, held until the answer has come. A request that was never sent drops it
/// without calling [`RequestGuard::answered`].
pub trait RequestGuard: Send + Sync {
    fn answered(&self);
}

impl<C: Connector> RequestGuard for InFlight<C> {
    fn answered(&self) {
        InFlight::answered(self);
    }
}

#[derive(Debug)]
pub enum Outcome {
    Answered(Envelope),
    /// The connection ended before a byte of the request was written.
    Unsent,
}

struct PendingRequest {
    answer: oneshot::Sender<Outcome>,
    sent_at: Instant,
    guard: Option<SharedGuard>,
}

pub struct Transport<S> {
    stream: S,
    inbound: Inbound,
    outbound: Outbound,
    version: Version,
    requests: mpsc::Receiver<Exchange>,
    streams: Streams<PendingRequest>,
    notices: mpsc::Sender<Notice>,
    tally: Arc<Tally>,
    check: Interval,
    /// The timer of a write that makes no progress.
    stuck: Option<Pin<Box<Sleep>>>,
    unflushed: bool,
    /// The unwritten requests were added in this poll.
    fresh: bool,
    write_timeout: Duration,
    orphans_max: usize,
    orphan_age_max: Duration,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    pub fn new(
        ready: ReadyStream<S>,
        requests: mpsc::Receiver<Exchange>,
        notices: mpsc::Sender<Notice>,
        tally: Arc<Tally>,
        settings: &Settings,
    ) -> Self {
        let mut check = tokio::time::interval(CHECK_INTERVAL);
        check.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            stream: ready.stream,
            inbound: ready.inbound,
            outbound: ready.outbound,
            version: ready.version,
            requests,
            streams: Streams::new(settings.streams_max),
            notices,
            tally,
            check,
            stuck: None,
            unflushed: false,
            fresh: false,
            write_timeout: settings.write_timeout,
            orphans_max: settings.orphans_max,
            orphan_age_max: settings.orphan_age_max,
        }
    }

    pub async fn run(mut self, close: watch::Receiver<Option<Instant>>, end: watch::Sender<Option<Arc<Cause>>>) {
        let cause = self.serve(close).await;
        if matches!(cause, Cause::Malformed(_) | Cause::Stranger(_)) {
            self.tally.wrong.store(true, Ordering::Relaxed);
        }
        // Store the reason first, then end the requests whose callers will read it.
        end.send_replace(Some(Arc::new(cause)));
        self.tally.over.store(true, Ordering::Release);
        self.requests.close();
        while let Ok(unsent) = self.requests.try_recv() {
            let _ = unsent.answer.send(Outcome::Unsent);
        }
        self.tally.in_flight.store(0, Ordering::Relaxed);
        let _ = tokio::time::timeout(CHECK_INTERVAL, self.stream.shutdown()).await;
    }

    async fn serve(&mut self, mut close: watch::Receiver<Option<Instant>>) -> Cause {
        let by = tokio::select! {
            cause = poll_fn(|cx| self.poll(cx)) => return cause,
            by = close.wait_for(Option::is_some) => match by {
                Ok(by) => by.unwrap_or_else(Instant::now),
                // The last handle is dropped, so no caller waits.
                Err(_) => return Cause::Closed,
            },
        };
        // Requests in the channel were accepted before; only new ones are refused.
        self.requests.close();
        let drained = poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(cause) => Poll::Ready(cause),
            Poll::Pending if self.is_drained() => Poll::Ready(Cause::Closed),
            Poll::Pending => Poll::Pending,
        });
        tokio::time::timeout_at(by, drained).await.unwrap_or(Cause::Closed)
    }

    fn is_drained(&self) -> bool {
        self.requests.is_empty() && self.outbound.is_empty() && self.streams.iter().all(|one| one.answer.is_closed())
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Cause> {
        let ended = |cause: Cause| Poll::Ready(cause);
        self.fresh = false;
        loop {
            // Each part registers its waker when it is pending; if one makes progress, all run again.
            let mut moved = self.take_requests(cx);
            // After one request others are likely to follow: writing in the next poll sends them all in one write.
            if !self.fresh {
                match self.write(cx) {
                    Ok(wrote) => moved |= wrote,
                    Err(cause) => return ended(cause),
                }
            }
            match self.read(cx) {
                Ok(read) => moved |= read,
                Err(cause) => return ended(cause),
            }
            if self.check.poll_tick(cx).is_ready() {
                moved = true;
                if let Some(cause) = self.check_orphans() {
                    return ended(cause);
                }
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn take_requests(&mut self, cx: &mut Context<'_>) -> bool {
        let was_empty = self.outbound.is_empty();
        let mut now = None;
        while self.streams.has_free() && self.outbound.len() < UNWRITTEN_BYTES_MAX {
            let Poll::Ready(Some(mut exchange)) = self.requests.poll_recv(cx) else { break };
            let sent_at = *now.get_or_insert_with(Instant::now);
            // If the caller has gone before the request was sent, it is dropped.
            if exchange.answer.is_closed() {
                continue;
            }
            let waiting = PendingRequest { answer: exchange.answer, sent_at, guard: exchange.guard };
            if let Some(stream) = self.streams.take(waiting) {
                self.outbound.push(exchange.message.on_stream(stream));
            }
        }
        if now.is_some() {
            self.count();
        }
        if was_empty && !self.outbound.is_empty() {
            self.fresh = true;
            cx.waker().wake_by_ref();
        }
        now.is_some()
    }

    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool, Cause> {
        let mut wrote = false;
        self.outbound.seal();
        while !self.outbound.raw.is_empty() {
            match pin!(self.stream.write_buf(&mut self.outbound.raw)).poll(cx) {
                Poll::Ready(Ok(0)) => return Err(Cause::broken(io::ErrorKind::WriteZero.into())),
                Poll::Ready(Ok(_)) => {
                    (wrote, self.unflushed, self.stuck) = (true, true, None);
                }
                Poll::Ready(Err(error)) => return Err(Cause::broken(error)),
                Poll::Pending => break,
            }
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(cx) {
                Poll::Ready(Ok(())) => (self.unflushed, self.stuck) = (false, None),
                Poll::Ready(Err(error)) => return Err(Cause::broken(error)),
                Poll::Pending => {}
            }
        }
        if self.unflushed || !self.outbound.raw.is_empty() {
            let timeout = self.write_timeout;
            let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(timeout)));
            if stuck.as_mut().poll(cx).is_ready() {
                return Err(Cause::Stuck(timeout));
            }
        }
        Ok(wrote)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<bool, Cause> {
        if self.inbound.raw.capacity() - self.inbound.raw.len() < READ_BYTES / 4 {
            self.inbound.raw.reserve(READ_BYTES);
        }
        match pin!(self.stream.read_buf(&mut self.inbound.raw)).poll(cx) {
            Poll::Ready(Ok(0)) => return Err(Cause::broken(io::ErrorKind::UnexpectedEof.into())),
            Poll::Ready(Ok(_)) => self.tally.read_now(),
            Poll::Ready(Err(error)) => return Err(Cause::broken(error)),
            Poll::Pending => return Ok(false),
        }
        while let Some(envelope) = self.inbound.message()? {
            if envelope.opcode == Opcode::Event && envelope.stream < 0 {
                self.notice(&envelope)?;
                continue;
            }
            let waiting = self.streams.free(envelope.stream).ok_or(Cause::Stranger(envelope.stream))?;
            if let Some(guard) = &waiting.guard {
                guard.answered();
            }
            // Drop the guard before the caller can return the loan: then the loan has no request in flight.
            drop(waiting.guard);
            let _ = waiting.answer.send(Outcome::Answered(envelope));
        }
        self.count();
        Ok(true)
    }

    fn notice(&self, envelope: &Envelope) -> Result<(), Cause> {
        if let Answer::Notice(notice) = Response::read(envelope, self.version)?.answer
            && self.notices.try_send(notice).is_err()
        {
            self.tally.notices_dropped.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn count(&self) {
        self.tally.in_flight.store(u32::try_from(self.streams.len()).unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Counts the orphans and marks the connection as unusable if necessary. Returns the cause of its end if it is
    /// unusable and only orphans use it.
    fn check_orphans(&self) -> Option<Cause> {
        let orphans = || self.streams.iter().filter(|one| one.answer.is_closed());
        let count = orphans().count();
        self.tally.orphans.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
        let own = || orphans().filter(|one| one.guard.is_none()).map(|one| one.sent_at);
        if own().count() > self.orphans_max || own().min().is_some_and(|at| at.elapsed() > self.orphan_age_max) {
            self.tally.unusable.store(true, Ordering::Relaxed);
        }
        let only_orphans = count == self.streams.len() && self.requests.is_empty() && self.outbound.is_empty();
        (self.tally.unusable.load(Ordering::Relaxed) && only_orphans).then_some(Cause::Closed)
    }
}
