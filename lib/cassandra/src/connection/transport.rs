//! The task that owns a socket: gathers what is to be sent into few writes, cuts what arrives into answers.
//!
//! | what happens                                  | the connection                 | the request               |
//! |-----------------------------------------------|--------------------------------|---------------------------|
//! | an answer to a stream that is taken           | stays, the stream is free      | answered                  |
//! | the same, its caller gone                     | stays, the stream is free      | an orphan less            |
//! | an answer to a stream that nobody took        | ends: nothing can be trusted   | lost                      |
//! | bytes that are no frame, a wrong checksum     | ends                           | lost                      |
//! | the peer ends it, no byte written for so long | ends                           | lost, or never sent       |
//! | too many orphans, or one too old              | takes nothing new, then ends   | those under way go on     |
//!
//! The last is for requests outside of loans. Orphans of a loan are counted by who lent the connection: a pool opens another
//! one first, and only then closes this one.

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
use super::handshake::Ready;
use super::settings::Settings;
use super::streams::Streams;
use crate::error::Cause;
use crate::wire::envelope::Outgoing;
use crate::wire::frame::{Inbound, Outbound};
use crate::wire::{Answer, Envelope, Notice, Opcode, Response, Version};

/// Beyond this, what is to be written waits in the channel and not here.
const UNWRITTEN_BYTES_MAX: usize = 256 * 1024;
const READ_BYTES: usize = 32 * 1024;
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A request on its way.
pub struct Exchange {
    pub message: Outgoing,
    pub answer: oneshot::Sender<Outcome>,
    /// Held until the answer has come, also when nobody waits for it any more.
    pub guard: Option<Guard>,
}

impl std::fmt::Debug for Exchange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Exchange({} bytes)", self.message.len())
    }
}

/// Of whoever lent the connection: one for all requests of a loan.
pub type Guard = Arc<dyn UnderWay>;

/// Held until the answer has come, and told of it: what was never sent is not answered when it goes.
pub trait UnderWay: Send + Sync {
    fn answered(&self);
}

impl<C: Connector> UnderWay for InFlight<C> {
    fn answered(&self) {
        InFlight::answered(self);
    }
}

#[derive(Debug)]
pub enum Outcome {
    Answered(Envelope),
    /// The connection ended before a byte of it was written.
    Unsent,
}

struct Waiting {
    answer: oneshot::Sender<Outcome>,
    sent_at: Instant,
    guard: Option<Guard>,
}

pub struct Transport<S> {
    stream: S,
    inbound: Inbound,
    outbound: Outbound,
    version: Version,
    requests: mpsc::Receiver<Exchange>,
    streams: Streams<Waiting>,
    notices: mpsc::Sender<Notice>,
    tally: Arc<Tally>,
    look: Interval,
    /// Runs while something is to be written.
    stuck: Option<Pin<Box<Sleep>>>,
    unflushed: bool,
    /// What is to be written was put there in this turn.
    fresh: bool,
    write_timeout: Duration,
    orphans_max: usize,
    orphan_age_max: Duration,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Transport<S> {
    pub fn new(
        ready: Ready<S>,
        requests: mpsc::Receiver<Exchange>,
        notices: mpsc::Sender<Notice>,
        tally: Arc<Tally>,
        settings: &Settings,
    ) -> Self {
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            stream: ready.stream,
            inbound: ready.inbound,
            outbound: ready.outbound,
            version: ready.version,
            requests,
            streams: Streams::new(settings.streams_max),
            notices,
            tally,
            look,
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
        // First the reason, then those who will ask for it.
        end.send_replace(Some(Arc::new(cause)));
        self.tally.over.store(true, Ordering::Release);
        self.requests.close();
        while let Ok(unsent) = self.requests.try_recv() {
            let _ = unsent.answer.send(Outcome::Unsent);
        }
        self.tally.in_flight.store(0, Ordering::Relaxed);
        let _ = tokio::time::timeout(LOOK_EVERY, self.stream.shutdown()).await;
    }

    async fn serve(&mut self, mut close: watch::Receiver<Option<Instant>>) -> Cause {
        let by = tokio::select! {
            cause = poll_fn(|cx| self.poll(cx)) => return cause,
            by = close.wait_for(Option::is_some) => match by {
                Ok(by) => by.unwrap_or_else(Instant::now),
                // The last handle is gone: nobody waits for anything.
                Err(_) => return Cause::Closed,
            },
        };
        // What is in the channel was accepted before; only newcomers are refused.
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
            // Each leaves its waker behind when it stops, and starts the others again when it has moved.
            let mut moved = self.take_requests(cx);
            // Where one asks, others are about to: a turn later one write carries them all.
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
            if self.look.poll_tick(cx).is_ready() {
                moved = true;
                if let Some(cause) = self.look_at_orphans() {
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
            // Whoever has gone before it was sent leaves nothing behind.
            if exchange.answer.is_closed() {
                continue;
            }
            let waiting = Waiting { answer: exchange.answer, sent_at, guard: exchange.guard };
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
            // Before anybody can give the loan back: nothing of it is under way then.
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

    /// The end of a worn connection, when only orphans are left on it.
    fn look_at_orphans(&self) -> Option<Cause> {
        let orphans = || self.streams.iter().filter(|one| one.answer.is_closed());
        let count = orphans().count();
        self.tally.orphans.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
        let own = || orphans().filter(|one| one.guard.is_none()).map(|one| one.sent_at);
        if own().count() > self.orphans_max || own().min().is_some_and(|at| at.elapsed() > self.orphan_age_max) {
            self.tally.worn.store(true, Ordering::Relaxed);
        }
        let only_orphans = count == self.streams.len() && self.requests.is_empty() && self.outbound.is_empty();
        (self.tally.worn.load(Ordering::Relaxed) && only_orphans).then_some(Cause::Closed)
    }
}
