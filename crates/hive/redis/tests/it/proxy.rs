//! A proxy whose address leads to one server and then to another, like the address of a service after a failover.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

pub struct Proxy {
    pub url: String,
    target: Arc<Mutex<SocketAddr>>,
    open: Arc<Mutex<Vec<JoinHandle<()>>>>,
    accepting: JoinHandle<()>,
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}

impl Proxy {
    pub async fn to(port: u16) -> Proxy {
        Proxy::slow(port, Duration::ZERO).await
    }

    /// Starts a proxy that forwards each new connection only after the delay `after`.
    pub async fn slow(port: u16, after: Duration) -> Proxy {
        let listener = TcpListener::bind(address(0)).await.unwrap();
        let url = format!("redis://{}/", listener.local_addr().unwrap());
        let target = Arc::new(Mutex::new(address(port)));
        let open: Arc<Mutex<Vec<JoinHandle<()>>>> = Arc::default();
        let (to, opened) = (target.clone(), open.clone());
        let accepting = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let to = *to.lock().unwrap();
                opened.lock().unwrap().push(tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    if let Ok(mut server) = TcpStream::connect(to).await {
                        let _ = copy_bidirectional(&mut client, &mut server).await;
                    }
                }));
            }
        });
        Proxy { url, target, open, accepting }
    }

    /// Leads new connections to another server, and closes the existing ones.
    pub fn lead_to(&self, port: u16) {
        *self.target.lock().unwrap() = address(port);
        self.open.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.open.lock().unwrap().drain(..).for_each(|task| task.abort());
    }
}
