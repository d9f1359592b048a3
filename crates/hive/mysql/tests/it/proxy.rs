//! A proxy in front of the server that can stop messages and lose answers.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        TcpListener, TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::Notify,
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// The proxy forwards neither the message nor anything after it on its connection.
    Stop,
    /// The proxy forwards the message, then closes the connection instead of forwarding the answer.
    Lose,
}

#[derive(Default)]
struct Shared {
    rule: Mutex<Option<(Rule, &'static str)>>,
    /// The messages that clients have sent.
    messages: Mutex<Vec<String>>,
    met: Notify,
}

pub struct Proxy {
    pub url: String,
    shared: Arc<Shared>,
}

impl Proxy {
    /// Starts a proxy in front of the server that `url` names. It records the messages.
    pub async fn in_front_of(url: &str) -> Proxy {
        let (head, rest) = url.split_once('@').expect("an account in the address");
        let (server, database) = rest.split_once('/').expect("a database in the address");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, server) = (listener.local_addr().unwrap().port(), server.to_owned());
        let shared = Arc::new(Shared::default());
        let proxy =
            Proxy { url: format!("{head}@127.0.0.1:{port}/{database}?ssl-mode=disabled"), shared: Arc::clone(&shared) };
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(&server).await.unwrap();
                let deaf = Arc::new(AtomicBool::new(false));
                let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
                tokio::spawn(forward_requests(from_client, to_server, Arc::clone(&shared), Arc::clone(&deaf)));
                tokio::spawn(forward_answers(from_server, to_client, deaf));
            }
        });
        proxy
    }

    /// Starts a proxy that forwards each new connection only after the delay `after`. Returns its address.
    pub async fn delayed(url: &str, after: Duration) -> String {
        let (head, rest) = url.split_once('@').expect("an account in the address");
        let (server, database) = rest.split_once('/').expect("a database in the address");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, server) = (listener.local_addr().unwrap().port(), server.to_owned());
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let server = server.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(after).await;
                    let mut server = TcpStream::connect(&server).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        format!("{head}@127.0.0.1:{port}/{database}?ssl-mode=disabled")
    }

    /// Stops the next message that contains these words. Returns when the message has come.
    pub async fn stop(&self, words: &'static str) {
        self.rule(Rule::Stop, words).await;
    }

    /// Forwards the next message that contains these words and loses its answer. Returns when the message has come.
    pub async fn lose(&self, words: &'static str) {
        self.rule(Rule::Lose, words).await;
    }

    /// Takes the messages that clients have sent since the last call.
    pub fn take_messages(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.messages.lock().unwrap())
    }

    async fn rule(&self, rule: Rule, words: &'static str) {
        *self.shared.rule.lock().unwrap() = Some((rule, words));
        let met = tokio::time::timeout(Duration::from_secs(30), self.shared.met.notified()).await;
        met.expect("no such message has come");
    }
}

async fn forward_requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: Arc<Shared>, deaf: Arc<AtomicBool>) {
    let mut chunk = vec![0; 1 << 20];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        shared.messages.lock().unwrap().push(String::from_utf8_lossy(&chunk[..length]).into_owned());
        let met = {
            let mut rule = shared.rule.lock().unwrap();
            let meets = |words: &str| chunk[..length].windows(words.len()).any(|window| window == words.as_bytes());
            if rule.is_some_and(|(_, words)| meets(words)) { rule.take() } else { None }
        };
        match met {
            Some((Rule::Stop, _)) => {
                shared.met.notify_one();
                // Both connections stay open, but neither end receives anything.
                return std::future::pending().await;
            }
            Some((Rule::Lose, _)) => {
                deaf.store(true, Ordering::SeqCst);
                shared.met.notify_one();
            }
            None => {}
        }
        if to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}

async fn forward_answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, deaf: Arc<AtomicBool>) {
    let mut chunk = vec![0; 1 << 16];
    while let Ok(length @ 1..) = from.read(&mut chunk).await {
        // The server has answered, and the connection breaks before the answer arrives.
        if deaf.load(Ordering::SeqCst) || to.write_all(&chunk[..length]).await.is_err() {
            return;
        }
    }
}
