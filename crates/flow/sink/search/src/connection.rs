//! One HTTP connection. A separate task drives the socket; this file sends requests to it and reads the answers to
//! their end.
//!
//! Invariant: an HTTP/1.1 connection whose answer was not read to its end never carries another request. It is closed
//! at once, whether the caller went away, the answer was too long or it could not be read.

mod answer;
mod handshake;
mod tasks;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use bytes::Bytes;
use honeyflow_pool::{self as pool, Limits};
use http::{HeaderValue, Uri, header};
use http_body_util::Full;
use hyper::client::conn::{TrySendError, http1, http2};
use tokio::{
    sync::{Mutex, watch},
    time::{Instant, timeout_at},
};

use crate::{
    error::{Cause, Error},
    request::{Answer, Request},
    stream::Pulse,
    verdict::is_alive,
};

pub(crate) use handshake::Opening;
use tasks::Tasks;

type Body = Full<Bytes>;

/// The health check, sent when a connection is opened and when it has been silent. Some builds answer nothing at `/`.
pub(crate) const PROBE: &str = "/_cluster/health?local=true";
const PROBE_BYTES_MAX: usize = 64 * 1024;

enum Carrier {
    /// HTTP/1.1. The lock is held until the answer has been read.
    One(Mutex<http1::SendRequest<Body>>),
    /// HTTP/2.
    Two(http2::SendRequest<Body>),
}

pub struct Connection {
    /// The name of the server in errors.
    server: Arc<str>,
    address: SocketAddr,
    limits: Limits,
    carrier: Carrier,
    streams: Arc<AtomicU32>,
    origin: Origin,
    answer_bytes_max: usize,
    tasks: Tasks,
    /// True after the connection has ended.
    ended: watch::Receiver<bool>,
    /// True once the connection takes no new request. Over HTTP/2 the requests in flight are still answered.
    leaving: watch::Receiver<bool>,
    /// HTTP/1.1 only: the server has announced that it closes the connection, or it refused the login.
    unusable: AtomicBool,
    /// The server sent something that is not HTTP. Set by a request, or by the driving task before it ends.
    wrong: Arc<AtomicBool>,
    pulse: Arc<Pulse>,
}

/// The parts that all requests of a connection share.
struct Origin {
    scheme: &'static str,
    authority: String,
    prefix: String,
    authorization: Option<HeaderValue>,
}

impl Connection {
    /// Sends a request and reads the whole answer. There is no deadline here. Dropping the future before its end closes
    /// an exclusive connection and leaves a shared one open.
    ///
    /// # Errors
    /// Returns everything but a success, including refusals by the server.
    pub async fn send(&self, request: &Request) -> Result<Answer, Error> {
        self.exchange(request).await.map_err(|cause| cause.at(&self.server))
    }

