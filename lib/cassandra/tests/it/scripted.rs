//! A server over real sockets that replies as the test's script says. Another implementation of the protocol decodes
//! the requests, so that both sides do not share a mistake.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use cassandra_protocol as peer;
use honeyflow_cassandra::wire::{Compression, Version};
use peer::frame::frame_decoder::{FrameDecoder, LegacyFrameDecoder, Lz4FrameDecoder, UncompressedFrameDecoder};
use peer::frame::message_request::RequestBody;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};

use crate::codec::sent;
use crate::speak::{self, Body, opcode};

/// What the server says to one request.
pub enum Reply {
    /// One message on the stream of the request.
    Answer(u8, Vec<u8>),
    /// Any messages: stream, opcode, body.
    Messages(Vec<(i16, u8, Vec<u8>)>),
    /// Raw bytes.
    Raw(Vec<u8>),
    /// The reply, after a notification.
    After(Arc<Notify>, Box<Reply>),
    Nothing,
    Hang,
    Close,
}

/// A request that the server received.
pub struct ReceivedRequest {
    pub stream: i16,
    pub version: Version,
    pub request: RequestBody,
    /// The unpacked body.
    pub body: Vec<u8>,
}

type Answer = dyn Fn(&ReceivedRequest) -> Reply + Send + Sync;
type EarlyReply = dyn Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync;

#[derive(Clone)]
pub struct Script {
    pub versions: Vec<Version>,
    /// The version in the reply to a version that the server does not speak.
    pub foreign_version: u8,
    pub compression: Vec<&'static str>,
    pub password: Option<(&'static str, &'static str)>,
    /// Called before everything else; `None` = give the usual reply.
    pub first: Arc<EarlyReply>,
    pub answer: Arc<Answer>,
    pub received: Arc<Mutex<Vec<String>>>,
    pub options: Arc<Mutex<HashMap<String, String>>>,
    /// The number of connections in a version that the server does not know.
    pub foreign: Arc<AtomicUsize>,
    /// Ends the open connections.
    pub cut: watch::Sender<()>,
}

