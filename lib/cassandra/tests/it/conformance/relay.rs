//! The same suite against a real server. There is only one, so relays act as several servers: each can be stopped,
//! counts its connections, and does not forward the one request that must not be answered.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use honeyflow_cassandra::wire::{Compression, Version};
use honeyflow_pool::Dial;
use honeyflow_pool::testing::suite;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::*;
use crate::real::RealServer;

#[derive(Clone)]
struct Relays {
    to: SocketAddr,
    each: Arc<[Relay]>,
}

struct Relay {
    stopped: watch::Sender<bool>,
    open: Arc<AtomicUsize>,
    accepted: AtomicUsize,
}

impl Relays {
    fn at(&self, address_of: SocketAddr) -> Option<&Relay> {
        (0..self.each.len()).find(|at| address(*at) == address_of).map(|at| &self.each[at])
    }
}

const HEADER_BYTES: usize = 9;

/// Forwards messages of version 4 without compression, which have a length each.
async fn carry(client: DuplexStream, server: TcpStream) -> io::Result<()> {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = server.into_split();
    let asked = async {
        loop {
            let mut message = vec![0; HEADER_BYTES];
            from_client.read_exact(&mut message).await?;
            let length = u32::from_be_bytes([message[5], message[6], message[7], message[8]]) as usize;
            message.resize(HEADER_BYTES + length, 0);
            from_client.read_exact(&mut message[HEADER_BYTES..]).await?;
            if !message.windows(HANG.len()).any(|words| words == HANG.as_bytes()) {
                to_server.write_all(&message).await?;
            }
        }
    };
    tokio::select! {
        ended = asked => ended,
        ended = tokio::io::copy(&mut from_server, &mut to_client) => ended.map(drop),
    }
}

impl Dial for Relays {
    type Stream = DuplexStream;

    async fn dial(&self, to: SocketAddr, within: Duration) -> io::Result<DuplexStream> {
        let relay = self.at(to).ok_or(io::ErrorKind::ConnectionRefused)?;
        let (mut stopped, open) = (relay.stopped.subscribe(), Arc::clone(&relay.open));
        if *stopped.borrow() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let server = tokio::time::timeout(within, TcpStream::connect(self.to)).await??;
        let (near, far) = tokio::io::duplex(64 * 1024);
        relay.accepted.fetch_add(1, Ordering::SeqCst);
        open.fetch_add(1, Ordering::SeqCst);
        tokio::spawn(async move {
            tokio::select! {
                _ = carry(far, server) => {}
                _ = stopped.wait_for(|stopped| *stopped) => {}
            }
            open.fetch_sub(1, Ordering::SeqCst);
        });
        Ok(near)
    }
}

struct RelayedServer {
    real: RealServer,
    relays: Relays,
}

impl TestServers for RelayedServer {
    fn start(servers: usize) -> Self {
        let real = RealServer::server().expect("looked for before");
        let relay =
            || Relay { stopped: watch::Sender::new(false), open: Arc::default(), accepted: AtomicUsize::new(0) };
        let relays = Relays { to: real.address, each: (0..servers).map(|_| relay()).collect() };
        Self { real, relays }
    }

    fn pool(&self, settings: honeyflow_pool::Settings) -> Result<Pool<Cluster>, SettingsError> {
        let own = Settings { streams_max: STREAMS, ..self.real.settings(Version::V4, Compression::None) };
        let patience = Duration::from_secs(10);
        let settings = honeyflow_pool::Settings { tcp_timeout: patience, handshake_timeout: patience, ..settings };
        Pool::start(Cluster::dialling(own, self.relays.clone()), settings)
    }

    fn stop(&self, at: usize) {
        self.relays.each[at].stopped.send_replace(true);
    }

    fn restart(&self, at: usize) {
        self.relays.each[at].stopped.send_replace(false);
    }

    fn tell(&self, _cluster: &[usize]) {
        panic!("a real server lists itself; it does not know the relays");
    }

    fn silence(&self, _at: usize, _silent: bool) {
        panic!("relays forward all answers");
    }

    fn open(&self, at: usize) -> usize {
        self.relays.each[at].open.load(Ordering::SeqCst)
    }

    fn accepted(&self, at: usize) -> usize {
        self.relays.each[at].accepted.load(Ordering::SeqCst)
    }
}

/// Runs the cases of the suite together. Each has its own relays and pool, so they do not disturb each other. Discovery
/// and heartbeat need scripted servers and are not tested here.
async fn whole_suite<R: Rig>() {
    tokio::join!(
        suite::pl_13_the_pool_fills_and_whatever_ends_is_replaced::<R>(),
        suite::pl_20_a_loan_comes_back_on_every_way_out::<R>(),
        suite::pl_24_an_error_of_the_request_keeps_cause_and_connection::<R>(),
        suite::pl_5_a_drain_serves_and_leaves_no_connection::<R>(),
        suite::pl_25_on_and_once_mean_that_server::<R>(),
        suite::pl_30_one_deadline_covers_waiting_and_use::<R>(),
        suite::pl_32_waiters_are_served_in_order::<R>(),
        suite::pl_33_a_full_queue_and_an_empty_pool_refuse_at_once::<R>(),
        suite::pl_23_cancelling_loses_nothing::<R>(),
        suite::pl_86_an_idempotent_request_survives_a_server::<R>(),
        suite::pl_101_commands_work_right_after_the_start::<R>(),
        suite::pl_116_counts_add_up::<R>(),
    );
}

#[tokio::test]
async fn pl_143_shared_connections_to_a_real_server_pass_the_suite() {
    if RealServer::server().is_some() {
        whole_suite::<ServersRig<RelayedServer, false>>().await;
    }
}

#[tokio::test]
async fn pl_143_exclusive_connections_to_a_real_server_pass_the_suite() {
    if RealServer::server().is_some() {
        whole_suite::<ServersRig<RelayedServer, true>>().await;
    }
}
