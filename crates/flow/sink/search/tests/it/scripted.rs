//! HTTP/1.1 servers in memory that say what they are told to say, byte by byte.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use honeyflow_pool::Dial;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, DuplexStream},
    sync::watch,
};

/// What a server heard.
#[derive(Clone, Debug)]
pub struct Heard {
    pub target: String,
    pub head: String,
    pub body: Vec<u8>,
}

/// What it does then, one after the other; after the last it waits for the next request.
#[derive(Clone, Debug)]
pub enum Act {
    Send(Vec<u8>),
    /// Until the signal is given.
    Wait(watch::Receiver<bool>),
    Close,
    /// Says nothing more, until the other side goes.
    Freeze,
    /// Says nothing more and reads nothing more; its end of the stream stays open.
    Deafen,
}

type Script = Arc<dyn Fn(&Heard) -> Vec<Act> + Send + Sync>;

#[derive(Default)]
struct Node {
    script: Option<Script>,
    heard: Vec<Heard>,
    dialled: usize,
    open: usize,
}

/// All servers of a test, by their addresses; a dial to any other is refused.
#[derive(Clone, Default)]
pub struct Scripted {
    nodes: Arc<Mutex<BTreeMap<SocketAddr, Node>>>,
}

/// As small as sockets may get: whoever writes more than this must be read.
const BUFFER_BYTES: usize = 4096;

pub const WELL: &str = r#"{"status":"green"}"#;

pub fn answer(status: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}")
        .into_bytes()
}

pub fn ok(body: &str) -> Vec<Act> {
    vec![Act::Send(answer("200 OK", body))]
}

impl Scripted {
    /// A server that is well, and answers everything else as the script says.
    pub fn serve(&self, address: &str, script: impl Fn(&Heard) -> Vec<Act> + Send + Sync + 'static) {
        let well = move |heard: &Heard| {
            if heard.target.starts_with("/_cluster/health") { ok(WELL) } else { script(heard) }
        };
        self.serve_all(address, well);
    }

    /// The same, asked for its health too.
    pub fn serve_all(&self, address: &str, script: impl Fn(&Heard) -> Vec<Act> + Send + Sync + 'static) {
        self.with(address, |node| node.script = Some(Arc::new(script)));
    }

    fn with<T>(&self, address: &str, f: impl FnOnce(&mut Node) -> T) -> T {
        let address = address.parse().unwrap();
        f(self.nodes.lock().unwrap().entry(address).or_default())
    }

    /// Targets of the requests that came, those for its health left out.
    pub fn heard(&self, address: &str) -> Vec<Heard> {
        let all = self.with(address, |node| node.heard.clone());
        all.into_iter().filter(|heard| !heard.target.starts_with("/_cluster/health")).collect()
    }

    pub fn dialled(&self, address: &str) -> usize {
        self.with(address, |node| node.dialled)
    }

    /// Connections whose other side is still there.
    pub fn open(&self, address: &str) -> usize {
        self.with(address, |node| node.open)
    }

    async fn run(self, address: SocketAddr, mut stream: DuplexStream) {
        while let Some(heard) = hear(&mut stream).await {
            let script = {
                let mut nodes = self.nodes.lock().unwrap();
                let Some(node) = nodes.get_mut(&address) else { return };
                node.heard.push(heard.clone());
                node.script.clone()
            };
            let Some(script) = script else { return };
            for act in script(&heard) {
                match act {
                    // A client that has gone is noticed at the next request.
                    Act::Send(bytes) => drop(stream.write_all(&bytes).await),
                    Act::Wait(mut signal) => drop(signal.wait_for(|given| *given).await),
                    Act::Close => return,
                    Act::Freeze => {
                        let mut rest = Vec::new();
                        let _ = stream.read_to_end(&mut rest).await;
                        return;
                    }
                    Act::Deafen => std::future::pending().await,
                }
            }
        }
    }
}

impl Dial for Scripted {
    type Stream = DuplexStream;

    async fn dial(&self, to: SocketAddr, _within: Duration) -> io::Result<DuplexStream> {
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        {
            let mut nodes = self.nodes.lock().unwrap();
            let node = nodes.get_mut(&to).filter(|node| node.script.is_some());
            let node = node.ok_or(io::ErrorKind::ConnectionRefused)?;
            node.dialled += 1;
            node.open += 1;
        }
        let servers = self.clone();
        tokio::spawn(async move {
            servers.clone().run(to, far).await;
            if let Some(node) = servers.nodes.lock().unwrap().get_mut(&to) {
                node.open -= 1;
            }
        });
        Ok(near)
    }
}

async fn hear(stream: &mut DuplexStream) -> Option<Heard> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(bytes).ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let target = head.split(' ').nth(1)?.to_owned();
    Some(Heard { target, head, body })
}
