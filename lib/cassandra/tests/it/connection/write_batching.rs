//! Requests that are pending at the same time are sent in one write.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use honeyflow_cassandra::connection::{Connection, Settings};
use honeyflow_cassandra::wire::{Compression, Version};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use super::{patient, settings};
use crate::scripted::Script;

#[tokio::test]
async fn cq_1_concurrent_requests_are_sent_in_one_write() {
    let (sender, mut sizes) = mpsc::unbounded_channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let script = Script::echo();
    // A relay between client and server that counts the bytes of each read.
    tokio::spawn(async move {
        let (mut client, _) = listener.accept().await.unwrap();
        let mut server = tokio::net::TcpStream::connect(script.listen().await).await.unwrap();
        let (mut from_client, mut to_client) = client.split();
        let (mut from_server, mut to_server) = server.split();
        let count = async {
            let mut buffer = vec![0; 1 << 20];
            loop {
                let read = tokio::io::AsyncReadExt::read(&mut from_client, &mut buffer).await.unwrap();
                sender.send(read).unwrap();
                tokio::io::AsyncWriteExt::write_all(&mut to_server, &buffer[..read]).await.unwrap();
            }
        };
        tokio::select! { () = count => {}, _ = tokio::io::copy(&mut from_server, &mut to_client) => {} }
    });
    let settings = settings(Version::V4, Compression::None);
    let connection = Connection::connect(address, &settings, super::limits());
    let connection = connection.await.unwrap();
    while sizes.try_recv().is_ok() {}
    let how = patient();
    connection.query("SELECT 1", &how).await.unwrap();
    let alone = sizes.recv().await.unwrap();
    let hundred = (0..100).map(|_| connection.query("SELECT 1", &how));
    futures_util::future::join_all(hundred).await;
    assert_eq!(sizes.recv().await.unwrap(), alone * 100);
}

/// Many tasks are ready at the same time, each with its own request: the first request is not sent alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn cq_1_requests_of_many_tasks_share_their_writes() {
    let address = Script::echo().listen().await;
    let writes = Arc::new(AtomicUsize::new(0));
    let dial = || {
        let writes = Arc::clone(&writes);
        async move { Ok(CountingStream { stream: tokio::net::TcpStream::connect(address).await?, writes }) }
    };
    let (server, settings) = ("there".into(), Settings::default());
    let connection = Connection::connect_as(&server, &settings, super::limits(), dial).await.unwrap();
    let before = writes.load(Ordering::SeqCst);
    // Spawned from a task of the only worker, so that no task begins before all exist.
    let all = tokio::spawn(async move {
        let one = |_| {
            let connection = connection.clone();
            tokio::spawn(async move { connection.query("SELECT 1", &patient()).await.map(drop) })
        };
        let asked: Vec<_> = (0..64).map(one).collect();
        futures_util::future::join_all(asked).await.into_iter().for_each(|answer| answer.unwrap().unwrap());
    });
    all.await.unwrap();
    let wrote = writes.load(Ordering::SeqCst) - before;
    assert!(wrote <= 8, "{wrote} writes for 64 requests");
}

struct CountingStream {
    stream: tokio::net::TcpStream,
    writes: Arc<AtomicUsize>,
}

impl AsyncRead for CountingStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, into)
    }
}

impl AsyncWrite for CountingStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.writes.fetch_add(1, Ordering::SeqCst);
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
