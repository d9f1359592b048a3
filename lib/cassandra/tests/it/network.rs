//! Scripted servers without sockets, so that tokio's paused clock advances automatically. They can be stopped, and
//! count their connections.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use honeyflow_cassandra::Session;
use honeyflow_cassandra::cluster::Cluster;
use honeyflow_cassandra::connection::Settings;
use honeyflow_pool::clock::TokioClock;
use honeyflow_pool::{Dial, Pool, Server};
use tokio::io::DuplexStream;
use tokio::sync::watch;

use crate::scripted::Script;

const SEED: u64 = 7;

#[derive(Clone, Default)]
pub struct Network {
    hosts: Arc<BTreeMap<SocketAddr, Host>>,
}

struct Host {
    script: Script,
    stopped: watch::Sender<bool>,
    open: Arc<AtomicUsize>,
    accepted: AtomicUsize,
}

pub fn address(at: usize) -> SocketAddr {
    ([10, 0, 0, u8::try_from(at + 1).unwrap()], 9042).into()
}

impl Network {
    pub fn of(scripts: impl IntoIterator<Item = Script>) -> Self {
        let host = |script| Host {
            script,
            stopped: watch::Sender::new(false),
            open: Arc::default(),
            accepted: AtomicUsize::new(0),
        };
        let hosts = scripts.into_iter().enumerate().map(|(at, script)| (address(at), host(script)));
        Self { hosts: Arc::new(hosts.collect()) }
    }

    fn host(&self, at: usize) -> &Host {
        &self.hosts[&address(at)]
    }

    /// Stops a server as if it were killed: its connections end and new ones are refused.
    pub fn stop(&self, at: usize) {
        self.host(at).stopped.send_replace(true);
    }

    pub fn restart(&self, at: usize) {
        self.host(at).stopped.send_replace(false);
    }

    pub fn open(&self, at: usize) -> usize {
        self.host(at).open.load(Ordering::SeqCst)
    }

    /// The number of connections that were ever accepted.
    pub fn accepted(&self, at: usize) -> usize {
        self.host(at).accepted.load(Ordering::SeqCst)
    }

    pub fn server(&self, at: usize) -> Server {
        Server::at(address(at))
    }

    /// Starts a pool on these servers that uses tokio's clock.
    pub fn pool(&self, settings: Settings, servers: honeyflow_pool::Settings) -> Pool<Cluster> {
        Pool::start_with(Cluster::dialling(settings, self.clone()), servers, TokioClock::default(), SEED).unwrap()
    }

    /// Opens a session on these servers.
    pub fn session(&self, servers: honeyflow_pool::Settings) -> Session {
        Session::from_pool(self.pool(Settings::default(), servers))
    }

    /// Settings without randomness: `each` connections to every server, no discovery.
    pub fn quiet(&self, each: u32) -> honeyflow_pool::Settings {
        honeyflow_pool::Settings {
            servers: self.hosts.keys().map(ToString::to_string).collect(),
            discovery: false,
            start_jitter: Duration::ZERO,
            slow_start: Duration::ZERO,
            connections_per_server: Some(each),
            early_refusal: false,
            ..honeyflow_pool::Settings::default()
        }
    }
}

impl Dial for Network {
    type Stream = DuplexStream;

    async fn dial(&self, to: SocketAddr, _within: Duration) -> io::Result<DuplexStream> {
        let host = self.hosts.get(&to).ok_or(io::ErrorKind::ConnectionRefused)?;
        let (mut stopped, open, script) = (host.stopped.subscribe(), Arc::clone(&host.open), host.script.clone());
        if *stopped.borrow() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = tokio::io::duplex(64 * 1024);
        host.accepted.fetch_add(1, Ordering::SeqCst);
        open.fetch_add(1, Ordering::SeqCst);
        let mut cut = script.cut.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                () = script.serve(far) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
                _ = cut.changed() => {}
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(near)
    }
}
