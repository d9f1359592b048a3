//! The handshake: turns an open stream into a connection whose server has answered a health check.

use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use honeyflow_pool::Limits;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::Mutex,
    time::{Instant, timeout_at},
};

use super::{Carrier, Connection, Origin, answer, tasks};
use crate::{
    config::{Config, Http},
    error::{Cause, Error},
    login::Login,
    stream::{DropSignal, Pulse, WatchedStream},
};

const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// How much a server may send ahead of the reader, on one stream and on all streams together.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

/// A connection that is being opened.
pub struct Opening<'a> {
    pub config: &'a Config,
    pub address: SocketAddr,
    /// The name of the server in errors.
    pub server: Arc<str>,
    /// The server's own name, for its certificate and for the `host` of requests.
    pub host: String,
    pub limits: Limits,
}

impl Opening<'_> {
    pub async fn over<S>(self, stream: S) -> Result<Connection, Error>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let by = Instant::now() + self.limits.ready;
        let server = self.server.clone();
        let (http, within) = (self.config.http, self.limits.ready);
        let silent = |asked| Cause::Silent { asked, within }.at(&server);
        let connection = match &self.config.tls {
            None => {
                timeout_at(by, self.handshake(stream, http == Http::Two)).await.map_err(|_| silent("the handshake"))?
            }
            Some(tls) => {
                let secured = timeout_at(by, crate::tls::secure(tls, stream, &self.host, http)).await;
                let secured = secured.map_err(|_| silent("the TLS handshake"))?;
                let (stream, two) = secured.map_err(|why| Cause::Tls(why).at(&server))?;
                if http == Http::Two && !two {
                    return Err(Cause::NotHttp2.at(&server));
                }
                timeout_at(by, self.handshake(stream, two)).await.map_err(|_| silent("the handshake"))?
            }
        };
        let connection = connection.map_err(|cause| cause.at(&server))?;
        // A stopped process still accepts connections but never answers, and only a request shows whether the login is
        // valid.
        let healthy = timeout_at(by, connection.check_health()).await;
        healthy.map_err(|_| silent("the health check"))??;
        Ok(connection)
    }

    async fn handshake<S>(self, stream: S, two: bool) -> Result<Connection, Cause>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let authorization = self.config.login.as_ref().map(Login::header).transpose().map_err(Cause::Secret)?;
        let pulse = Pulse::new();
        // Dropped with the stream. The task that sends requests may end before it, when the server takes no more.
        let (end, ended) = DropSignal::new();
        let end = Arc::new(end);
        let wrong = Arc::new(AtomicBool::new(false));
        let stream = TokioIo::new(WatchedStream::new(stream, pulse.clone(), self.limits.write, end.clone()));
        let (takes_no_more, leaving) = DropSignal::new();
        let (starter, tasks) = tasks::tasks();
        let streams = Arc::new(AtomicU32::new(1));
        let carrier = if two {
            let mut builder = http2::Builder::new(starter.clone());
            builder
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_header_list_size(HEAD_BYTES_MAX);
            let (sender, mut connection) = builder.handshake(stream).await.map_err(Cause::Lost)?;
            let (streams, streams_max, received) = (streams.clone(), self.config.streams_max, pulse.clone());
            let wrong = wrong.clone();
            starter.start(async move {
                // Another task owns the stream. Keep both signals until the reason of the end is recorded.
                let (_end, _takes_no_more) = (end, takes_no_more);
                let driven = poll_fn(move |cx| {
                    // A GOAWAY frame alone wakes no task. Without this waker the next request would find it and fail.
                    received.wake_after_read(cx.waker());
                    let polled = Pin::new(&mut connection).poll(cx);
                    // The server's limit is known after its first frame.
                    let allowed = u32::try_from(connection.current_max_send_streams()).unwrap_or(u32::MAX);
                    streams.store(allowed.min(streams_max), Ordering::Relaxed);
                    polled
                });
                record_protocol_error(&wrong, &driven.await);
            });
            Carrier::Two(sender)
        } else {
            let mut builder = http1::Builder::new();
            builder.max_header_size(HEAD_BYTES_MAX as usize);
            let (sender, connection) = builder.handshake(stream).await.map_err(Cause::Lost)?;
            let wrong = wrong.clone();
            starter.start(async move {
                let _takes_no_more = takes_no_more;
                // Dropping the connection drops the stream; record the error before that.
                let mut connection = pin!(connection);
                record_protocol_error(&wrong, &connection.as_mut().await);
            });
            Carrier::One(Mutex::new(sender))
        };
        let port = self.address.port();
        let scheme = if self.config.tls.is_some() { "https" } else { "http" };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host };
        Ok(Connection {
            server: self.server,
            address: self.address,
            limits: self.limits,
            carrier,
            streams,
            origin: Origin {
                scheme,
                authority: format!("{host}:{port}"),
                prefix: self.config.prefix.clone(),
                authorization,
            },
            answer_bytes_max: self.config.answer_bytes_max,
            tasks,
            ended,
            leaving,
            unusable: AtomicBool::new(false),
            wrong,
            pulse,
        })
    }
}

/// Records that the server sent something that is not HTTP, also if no request waits for an answer.
fn record_protocol_error(wrong: &AtomicBool, ended: &hyper::Result<()>) {
    if ended.as_ref().is_err_and(answer::is_protocol_error) {
        wrong.store(true, Ordering::Relaxed);
    }
}