    /// The address that was dialled.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    pub(crate) fn server(&self) -> &Arc<str> {
        &self.server
    }

    async fn exchange(&self, request: &Request) -> Result<Answer, Cause> {
        let exchanged = self.exchange_once(request).await;
        let wrong = match &exchanged {
            Err(Cause::Malformed(_) | Cause::Endless) => true,
            // The server sent more after the previous answer.
            Err(Cause::NotSent(Some(error))) => answer::is_protocol_error(error),
            _ => false,
        };
        if wrong {
            self.wrong.store(true, Ordering::Relaxed);
        }
        exchanged
    }

    async fn exchange_once(&self, request: &Request) -> Result<Answer, Cause> {
        let bytes_max = request.answer_bytes_max.unwrap_or(self.answer_bytes_max);
        let message = self.message(request)?;
        match &self.carrier {
            Carrier::One(sender) => {
                let mut sender = sender.lock().await;
                if pool::Connection::broken(self) {
                    return Err(Cause::NotSent(None));
                }
                sender.ready().await.map_err(|error| Cause::NotSent(Some(error)))?;
                let guard = CloseUnlessComplete { connection: self, complete: false };
                let response = sender.try_send_request(message).await.map_err(unanswered)?;
                if closes_after(&response) {
                    // No other request may get the connection before it has really ended.
                    self.unusable.store(true, Ordering::Relaxed);
                }
                let received = answer::receive(response, bytes_max).await?;
                guard.complete();
                if received.status == 401 {
                    // The next connection logs in with the current secret.
                    self.unusable.store(true, Ordering::Relaxed);
                }
                received.into_result()
            }
            Carrier::Two(sender) => {
                let mut sender = sender.clone();
                sender.ready().await.map_err(|error| Cause::NotSent(Some(error)))?;
                let response = sender.try_send_request(message).await.map_err(unanswered)?;
                // Other requests may be in flight: the holder of the loan decides whether to discard it, see `Client`.
                answer::receive(response, bytes_max).await?.into_result()
            }
        }
    }

    fn message(&self, request: &Request) -> Result<http::Request<Body>, Cause> {
        let origin = &self.origin;
        let target = request.target(&origin.prefix).map_err(Cause::Request)?;
        let mut message = http::Request::builder().method(request.method.clone());
        message = match &self.carrier {
            Carrier::One(_) => message.uri(Uri::from(target)).header(header::HOST, &origin.authority),
            Carrier::Two(_) => {
                let uri = Uri::builder().scheme(origin.scheme).authority(origin.authority.as_str());
                message.uri(uri.path_and_query(target).build().map_err(|error| Cause::Request(error.to_string()))?)
            }
        };
        message = message
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, concat!("honeyflow/", env!("CARGO_PKG_VERSION")));
        if let Some(authorization) = &origin.authorization {
            message = message.header(header::AUTHORIZATION, authorization);
        }
        if !request.body.is_empty() {
            message = message.header(header::CONTENT_TYPE, request.content);
        }
        message.body(Full::new(request.body.clone())).map_err(|error| Cause::Request(error.to_string()))
    }

    /// Sends the health check. It fails on an answer that would also count against the server's health.
    async fn check_health(&self) -> Result<(), Error> {
        let probe = Request::get(PROBE).answered_within_bytes(PROBE_BYTES_MAX);
        match self.send(&probe).await {
            Ok(_) => Ok(()),
            Err(Error { cause: Cause::Refused(refusal), .. }) if is_alive(refusal.status) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl pool::Connection for Connection {
    fn streams(&self) -> u32 {
        self.streams.load(Ordering::Relaxed).max(1)
    }

    fn broken(&self) -> bool {
        self.unusable.load(Ordering::Relaxed) || *self.ended.borrow()
    }

    fn takes_more(&self) -> bool {
        match self.carrier {
            Carrier::One(_) => true,
            Carrier::Two(_) => !*self.leaving.borrow(),
        }
    }

    fn answered_wrongly(&self) -> bool {
        self.wrong.load(Ordering::Relaxed)
    }

    async fn closed(&self) {
        // An error means that the driving task has ended, which is the same.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    async fn takes_no_more(&self) {
        match self.carrier {
            // An exclusive connection only ends; it is never in the state of taking no more.
            Carrier::One(_) => std::future::pending().await,
            Carrier::Two(_) => drop(self.leaving.clone().wait_for(|leaving| *leaving).await),
        }
    }

    async fn probe(&self, by: Instant) -> bool {
        timeout_at(by, self.check_health()).await.is_ok_and(|alive| alive.is_ok())
    }

    fn last_read(&self) -> Option<Instant> {
        Some(self.pulse.last_read())
    }

    async fn close(&self, by: Instant) {
        self.tasks.abort();
        let _ = timeout_at(by, self.tasks.gone()).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.abort();
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.server)
    }
}

/// Closes the connection when it is dropped before the exchange was complete, before another request can begin.
struct CloseUnlessComplete<'a> {
    connection: &'a Connection,
    complete: bool,
}

impl CloseUnlessComplete<'_> {
    fn complete(mut self) {
        self.complete = true;
    }
}

impl Drop for CloseUnlessComplete<'_> {
    fn drop(&mut self) {
        if !self.complete {
            self.connection.unusable.store(true, Ordering::Relaxed);
            self.connection.tasks.abort();
        }
    }
}

/// Whether the server closes the connection after this answer.
fn closes_after<B>(response: &http::Response<B>) -> bool {
    let mut words = response.headers().get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let closes = words.any(|text| text.split(',').any(|word| word.trim().eq_ignore_ascii_case("close")));
    closes || response.version() < http::Version::HTTP_11
}

fn unanswered(mut error: TrySendError<http::Request<Body>>) -> Cause {
    // hyper returns the message if no byte of it was sent.
    let sent = error.take_message().is_none();
    let error = error.into_error();
    if sent { answer::broken(error) } else { Cause::NotSent(Some(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pl_140_the_announcement_of_a_close_is_recognised() {
        let closes = |version, words: &[&str]| {
            let response = words.iter().fold(http::Response::builder().version(version), |response, words| {
                response.header(header::CONNECTION, *words)
            });
            closes_after(&response.body(()).unwrap())
        };
        assert!(
            closes(http::Version::HTTP_11, &["close"]) && closes(http::Version::HTTP_11, &["upgrade", "x , Close"])
        );
        assert!(closes(http::Version::HTTP_10, &[]));
        assert!(!closes(http::Version::HTTP_11, &[]) && !closes(http::Version::HTTP_11, &["keep-alive, closed"]));
    }
}
