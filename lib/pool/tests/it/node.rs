//! A test server: it greets, then answers each line `<id> <command>` with `<id> <answer>`.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use honeyflow_pool::{Server, ServerId};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::{AbortHandle, JoinSet},
};

#[derive(Default)]
pub struct Behaviour {
    /// Accepts, then sends nothing.
    pub mute: AtomicBool,
    /// Reads, and answers nothing while this is true.
    pub paused: AtomicBool,
    /// Hangs up right after the greeting.
    pub hangs_up: AtomicBool,
    /// The bytes that it sends instead of a greeting. If they are empty, it hangs up.
    pub greeting: Mutex<Option<Vec<u8>>>,
    pub delay_ms: AtomicU64,
    /// Its answer to discovery.
    pub cluster: Mutex<Vec<Server>>,
    pub accepted: AtomicUsize,
    pub open: AtomicUsize,
    pub answered: AtomicUsize,
    /// The connections that get notices.
    pub notices: Mutex<Vec<tokio::sync::mpsc::UnboundedSender<String>>>,
}

pub struct Node {
    address: SocketAddr,
    pub behaviour: Arc<Behaviour>,
    running: Mutex<Option<(AbortHandle, watch::Sender<bool>)>>,
}

impl Node {
    pub async fn start() -> Node {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let node =
            Node { address: listener.local_addr().unwrap(), behaviour: Arc::default(), running: Mutex::new(None) };
        node.serve(listener);
        node
    }

    /// A node that is not listening yet.
    pub async fn absent() -> Node {
        let node = Node::start().await;
        node.stop().await;
        node
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn server(&self, id: &str) -> Server {
        Server { id: ServerId::new(id), ..Server::at(self.address) }
    }

    fn serve(&self, listener: TcpListener) {
        let behaviour = self.behaviour.clone();
        let (over, ends) = watch::channel(false);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                behaviour.accepted.fetch_add(1, Ordering::SeqCst);
                connections.spawn(talk(stream, behaviour.clone(), ends.clone()));
            }
        });
        *self.running.lock().unwrap() = Some((task.abort_handle(), over));
    }

    /// Stops the node as if it was killed: the port refuses connects, and its connections end.
    pub async fn stop(&self) {
        let running = self.running.lock().unwrap().take();
        if let Some((task, over)) = running {
            task.abort();
            over.send_replace(true);
            while !task.is_finished() || self.open() > 0 {
                tokio::task::yield_now().await;
            }
        }
    }

    pub async fn restart(&self) {
        self.stop().await;
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.serve(listener);
    }

    pub fn open(&self) -> usize {
        self.behaviour.open.load(Ordering::SeqCst)
    }

    pub fn accepted(&self) -> usize {
        self.behaviour.accepted.load(Ordering::SeqCst)
    }

    pub fn answered(&self) -> usize {
        self.behaviour.answered.load(Ordering::SeqCst)
    }

    pub fn delay(&self, delay: Duration) {
        self.behaviour.delay_ms.store(delay.as_millis() as u64, Ordering::SeqCst);
    }

    pub fn pause(&self, paused: bool) {
        self.behaviour.paused.store(paused, Ordering::SeqCst);
    }

    pub fn greets(&self, greeting: &[u8]) {
        *self.behaviour.greeting.lock().unwrap() = Some(greeting.to_vec());
    }

    /// Greets normally again.
    pub fn behaves(&self) {
        self.mute(false);
        *self.behaviour.greeting.lock().unwrap() = None;
    }

    pub fn mute(&self, mute: bool) {
        self.behaviour.mute.store(mute, Ordering::SeqCst);
    }

    pub fn knows(&self, cluster: &[Server]) {
        *self.behaviour.cluster.lock().unwrap() = cluster.to_vec();
    }

    pub fn tell(&self, notice: &str) {
        for watcher in self.behaviour.notices.lock().unwrap().iter() {
            let _ = watcher.send(notice.to_owned());
        }
    }
}

struct OpenGuard(Arc<Behaviour>);

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn talk(stream: TcpStream, behaviour: Arc<Behaviour>, mut ends: watch::Receiver<bool>) {
    behaviour.open.fetch_add(1, Ordering::SeqCst);
    let open = OpenGuard(behaviour.clone());
    tokio::select! {
        _ = serve(stream, behaviour) => {}
        _ = ends.wait_for(|over| *over) => {}
    }
    drop(open);
}

async fn serve(stream: TcpStream, behaviour: Arc<Behaviour>) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let (answers, mut queue) = tokio::sync::mpsc::unbounded_channel::<String>();
    let muted = behaviour.clone();
    let writing = async move {
        while muted.mute.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let greeting = muted.greeting.lock().unwrap().clone();
        writer.write_all(greeting.as_deref().unwrap_or(b"hello\n")).await?;
        if greeting.is_some_and(|greeting| greeting.is_empty()) {
            return Ok(());
        }
        while let Some(answer) = queue.recv().await {
            while muted.paused.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let is_text = !answer.ends_with(" nonsense\n");
            writer.write_all(if is_text { answer.as_bytes() } else { b"\xff\xfe\n" }).await?;
        }
        std::io::Result::Ok(())
    };
    let reading = async {
        if behaviour.hangs_up.load(Ordering::SeqCst) {
            return Ok(());
        }
        while let Some(line) = lines.next_line().await? {
            let Some((id, command)) = line.split_once(' ') else { return Ok(()) };
            if command == "die" {
                return Ok(());
            }
            if command == "watch" {
                behaviour.notices.lock().unwrap().push(answers.clone());
            }
            if command == "twice" {
                let _ = answers.send(format!("{id} once\n"));
            }
            let Some(answer) = answer(command, &behaviour) else { continue };
            let (answers, behaviour, id) = (answers.clone(), behaviour.clone(), id.to_owned());
            tokio::spawn(async move {
                let delay = behaviour.delay_ms.load(Ordering::SeqCst);
                if delay > 0 && answer != "pong" {
                    tokio::time::sleep(Duration::from_millis(delay)).await;
                }
                behaviour.answered.fetch_add(1, Ordering::SeqCst);
                let _ = answers.send(format!("{id} {answer}\n"));
            });
        }
        Ok(())
    };
    tokio::select! {
        written = writing => written,
        read = reading => read,
    }
}

fn answer(command: &str, behaviour: &Behaviour) -> Option<String> {
    match command {
        "hang" => None,
        "ping" => Some("pong".to_owned()),
        "who" => {
            let cluster = behaviour.cluster.lock().unwrap();
            Some(cluster.iter().map(|server| format!("{}={}", server.id, server.address)).collect::<Vec<_>>().join(","))
        }
        other => Some(other.to_owned()),
    }
}
