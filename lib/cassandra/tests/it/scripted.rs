//! A server that a test writes the answers for, over real sockets. It hears requests by another implementation of the
//! protocol, so that both ends do not share a mistake.

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
pub enum Say {
    /// A message in answer to it.
    Answer(u8, Vec<u8>),
    /// Any messages: stream, opcode, body.
    Messages(Vec<(i16, u8, Vec<u8>)>),
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// That, once told.
    After(Arc<Notify>, Box<Say>),
    Nothing,
    Hang,
    Close,
}

/// A request as it was heard.
pub struct Heard {
    pub stream: i16,
    pub version: Version,
    pub request: RequestBody,
    /// As it came, unpacked.
    pub body: Vec<u8>,
}

type Answer = dyn Fn(&Heard) -> Say + Send + Sync;
type First = dyn Fn(&Heard) -> Option<Say> + Send + Sync;

#[derive(Clone)]
pub struct Script {
    pub versions: Vec<Version>,
    /// What to say to a version we do not speak.
    pub foreign_version: u8,
    pub compression: Vec<&'static str>,
    pub password: Option<(&'static str, &'static str)>,
    /// Before everything else; `None`: the usual answer.
    pub first: Arc<First>,
    pub answer: Arc<Answer>,
    pub heard: Arc<Mutex<Vec<String>>>,
    pub options: Arc<Mutex<HashMap<String, String>>>,
    /// How often it was spoken to in a version that it does not know.
    pub foreign: Arc<AtomicUsize>,
    /// Ends the connections that are open.
    pub cut: watch::Sender<()>,
}

impl Script {
    pub fn new(answer: impl Fn(&Heard) -> Say + Send + Sync + 'static) -> Self {
        Self {
            versions: vec![Version::V4, Version::V5],
            foreign_version: 4,
            compression: vec!["lz4", "snappy"],
            password: None,
            first: Arc::new(|_| None),
            answer: Arc::new(answer),
            heard: Arc::default(),
            options: Arc::default(),
            foreign: Arc::default(),
            cut: watch::Sender::new(()),
        }
    }

    /// Answers every query with one row: its own text.
    pub fn echo() -> Self {
        Self::new(|heard| match &heard.request {
            RequestBody::Query(query) => text_row(&query.query),
            _ => Say::Nothing,
        })
    }

    pub fn first(mut self, first: impl Fn(&Heard) -> Option<Say> + Send + Sync + 'static) -> Self {
        self.first = Arc::new(first);
        self
    }

    /// Statements and verbs in the order they came.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
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
                        () = script.talk(stream) => {}
                        _ = cut.changed() => {}
                    }
                });
            }
        });
        address
    }

    /// Ends every connection; new ones are accepted as before.
    pub fn cut_all(&self) {
        self.cut.send_replace(());
    }

    pub async fn talk(self, mut stream: impl AsyncRead + AsyncWrite + Unpin) {
        let mut talk = Talk { script: self, way: (Version::V4, Compression::None), in_segments: false };
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
                let heard = Heard { stream: envelope.stream_id, version, request, body: envelope.body };
                let was_in_segments = talk.in_segments;
                let say = match talk.say(&heard) {
                    Say::After(told, then) => {
                        told.notified().await;
                        *then
                    }
                    now => now,
                };
                let way = if was_in_segments { talk.way } else { (Version::V4, Compression::None) };
                let messages: Vec<Vec<u8>> = match say {
                    Say::Answer(opcode, body) => vec![speak::message(version, 0, heard.stream, opcode, &body)],
                    Say::Messages(all) => all
                        .iter()
                        .map(|(stream, opcode, body)| speak::message(version, 0, *stream, *opcode, body))
                        .collect(),
                    Say::Raw(bytes) => {
                        let _ = stream.write_all(&bytes).await;
                        continue;
                    }
                    Say::Nothing | Say::After(..) => continue,
                    Say::Hang => return std::future::pending().await,
                    Say::Close => return,
                };
                // Version 4 packs bodies from the answer to STARTUP on.
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

struct Talk {
    script: Script,
    way: (Version, Compression),
    in_segments: bool,
}

impl Talk {
    fn speaks(&self, version: u8) -> bool {
        self.script.versions.iter().any(|spoken| spoken.number() == version)
    }

    fn say(&mut self, heard: &Heard) -> Say {
        let word = match &heard.request {
            RequestBody::Query(query) => query.query.clone(),
            RequestBody::Prepare(prepare) => format!("PREPARE {}", prepare.query),
            other => format!("{other:?}").split(['(', ' ']).next().unwrap_or_default().to_uppercase(),
        };
        self.script.heard.lock().unwrap().push(word);
        if let Some(say) = (self.script.first)(heard) {
            return say;
        }
        match &heard.request {
            RequestBody::Options(_) => {
                let body = Body::new().u16(1).string("COMPRESSION").strings(&self.script.compression);
                Say::Answer(opcode::SUPPORTED, body.0)
            }
            RequestBody::Startup(startup) => {
                let asked = startup.map.get("COMPRESSION").and_then(|name| Compression::named(name));
                self.way = (heard.version, asked.unwrap_or_default());
                self.in_segments = heard.version == Version::V5;
                self.script.options.lock().unwrap().extend(startup.map.clone());
                match self.script.password {
                    None => Say::Answer(opcode::READY, vec![]),
                    Some(_) => Say::Answer(opcode::AUTHENTICATE, Body::new().string("Password").0),
                }
            }
            RequestBody::AuthResponse(_) => {
                let (user, password) = self.script.password.unwrap_or_default();
                let right = Body::new().bytes(Some(format!("\0{user}\0{password}").as_bytes())).0;
                if heard.body == right {
                    return Say::Answer(opcode::AUTH_SUCCESS, Body::new().bytes(None).0);
                }
                Say::Answer(opcode::ERROR, speak::error(0x100, "Bad credentials", Body::new()))
            }
            RequestBody::Register(_) => Say::Answer(opcode::READY, vec![]),
            RequestBody::Query(query) if query.query.starts_with("USE ") => {
                Say::Answer(opcode::RESULT, Body::new().i32(3).string("shop").0)
            }
            _ => (self.script.answer)(heard),
        }
    }
}

/// One row with one text.
pub fn text_row(text: &str) -> Say {
    let rows = speak::rows(&[("text", honeyflow_cassandra::Type::Text)], &[vec![Some(text.into())]], None);
    Say::Answer(opcode::RESULT, rows)
}

pub fn refuse(code: i32, more: Body) -> Say {
    Say::Answer(opcode::ERROR, speak::error(code, "because", more))
}