impl Script {
    pub fn new(answer: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Self {
        Self {
            versions: vec![Version::V4, Version::V5],
            foreign_version: 4,
            compression: vec!["lz4", "snappy"],
            password: None,
            first: Arc::new(|_| None),
            answer: Arc::new(answer),
            received: Arc::default(),
            options: Arc::default(),
            foreign: Arc::default(),
            cut: watch::Sender::new(()),
        }
    }

    /// Answers every query with one row: its own text.
    pub fn echo() -> Self {
        Self::new(|received| match &received.request {
            RequestBody::Query(query) => text_row(&query.query),
            _ => Reply::Nothing,
        })
    }

    pub fn first(mut self, first: impl Fn(&ReceivedRequest) -> Option<Reply> + Send + Sync + 'static) -> Self {
        self.first = Arc::new(first);
        self
    }

    /// Returns the statements and verbs in the order in which they came.
    pub fn received(&self) -> Vec<String> {
        self.received.lock().unwrap().clone()
    }

    pub async fn listen(&self) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let script = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, mut cut) = (script.clone(), script.cut.subscribe());
                tokio::spawn(async move {
                    tokio::select! {
                        () = script.serve(stream) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        address
    }

    /// Ends every open connection; new ones are accepted.
    pub fn cut_all(&self) {
        self.cut.send_replace(());
    }

    pub async fn serve(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut talk = Conversation { script: self, way: (Version::V4, Compression::None), in_segments: false };
        let mut decoder: Box<dyn FrameDecoder + Send> = Box::new(LegacyFrameDecoder::default());
        let mut data = Vec::new();
        let mut begun = false;
        loop {
            data.reserve(1 << 16);
            if stream.read_buf(&mut data).await.unwrap_or(0) == 0 {
                return;
            }
            if !std::mem::replace(&mut begun, true) && data.first().is_some_and(|version| !talk.speaks(*version)) {
                let body = speak::error(0x0a, "Invalid or unsupported protocol version", Body::new());
                let mut message = speak::message(Version::V4, 0, 0, opcode::ERROR, &body);
                message[0] = 0x80 | talk.script.foreign_version;
                talk.script.foreign.fetch_add(1, Ordering::SeqCst);
                let _ = stream.write_all(&message).await;
                return;
            }
            for envelope in decoder.consume(&mut data, peer_compression(talk.way.1)).unwrap() {
                let version = Version::numbered(u8::from(envelope.version)).unwrap();
                let request = envelope.request_body().unwrap();
                let received = ReceivedRequest { stream: envelope.stream_id, version, request, body: envelope.body };
                let was_in_segments = talk.in_segments;
                let say = match talk.reply(&received) {
                    Reply::After(notify, then) => {
                        notify.notified().await;
                        *then
                    }
                    now => now,
                };
                let way = if was_in_segments { talk.way } else { (Version::V4, Compression::None) };
                let messages: Vec<Vec<u8>> = match say {
                    Reply::Answer(opcode, body) => vec![speak::message(version, 0, received.stream, opcode, &body)],
                    Reply::Messages(all) => all
                        .iter()
                        .map(|(stream, opcode, body)| speak::message(version, 0, *stream, *opcode, body))
                        .collect(),
                    Reply::Raw(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                        continue;
                    }
                    Reply::Nothing | Reply::After(..) => continue,
                    Reply::Hang => return std::future::pending().await,
                    Reply::Close => return,
                };
                // Version 4 packs bodies from the reply to STARTUP on.
                let way = if version == Version::V4 { (version, talk.way.1) } else { way };
                if stream.write_all(&sent(way, &messages)).await.is_err() {
                    return;
                }
                if talk.in_segments && !was_in_segments {
                    decoder = match talk.way.1 {
                        Compression::None => Box::new(UncompressedFrameDecoder::default()),
                        _ => Box::new(Lz4FrameDecoder::default()),
                    };
                }
            }
        }
    }
}

fn peer_compression(compression: Compression) -> peer::compression::Compression {
    match compression {
        Compression::None => peer::compression::Compression::None,
        Compression::Lz4 => peer::compression::Compression::Lz4,
        Compression::Snappy => peer::compression::Compression::Snappy,
    }
}

struct Conversation {
    script: Script,
    way: (Version, Compression),
    in_segments: bool,
}

impl Conversation {
    fn speaks(&self, version: u8) -> bool {
        self.script.versions.iter().any(|spoken| spoken.number() == version)
    }

    fn reply(&mut self, received: &ReceivedRequest) -> Reply {
        let word = match &received.request {
            RequestBody::Query(query) => query.query.clone(),
            RequestBody::Prepare(prepare) => format!("PREPARE {}", prepare.query),
            other => format!("{other:?}").split(['(', ' ']).next().unwrap_or_default().to_uppercase(),
        };
        self.script.received.lock().unwrap().push(word);
        if let Some(say) = (self.script.first)(received) {
            return say;
        }
        match &received.request {
            RequestBody::Options(_) => {
                let body = Body::new().u16(1).string("COMPRESSION").strings(&self.script.compression);
                Reply::Answer(opcode::SUPPORTED, body.0)
            }
            RequestBody::Startup(startup) => {
                let asked = startup.map.get("COMPRESSION").and_then(|name| Compression::named(name));
                self.way = (received.version, asked.unwrap_or_default());
                self.in_segments = received.version == Version::V5;
                self.script.options.lock().unwrap().extend(startup.map.clone());
                match self.script.password {
                    None => Reply::Answer(opcode::READY, vec![]),
                    Some(_) => Reply::Answer(opcode::AUTHENTICATE, Body::new().string("Password").0),
                }
            }
            RequestBody::AuthResponse(_) => {
                let (user, password) = self.script.password.unwrap_or_default();
                let right = Body::new().bytes(Some(format!("\0{user}\0{password}").as_bytes())).0;
                if received.body == right {
                    return Reply::Answer(opcode::AUTH_SUCCESS, Body::new().bytes(None).0);
                }
                Reply::Answer(opcode::ERROR, speak::error(0x100, "Bad credentials", Body::new()))
            }
            RequestBody::Register(_) => Reply::Answer(opcode::READY, vec![]),
            RequestBody::Query(query) if query.query.starts_with("USE ") => {
                Reply::Answer(opcode::RESULT, Body::new().i32(3).string("shop").0)
            }
            _ => (self.script.answer)(received),
        }
    }
}

/// A reply of one row with one text.
pub fn text_row(text: &str) -> Reply {
    let rows = speak::rows(&[("text", honeyflow_cassandra::Type::Text)], &[vec![Some(text.into())]], None);
    Reply::Answer(opcode::RESULT, rows)
}

pub fn refuse(code: i32, more: Body) -> Reply {
    Reply::Answer(opcode::ERROR, speak::error(code, "because", more))
}
