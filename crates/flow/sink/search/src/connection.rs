//! One HTTP connection. A task of its own drives the socket; here requests are handed to it and answers read to their end.
//!
//! The invariant: an HTTP/1.1 connection whose answer was not read to its end never carries another request. It is closed
//! where it stands, whether the caller went away, the answer was too long or nobody could read it.

mod answer;
mod open;
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

pub(crate) use open::Opening;
use tasks::Tasks;

type Body = Full<Bytes>;

/// Asked when a connection is opened and when it has been silent. Some builds have nothing at `/`.
pub(crate) const PROBE: &str = "/_cluster/health?local=true";
const PROBE_BYTES_MAX: usize = 64 * 1024;

enum Carrier {
    /// Held until the answer has been read.
    One(Mutex<http1::SendRequest<Body>>),
    Two(http2::SendRequest<Body>),
}

pub struct Connection {
    /// As errors name it.
    server: Arc<str>,
    address: SocketAddr,
    limits: Limits,
    carrier: Carrier,
    streams: Arc<AtomicU32>,
    origin: Origin,
    answer_bytes_max: usize,
    tasks: Tasks,
    /// Nothing comes or goes any more.
    ended: watch::Receiver<bool>,
    /// Nothing new is taken. Over HTTP/2 that is not the end: what is under way is still answered.
    leaving: watch::Receiver<bool>,
    /// Of HTTP/1.1: the server has said goodbye, or does not know us any more.
    worn: AtomicBool,
    /// What came was no answer: an exchange says so, or what drives the connection, before it ends.
    wrong: Arc<AtomicBool>,
    pulse: Arc<Pulse>,
}

/// What is the same in every request of a connection.
struct Origin {
    scheme: &'static str,
    authority: String,
    prefix: String,
    authorization: Option<HeaderValue>,
}

impl Connection {
    /// Sends a request and reads the whole answer. It has no deadline of its own; dropped before its end, it costs an
    /// exclusive connection its life and a shared one nothing.
    ///
    /// # Errors
    /// Everything but a success, the server's own refusals among it.
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
            // What came after the answer before it.
            Err(Cause::NotSent(Some(error))) => answer::is_no_http(error),
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
                let whole = ClosedUnlessWhole { connection: self, whole: false };
                let response = sender.try_send_request(message).await.map_err(unanswered)?;
                if says_goodbye(&response) {
                    // Nobody else should be given the connection until it has really ended.
                    self.worn.store(true, Ordering::Relaxed);
                }
                let taken = answer::take(response, bytes_max).await?;
                whole.done();
                if taken.status == 401 {
                    // The next connection logs in with what the secret is by then.
                    self.worn.store(true, Ordering::Relaxed);
                }
                taken.judged()
            }
            Carrier::Two(sender) => {
                let mut sender = sender.clone();
                sender.ready().await.map_err(|error| Cause::NotSent(Some(error)))?;
                let response = sender.try_send_request(message).await.map_err(unanswered)?;
                // Others may be under way: whoever has it on loan says whether it takes more, see `Client`.
                answer::take(response, bytes_max).await?.judged()
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

    /// Asks for a sign of life. An answer that would be held against the server is none.
    async fn ask_for_life(&self) -> Result<(), Error> {
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
        self.worn.load(Ordering::Relaxed) || *self.ended.borrow()
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
        // An error says that the driver is gone: the same.
        let _ = self.ended.clone().wait_for(|ended| *ended).await;
    }

    async fn takes_no_more(&self) {
        match self.carrier {
            // Of one request at a time, its end is all there is to hear.
            Carrier::One(_) => std::future::pending().await,
            Carrier::Two(_) => drop(self.leaving.clone().wait_for(|leaving| *leaving).await),
        }
    }

    async fn probe(&self, by: Instant) -> bool {
        timeout_at(by, self.ask_for_life()).await.is_ok_and(|alive| alive.is_ok())
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

/// Says what became of the exchange before anybody else may begin one.
struct ClosedUnlessWhole<'a> {
    connection: &'a Connection,
    whole: bool,
}

impl ClosedUnlessWhole<'_> {
    fn done(mut self) {
        self.whole = true;
    }
}

impl Drop for ClosedUnlessWhole<'_> {
    fn drop(&mut self) {
        if !self.whole {
            self.connection.worn.store(true, Ordering::Relaxed);
            self.connection.tasks.abort();
        }
    }
}

/// Whether the server closes after this answer.
fn says_goodbye<B>(response: &http::Response<B>) -> bool {
    let mut words = response.headers().get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    let closes = words.any(|text| text.split(',').any(|word| word.trim().eq_ignore_ascii_case("close")));
    closes || response.version() < http::Version::HTTP_11
}

fn unanswered(mut error: TrySendError<http::Request<Body>>) -> Cause {
    // The message comes back if not a byte of it was sent.
    let sent = error.take_message().is_none();
    let error = error.into_error();
    if sent { answer::broken(error) } else { Cause::NotSent(Some(error)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pl_140_a_goodbye_is_heard() {
        let said = |version, words: &[&str]| {
            let response = words.iter().fold(http::Response::builder().version(version), |response, words| {
                response.header(header::CONNECTION, *words)
            });
            says_goodbye(&response.body(()).unwrap())
        };
        assert!(said(http::Version::HTTP_11, &["close"]) && said(http::Version::HTTP_11, &["upgrade", "x , Close"]));
        assert!(said(http::Version::HTTP_10, &[]));
        assert!(!said(http::Version::HTTP_11, &[]) && !said(http::Version::HTTP_11, &["keep-alive, closed"]));
    }
}
