//! HTTP/1.1 servers in memory that send exactly the bytes that a test's script returns.

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

/// A request that a server received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub target: String,
    pub head: String,
    pub body: Vec<u8>,
}

/// One action of a server. After the last action of a script the server waits for the next request.
#[derive(Clone, Debug)]
pub enum Act {
    Send(Vec<u8>),
    /// Waits until the signal is given.
    Wait(watch::Receiver<bool>),
    Close,
    /// Sends nothing more, until the client closes the connection.
    Freeze,
    /// Sends nothing and reads nothing more; its end of the stream stays open.
    Deafen,
}

type Script = Arc<dyn Fn(&ReceivedRequest) -> Vec<Act> + Send + Sync>;

#[derive(Default)]
struct Node {
    script: Option<Script>,
    received: Vec<ReceivedRequest>,
    dialled: usize,
    open: usize,
}

/// All servers of a test, by address; a dial to any other address is refused.
#[derive(Clone, Default)]
pub struct ScriptedServers {
    nodes: Arc<Mutex<BTreeMap<SocketAddr, Node>>>,
}

/// The buffer of a stream, as small as a socket's may be: a writer of more than this blocks until the other side reads.
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

impl ScriptedServers {
    /// Adds a server that answers the health check, and everything else as the script says.
    pub fn serve(&self, address: &str, script: impl Fn(&ReceivedRequest) -> Vec<Act> + Send + Sync + 'static) {
        let well = move |received: &ReceivedRequest| {
            if received.target.starts_with("/_cluster/health") { ok(WELL) } else { script(received) }
        };
        self.serve_all(address, well);
    }

    /// Adds a server whose script also answers the health check.
    pub fn serve_all(&self, address: &str, script: impl Fn(&ReceivedRequest) -> Vec<Act> + Send + Sync + 'static) {
        self.with(address, |node| node.script = Some(Arc::new(script)));
    }

    fn with<T>(&self, address: &str, f: impl FnOnce(&mut Node) -> T) -> T {
        let address = address.parse().unwrap();
        f(self.nodes.lock().unwrap().entry(address).or_default())
    }

    /// Returns the requests that a server received, without health checks.
    pub fn received(&self, address: &str) -> Vec<ReceivedRequest> {
        let all = self.with(address, |node| node.received.clone());
        all.into_iter().filter(|received| !received.target.starts_with("/_cluster/health")).collect()
    }

    pub fn dialled(&self, address: &str) -> usize {
        self.with(address, |node| node.dialled)
    }

    /// The number of connections that the client has not closed.
    pub fn open(&self, address: &str) -> usize {
        self.with(address, |node| node.open)
    }

    async fn run(self, address: SocketAddr, mut stream: DuplexStream) {
        while let Some(received) = read_request(&mut stream).await {
            let script = {
                let mut nodes = self.nodes.lock().unwrap();
                let Some(node) = nodes.get_mut(&address) else { return };
                node.received.push(received.clone());
                node.script.clone()
            };
            let Some(script) = script else { return };
            for act in script(&received) {
                match act {
                    // If the client has gone, the next read notices it.
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

impl Dial for ScriptedServers {
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

async fn read_request(stream: &mut DuplexStream) -> Option<ReceivedRequest> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        bytes.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(bytes).ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let target = head.split(' ').nth(1)?.to_owned();
    Some(ReceivedRequest { target, head, body })
}
