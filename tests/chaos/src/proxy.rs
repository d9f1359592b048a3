//! A proxy between a client and a real server. It passes bytes on at once, late, or not at all.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpSocket, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::{mpsc, watch},
    time::Instant,
};

/// What the proxy does with its connections and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkMode {
    Open,
    /// New connections are refused, and the open ones have been reset.
    Refused,
    /// New connections are refused; the open ones go on.
    NoMore,
    /// Nothing passes in either direction, not even the end of a connection. All of it is delivered afterwards.
    Silent,
    /// Requests are held back; answers pass.
    NoRequests,
    /// Answers are held back; requests pass.
    NoAnswers,
    /// Each answer arrives later by this time.
    Late(Duration),
}

impl LinkMode {
    fn passes_requests(&self) -> bool {
        !matches!(self, LinkMode::Silent | LinkMode::NoRequests)
    }

    fn passes_answers(&self) -> bool {
        !matches!(self, LinkMode::Silent | LinkMode::NoAnswers)
    }
}

/// Sees the bytes that one client sends.
pub type RequestListener = Box<dyn FnMut(&[u8]) + Send>;
/// Makes one listener for each client.
pub type ListenerFactory = Arc<dyn Fn() -> RequestListener + Send + Sync>;

/// A proxy for one server. It lives on the runtime that started it.
pub struct Proxy {
    pub address: SocketAddr,
    mode: watch::Sender<LinkMode>,
    reset: watch::Sender<()>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    open: AtomicU32,
    ended: AtomicU64,
}

/// Chunks of answers that the proxy holds; the server keeps the others.
const HELD_CHUNKS_MAX: usize = 4096;

impl Proxy {
    /// # Errors
    /// If the proxy cannot listen at `at`.
    pub async fn start(at: SocketAddr, server: SocketAddr) -> std::io::Result<Proxy> {
        Proxy::start_with(at, server, Arc::new(|| Box::new(|_: &[u8]| {}))).await
    }

    /// Like [`Proxy::start`], with a listener for what each client sends.
    ///
    /// # Errors
    /// If the proxy cannot listen at `at`.
    pub async fn start_with(at: SocketAddr, server: SocketAddr, listeners: ListenerFactory) -> std::io::Result<Proxy> {
        let listener = listener(at)?;
        let address = listener.local_addr()?;
        let (mode, reset) = (watch::Sender::new(LinkMode::Open), watch::Sender::new(()));
        let counts = Arc::new(Counts::default());
        let link = Link { server, mode: mode.subscribe(), reset: reset.subscribe(), counts: counts.clone(), listeners };
        tokio::spawn(listen(address, listener, link));
        Ok(Proxy { address, mode, reset, counts })
    }

    pub fn set(&self, mode: LinkMode) {
        self.mode.send_replace(mode);
        if mode == LinkMode::Refused {
            self.reset();
        }
    }

    pub fn reset(&self) {
        self.reset.send_replace(());
    }

    pub fn open(&self) -> u32 {
        self.counts.open.load(Ordering::SeqCst)
    }

