//! Between a client and a real server: passes bytes on, late, or not at all.

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

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    Open,
    /// Connections are refused, and those that were open have been reset.
    Refused,
    /// The same, but what is open goes on.
    NoMore,
    /// Nothing is passed on in either direction, not even that somebody hung up; afterwards all of it is.
    Silent,
    /// The same, for what the client says alone.
    NoRequests,
    /// The same, for what the server says alone.
    NoAnswers,
    /// What the server says arrives so much later.
    Late(Duration),
}

impl Way {
    fn passes_requests(&self) -> bool {
        !matches!(self, Way::Silent | Way::NoRequests)
    }

    fn passes_answers(&self) -> bool {
        !matches!(self, Way::Silent | Way::NoAnswers)
    }
}

/// Listens to what one client says.
pub type Ear = Box<dyn FnMut(&[u8]) + Send>;
/// One for each.
pub type Ears = Arc<dyn Fn() -> Ear + Send + Sync>;

/// One way to one server. Lives on the runtime that made it.
pub struct Proxy {
    pub address: SocketAddr,
    way: watch::Sender<Way>,
    reset: watch::Sender<()>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    open: AtomicU32,
    ended: AtomicU64,
}

/// Chunks on their way back; more wait at the server.
const ON_THE_WAY_MAX: usize = 4096;

impl Proxy {
    /// # Errors
    /// If nobody can listen there.
    pub async fn start(at: SocketAddr, server: SocketAddr) -> std::io::Result<Proxy> {
        Proxy::start_with(at, server, Arc::new(|| Box::new(|_: &[u8]| {}))).await
    }

    /// The same, with somebody who listens.
    ///
    /// # Errors
    /// If nobody can listen there.
    pub async fn start_with(at: SocketAddr, server: SocketAddr, ears: Ears) -> std::io::Result<Proxy> {
        let listener = listener(at)?;
        let address = listener.local_addr()?;
        let (way, reset) = (watch::Sender::new(Way::Open), watch::Sender::new(()));
        let counts = Arc::new(Counts::default());
        let link = Link { server, way: way.subscribe(), reset: reset.subscribe(), counts: counts.clone(), ears };
        tokio::spawn(listen(address, listener, link));
        Ok(Proxy { address, way, reset, counts })
    }

    pub fn set(&self, way: Way) {
        self.way.send_replace(way);
        if way == Way::Refused {
            self.reset();
        }
    }

    pub fn reset(&self) {
        self.reset.send_replace(());
    }

    pub fn open(&self) -> u32 {
        self.counts.open.load(Ordering::SeqCst)
    }

    /// Connections that were open and are no more.
    pub fn ended(&self) -> u64 {
        self.counts.ended.load(Ordering::SeqCst)
    }
}

#[derive(Clone)]
struct Link {
    server: SocketAddr,
    way: watch::Receiver<Way>,
    reset: watch::Receiver<()>,
    counts: Arc<Counts>,
    ears: Ears,
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
        let refused = matches!(*link.way.borrow_and_update(), Way::Refused | Way::NoMore);
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
                let mut own = link.clone();
                own.reset.borrow_and_update();
                tokio::spawn(pass(stream, own));
            },
            changed = link.way.changed() => if changed.is_err() { return },
            // The port may be taken for a moment by what was open before.
            () = tokio::time::sleep(Duration::from_millis(20)), if !refused && listening.is_none() => {}
        }
    }
}

