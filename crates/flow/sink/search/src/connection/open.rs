//! From an open stream to a connection that has shown that somebody useful answers at its other end.

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
    stream::{Pulse, SaysWhenDropped, Watched},
    tls,
};

const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// What a server may send on one stream, and on all of them, before it has been read.
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;

pub struct Opening<'a> {
    pub config: &'a Config,
    pub address: SocketAddr,
    /// As errors name it.
    pub server: Arc<str>,
    /// As the server knows itself: for its certificate and for the requests.
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
            None => timeout_at(by, self.shake(stream, http == Http::Two)).await.map_err(|_| silent("the handshake"))?,
            Some(how) => {
                let secured = timeout_at(by, tls::secure(how, stream, &self.host, http)).await;
                let secured = secured.map_err(|_| silent("the TLS handshake"))?;
                let (stream, two) = secured.map_err(|why| Cause::Tls(why).at(&server))?;
                if http == Http::Two && !two {
                    return Err(Cause::NotHttp2.at(&server));
                }
                timeout_at(by, self.shake(stream, two)).await.map_err(|_| silent("the handshake"))?
            }
        };
        let connection = connection.map_err(|cause| cause.at(&server))?;
        // A stopped server accepts connections and says nothing, and only a request shows whether the login is right.
        let alive = timeout_at(by, connection.ask_for_life()).await;
        alive.map_err(|_| silent("whether it is well"))??;
        Ok(connection)
    }

    async fn shake<S>(self, stream: S, two: bool) -> Result<Connection, Cause>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let authorization = self.config.login.as_ref().map(Login::header).transpose().map_err(Cause::Secret)?;
        let pulse = Pulse::new();
        // With the stream: what hands requests over ends before it when the server takes no more of them.
        let (end, ended) = SaysWhenDropped::new();
        let end = Arc::new(end);
        let wrong = Arc::new(AtomicBool::new(false));
        let stream = TokioIo::new(Watched::new(stream, pulse.clone(), self.limits.write, end.clone()));
        let (takes_no_more, leaving) = SaysWhenDropped::new();
        let (starter, tasks) = tasks::tasks();
        let streams = Arc::new(AtomicU32::new(1));
        let carrier = if two {
            let mut builder = http2::Builder::new(starter.clone());
            builder
                .initial_stream_window_size(STREAM_WINDOW_BYTES)
                .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
                .max_header_list_size(HEAD_BYTES_MAX);
            let (sender, mut connection) = builder.handshake(stream).await.map_err(Cause::Lost)?;
            let (streams, streams_max, heard) = (streams.clone(), self.config.streams_max, pulse.clone());
            let wrong = wrong.clone();
            starter.start(async move {
                // The stream is another task's: that it has ended is not known before it is known why.
                let (_end, _takes_no_more) = (end, takes_no_more);
                let driven = poll_fn(move |cx| {
                    // A goodbye alone wakes nobody: it would be found by the next request, which it costs its answer.
                    heard.stirs(cx.waker());
                    let polled = Pin::new(&mut connection).poll(cx);
                    // What the server allows is known once its first frame has come.
                    let allowed = u32::try_from(connection.current_max_send_streams()).unwrap_or(u32::MAX);
                    streams.store(allowed.min(streams_max), Ordering::Relaxed);
                    polled
                });
                note_wrong(&wrong, &driven.await);
            });
            Carrier::Two(sender)
        } else {
            let mut builder = http1::Builder::new();
            builder.max_header_size(HEAD_BYTES_MAX as usize);
            let (sender, connection) = builder.handshake(stream).await.map_err(Cause::Lost)?;
            let wrong = wrong.clone();
            starter.start(async move {
                let _takes_no_more = takes_no_more;
                // The stream goes with it, and must not before this is said.
                let mut connection = pin!(connection);
                note_wrong(&wrong, &connection.as_mut().await);
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
            worn: AtomicBool::new(false),
            wrong,
            pulse,
        })
    }
}

/// What nobody waited for cannot be told to a request.
fn note_wrong(wrong: &AtomicBool, ended: &hyper::Result<()>) {
    if ended.as_ref().is_err_and(answer::is_no_http) {
        wrong.store(true, Ordering::Relaxed);
    }
}