    /// The number of connections that have ended.
    pub fn ended(&self) -> u64 {
        self.counts.ended.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct Link {
    server: SocketAddr,
    mode: watch::Receiver<LinkMode>,
    reset: watch::Receiver<()>,
    counts: Arc<Counts>,
    listeners: ListenerFactory,
}

fn listener(at: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(1024)
}

async fn listen(address: SocketAddr, first: TcpListener, mut link: Link) {
    let mut listening = Some(first);
    loop {
        let refused = matches!(*link.mode.borrow_and_update(), LinkMode::Refused | LinkMode::NoMore);
        if refused {
            listening = None;
        } else if listening.is_none() {
            listening = listener(address).ok();
        }
        let accept = async {
            match &listening {
                Some(open) => open.accept().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            accepted = accept => if let Ok((stream, _)) = accepted {
                let mut connection = link.clone();
                connection.reset.borrow_and_update();
                tokio::spawn(pass(stream, connection));
            },
            changed = link.mode.changed() => if changed.is_err() { return },
            // Connections that were open before may occupy the port for a moment: retry.
            () = tokio::time::sleep(Duration::from_millis(20)), if !refused && listening.is_none() => {}
        }
    }
}

/// Counts a connection as open until it is dropped.
struct OpenConnection(Arc<Counts>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

async fn pass(client: TcpStream, mut link: Link) {
    link.counts.open.fetch_add(1, Ordering::SeqCst);
    let _open = OpenConnection(link.counts.clone());
    let _ = client.set_nodelay(true);
    // A client whose requests do not pass does not reach the server at all.
    if link.mode.wait_for(LinkMode::passes_requests).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(link.server).await else { return };
    let _ = server.set_nodelay(true);
    let _ = (client.set_zero_linger(), server.set_zero_linger());
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (later, due) = mpsc::channel(HELD_CHUNKS_MAX);
    let mut reset = link.reset.clone();
    tokio::select! {
        () = forward_requests(from_client, to_server, link.clone()) => {}
        // The server's last bytes arrive before the news that it has closed the connection.
        _ = async { tokio::join!(receive_answers(from_server, later, link.mode.clone()), deliver_answers(to_client, due, link.mode.clone())) } => {}
        _ = reset.changed() => {}
    }
}

async fn forward_requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut link: Link) {
    let (mut bytes, mut listen_to) = (vec![0; 1 << 16], (link.listeners)());
    loop {
        let received = from.read(&mut bytes).await;
        let passed = link.mode.wait_for(LinkMode::passes_requests).await.is_ok();
        let Ok(count @ 1..) = received else { return };
        if !passed || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
        listen_to(&bytes[..count]);
    }
}

async fn receive_answers(
    mut from: OwnedReadHalf,
    later: mpsc::Sender<(Instant, Vec<u8>)>,
    mode: watch::Receiver<LinkMode>,
) {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        let delay = match *mode.borrow() {
            LinkMode::Late(delay) => delay,
            _ => Duration::ZERO,
        };
        if later.send((Instant::now() + delay, bytes[..count].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn deliver_answers(
    mut to: OwnedWriteHalf,
    mut due: mpsc::Receiver<(Instant, Vec<u8>)>,
    mut mode: watch::Receiver<LinkMode>,
) {
    while let Some((at, bytes)) = due.recv().await {
        if at > Instant::now() {
            tokio::time::sleep_until(at).await;
        }
        if mode.wait_for(LinkMode::passes_answers).await.is_err() || to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = mode.wait_for(LinkMode::passes_answers).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long a test waits for bytes that must not arrive.
    const A_WHILE: Duration = Duration::from_millis(50);

    async fn connect_through_proxy() -> (Proxy, TcpStream, TcpStream) {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = TcpListener::bind(local).await.unwrap();
        let proxy = Proxy::start(local, server.local_addr().unwrap()).await.unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(proxy.address), server.accept());
        (proxy, client.unwrap(), accepted.unwrap().0)
    }

    async fn receives_nothing(stream: &TcpStream) -> bool {
        tokio::time::sleep(A_WHILE).await;
        stream.try_read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    async fn passes_byte(from: &mut TcpStream, to: &mut TcpStream) {
        from.write_all(b"a").await.unwrap();
        assert_eq!(to.read_u8().await.unwrap(), b'a');
    }

    #[tokio::test]
    async fn hv_84_one_direction_is_cut_and_the_other_is_not() {
        let (proxy, mut client, mut server) = connect_through_proxy().await;
        proxy.set(LinkMode::NoAnswers);
        passes_byte(&mut client, &mut server).await;
        server.write_all(b"b").await.unwrap();
        assert!(receives_nothing(&client).await);
        proxy.set(LinkMode::NoRequests);
        assert_eq!(client.read_u8().await.unwrap(), b'b');
        passes_byte(&mut server, &mut client).await;
        client.write_all(b"c").await.unwrap();
        assert!(receives_nothing(&server).await);
        proxy.set(LinkMode::Open);
        assert_eq!(server.read_u8().await.unwrap(), b'c');
    }

    #[tokio::test]
    async fn hv_84_open_connections_go_on_while_new_ones_are_refused() {
        let (proxy, mut client, mut server) = connect_through_proxy().await;
        passes_byte(&mut client, &mut server).await;
        proxy.set(LinkMode::NoMore);
        while TcpStream::connect(proxy.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        passes_byte(&mut client, &mut server).await;
        passes_byte(&mut server, &mut client).await;
        proxy.set(LinkMode::Open);
        while TcpStream::connect(proxy.address).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn hv_84_in_silence_neither_side_learns_that_the_other_hung_up() {
        for client_hangs_up in [true, false] {
            let (proxy, mut client, mut server) = connect_through_proxy().await;
            passes_byte(&mut client, &mut server).await;
            proxy.set(LinkMode::Silent);
            let (gone, mut left) = if client_hangs_up { (client, server) } else { (server, client) };
            drop(gone);
            assert!(receives_nothing(&left).await);
            proxy.set(LinkMode::Open);
            assert!(left.read_u8().await.is_err());
        }
    }
}
