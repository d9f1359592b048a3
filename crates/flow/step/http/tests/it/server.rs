//! A test server that records requests as they arrive and writes the bytes of a script.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// Request line and headers, as sent.
    pub head: String,
    pub body: Vec<u8>,
}

impl ReceivedRequest {
    pub fn target(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let mut headers = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

/// The bytes to write, piece by piece; then the server closes the connection.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub pieces: Vec<Vec<u8>>,
    pub pause: Duration,
    pub then_hang: bool,
}

impl Reply {
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Reply {
        Reply { pieces: vec![bytes.into()], ..Reply::default() }
    }

    pub fn status(status: u16) -> Reply {
        Reply::raw(format!("HTTP/1.1 {status} X\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"))
    }

    pub fn with(headers: &str, body: &[u8]) -> Reply {
        let bytes = format!("HTTP/1.1 200 OK\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n", body.len());
        Reply { pieces: vec![bytes.into_bytes(), body.to_vec()], ..Reply::default() }
    }

    pub fn json(body: &str) -> Reply {
        Reply::with("content-type: application/json\r\n", body.as_bytes())
    }

    pub fn silence() -> Reply {
        Reply { then_hang: true, ..Reply::default() }
    }
}

type Script = Arc<dyn Fn(&ReceivedRequest) -> Reply + Send + Sync>;

pub struct Server {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<ReceivedRequest>>>,
    accepting: JoinHandle<()>,
}

impl Server {
    pub async fn start(script: impl Fn(&ReceivedRequest) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (script, log): (Script, _) = (Arc::new(script), Arc::clone(&heard));
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&script), Arc::clone(&log)));
            }
        });
        Server { address, heard, accepting }
    }

    pub async fn always(reply: Reply) -> Server {
        Server::start(move |_| reply.clone()).await
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.heard.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(mut stream: TcpStream, script: Script, log: Arc<Mutex<Vec<ReceivedRequest>>>) {
    let Some(heard) = read_request(&mut stream).await else { return };
    let reply = script(&heard);
    log.lock().unwrap().push(heard);
    for piece in &reply.pieces {
        if stream.write_all(piece).await.is_err() {
            return;
        }
        if !reply.pause.is_zero() {
            tokio::time::sleep(reply.pause).await;
        }
    }
    if reply.then_hang {
        // until the client closes the connection
        let _ = stream.read(&mut [0]).await;
    }
    let _ = stream.shutdown().await;
}

async fn read_request(stream: &mut TcpStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).ok()?;
    let mut heard = ReceivedRequest { head, body: bytes.split_off(end + 4) };
    let length: usize = heard.header("content-length").map_or(0, |text| text.parse().unwrap());
    while heard.body.len() < length {
        if stream.read_buf(&mut heard.body).await.ok()? == 0 {
            return None;
        }
    }
    Some(heard)
}