/// A connection, counted while it is open.
struct Counted(Arc<Counts>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

async fn pass(client: TcpStream, mut link: Link) {
    link.counts.open.fetch_add(1, Ordering::SeqCst);
    let _counted = Counted(link.counts.clone());
    let _ = client.set_nodelay(true);
    // Nobody gets through to the server whom it cannot hear.
    if link.way.wait_for(Way::passes_requests).await.is_err() {
        return;
    }
    let Ok(server) = TcpStream::connect(link.server).await else { return };
    let _ = server.set_nodelay(true);
    let _ = (client.set_zero_linger(), server.set_zero_linger());
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    let (later, due) = mpsc::channel(ON_THE_WAY_MAX);
    let mut reset = link.reset.clone();
    tokio::select! {
        () = there(from_client, to_server, link.clone()) => {}
        // What the server has said last arrives before the news that it hung up.
        _ = async { tokio::join!(back(from_server, later, link.way.clone()), deliver(to_client, due, link.way.clone())) } => {}
        _ = reset.changed() => {}
    }
}

async fn there(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut link: Link) {
    let (mut bytes, mut ear) = (vec![0; 1 << 16], (link.ears)());
    loop {
        let said = from.read(&mut bytes).await;
        let passed = link.way.wait_for(Way::passes_requests).await.is_ok();
        let Ok(count @ 1..) = said else { return };
        if !passed || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
        ear(&bytes[..count]);
    }
}

async fn back(mut from: OwnedReadHalf, later: mpsc::Sender<(Instant, Vec<u8>)>, way: watch::Receiver<Way>) {
    let mut bytes = vec![0; 1 << 16];
    loop {
        let Ok(count @ 1..) = from.read(&mut bytes).await else { return };
        let delay = match *way.borrow() {
            Way::Late(delay) => delay,
            _ => Duration::ZERO,
        };
        if later.send((Instant::now() + delay, bytes[..count].to_vec())).await.is_err() {
            return;
        }
    }
}

async fn deliver(mut to: OwnedWriteHalf, mut due: mpsc::Receiver<(Instant, Vec<u8>)>, mut way: watch::Receiver<Way>) {
    while let Some((at, bytes)) = due.recv().await {
        if at > Instant::now() {
            tokio::time::sleep_until(at).await;
        }
        if way.wait_for(Way::passes_answers).await.is_err() || to.write_all(&bytes).await.is_err() {
            return;
        }
    }
    let _ = way.wait_for(Way::passes_answers).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So long something that should not arrive is given to arrive.
    const A_WHILE: Duration = Duration::from_millis(50);

    async fn through() -> (Proxy, TcpStream, TcpStream) {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = TcpListener::bind(local).await.unwrap();
        let proxy = Proxy::start(local, server.local_addr().unwrap()).await.unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(proxy.address), server.accept());
        (proxy, client.unwrap(), accepted.unwrap().0)
    }

    async fn hears_nothing(stream: &TcpStream) -> bool {
        tokio::time::sleep(A_WHILE).await;
        stream.try_read(&mut [0]).is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    }

    async fn says(from: &mut TcpStream, to: &mut TcpStream) {
        from.write_all(b"a").await.unwrap();
        assert_eq!(to.read_u8().await.unwrap(), b'a');
    }

    #[tokio::test]
    async fn hv_84_one_direction_is_cut_and_the_other_is_not() {
        let (proxy, mut client, mut server) = through().await;
        proxy.set(Way::NoAnswers);
        says(&mut client, &mut server).await;
        server.write_all(b"b").await.unwrap();
        assert!(hears_nothing(&client).await);
        proxy.set(Way::NoRequests);
        assert_eq!(client.read_u8().await.unwrap(), b'b');
        says(&mut server, &mut client).await;
        client.write_all(b"c").await.unwrap();
        assert!(hears_nothing(&server).await);
        proxy.set(Way::Open);
        assert_eq!(server.read_u8().await.unwrap(), b'c');
    }

    #[tokio::test]
    async fn hv_84_without_more_connections_those_that_are_open_go_on() {
        let (proxy, mut client, mut server) = through().await;
        says(&mut client, &mut server).await;
        proxy.set(Way::NoMore);
        while TcpStream::connect(proxy.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
        says(&mut client, &mut server).await;
        says(&mut server, &mut client).await;
        proxy.set(Way::Open);
        while TcpStream::connect(proxy.address).await.is_err() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn hv_84_in_silence_nobody_hears_that_the_other_hung_up() {
        for client_hangs_up in [true, false] {
            let (proxy, mut client, mut server) = through().await;
            says(&mut client, &mut server).await;
            proxy.set(Way::Silent);
            let (gone, mut left) = if client_hangs_up { (client, server) } else { (server, client) };
            drop(gone);
            assert!(hears_nothing(&left).await);
            proxy.set(Way::Open);
            assert!(left.read_u8().await.is_err());
        }
    }
}
