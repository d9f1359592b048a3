//! Scripted servers in this process, on their own runtime. They do what no real server does on request: fall silent in
//! the middle of a frame, answer twice, forget statements, refuse.
//!
//! They share the written values, as replicas do once they agree, so that a test can tell a right answer from a wrong
//! one.

use std::{
    collections::HashMap,
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
};

use super::protocol::{self, Body, Kind, opcode};

/// How a server treats its clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Behaviour {
    Well,
    /// The server does not listen, and has reset every connection.
    Gone,
    /// The server accepts connections and reads, but does not answer.
    Silent,
    /// The server answers late, as from far away.
    Slow(Duration),
    /// The server refuses every second request as overloaded.
    Overloaded,
}

/// A fault of the next answer only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerFault {
    /// The connection ends in the middle of the answer.
    Cut,
    /// The answer is replaced by bytes that are not a message.
    Garbage,
    /// The answer is sent twice.
    Doubled,
    /// An answer to a request that was not made follows.
    Stranger,
}

/// The servers of one cluster.
pub struct Cluster {
    servers: Vec<Arc<Server>>,
    _runtime: tokio::runtime::Runtime,
}

pub struct Server {
    pub address: SocketAddr,
    number: usize,
    shared: Arc<SharedState>,
    behaviour: watch::Sender<Behaviour>,
    answer_fault: Mutex<Option<AnswerFault>>,
    /// Resets the open connections.
    reset: watch::Sender<()>,
    /// Counts how often the server has forgotten its statements. The number is part of each statement id.
    incarnation: AtomicU32,
    pub open: AtomicU32,
    pub served: AtomicU64,
    /// The number of connections that have ended.
    ended: AtomicU64,
    /// The incarnation in which a statement was executed last.
    executed_in: AtomicU32,
    refuse_next: AtomicBool,
}

#[derive(Default)]
struct SharedState {
    addresses: Mutex<Vec<SocketAddr>>,
    /// The number and timestamp of each key.
    written: Mutex<HashMap<Vec<u8>, (i64, i64)>>,
}

const LOCAL: &str = "system.local";
const PEERS: &str = "system.peers";
const INSERT: &str = "INSERT";

impl Cluster {
    /// # Errors
    /// Returns the system's error.
    pub fn start(count: u8) -> std::io::Result<Cluster> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shared = Arc::new(SharedState::default());
        let mut servers = Vec::new();
        let mut port = 0;
        for number in 0..count {
            let ip = Ipv4Addr::new(127, 0, 2, number + 1);
            let listener = runtime.block_on(TcpListener::bind((ip, port)))?;
            let address = listener.local_addr()?;
            // All servers have the same port, because drivers assume that.
            port = address.port();
            shared.addresses.lock().unwrap_or_else(PoisonError::into_inner).push(address);
            let server = Arc::new(Server {
                address,
                number: usize::from(number),
                shared: shared.clone(),
                behaviour: watch::Sender::new(Behaviour::Well),
                answer_fault: Mutex::default(),
                reset: watch::Sender::new(()),
                incarnation: AtomicU32::new(0),
                open: AtomicU32::new(0),
                served: AtomicU64::new(0),
                ended: AtomicU64::new(0),
                executed_in: AtomicU32::new(0),
                refuse_next: AtomicBool::new(false),
            });
            runtime.spawn(listen(server.clone(), listener));
            servers.push(server);
        }
        Ok(Cluster { servers, _runtime: runtime })
    }

    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// The number of open sockets, counted on the servers' side.
    pub fn open(&self) -> u32 {
        self.servers.iter().map(|server| server.open.load(Ordering::SeqCst)).sum()
    }
}

impl Server {
    pub fn set(&self, behaviour: Behaviour) {
        self.behaviour.send_replace(behaviour);
        if behaviour == Behaviour::Gone {
            self.reset();
        }
    }

    /// Ends every connection at once, as when a process is killed.
    pub fn reset(&self) {
        self.reset.send_replace(());
    }

    pub fn forget_statements(&self) {
        self.incarnation.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a client has prepared a statement again since the server forgot them, and executed it.
    pub fn is_prepared_again(&self) -> bool {
        self.executed_in.load(Ordering::SeqCst) == self.incarnation.load(Ordering::SeqCst)
    }

    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    pub fn spoil_next_answer(&self, answer_fault: AnswerFault) {
        *self.answer_fault.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer_fault);
    }

    fn answer(&self, request: &protocol::Request<'_>, out: &mut Vec<u8>) {
        let (opcode, body) = match request.opcode {
            opcode::OPTIONS => (opcode::SUPPORTED, Body::default().u16(1).string("COMPRESSION").u16(0).0),
            opcode::STARTUP | opcode::REGISTER => (opcode::READY, Vec::new()),
            opcode::QUERY => self.query(protocol::statement(request.body).unwrap_or_default()),
            opcode::PREPARE => (opcode::RESULT, self.prepare(protocol::statement(request.body).unwrap_or_default())),
            opcode::EXECUTE => self.execute(request.body),
            _ => (opcode::ERROR, protocol::error(0x000a, "not supported").0),
        };
        protocol::message(out, request.stream, opcode, &body);
    }

    fn query(&self, text: &str) -> (u8, Vec<u8>) {
        if text.contains("keyspaces") {
            let replication = ["class", "SimpleStrategy", "replication_factor", "3"];
            let row = vec![Some(protocol::KEYSPACE.into()), Some(protocol::texts(2, &replication))];
            let columns = [("keyspace_name", Kind::Text), ("replication", Kind::TextByText)];
            return (opcode::RESULT, protocol::rows(&columns, &[row]));
        }
        let asked = |number: usize| text.contains(LOCAL) == (number == self.number);
        let addresses = self.shared.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let members = addresses.iter().enumerate().filter(|(number, _)| asked(*number));
        let rows: Vec<Member> = members.map(|(number, address)| Member { number, address: *address }).collect();
        if text.contains(LOCAL) || text.contains(PEERS) {
            return (opcode::RESULT, member_rows(text, &rows));
        }
        (opcode::ERROR, protocol::error(0x2200, "there is no such table").0)
    }

    fn prepare(&self, text: &str) -> Vec<u8> {
        let (word, parameters, columns): (_, &[_], &[_]) = if text.starts_with(INSERT) {
            ("put", &[("id", Kind::Int), ("n", Kind::Bigint), ("[timestamp]", Kind::Bigint)], &[])
        } else {
            ("get", &[("id", Kind::Int)], &[("n", Kind::Bigint)])
        };
        let id = format!("{word}-{}", self.incarnation.load(Ordering::SeqCst));
        protocol::prepared(id.as_bytes(), parameters, columns)
    }

    fn execute(&self, body: &[u8]) -> (u8, Vec<u8>) {
        let Some((id, values)) = protocol::execution(body) else {
            return (opcode::ERROR, protocol::error(0x000a, "malformed EXECUTE").0);
        };
        let number = self.incarnation.load(Ordering::SeqCst);
        let incarnation = format!("-{number}");
        if !id.ends_with(incarnation.as_bytes()) {
            return (opcode::ERROR, protocol::error(0x2500, "unprepared").short_bytes(id).0);
        }
        if *self.behaviour.borrow() == Behaviour::Overloaded && self.refuse_next.fetch_xor(true, Ordering::Relaxed) {
            return (opcode::ERROR, protocol::error(0x1001, "overloaded").0);
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        self.executed_in.store(number, Ordering::SeqCst);
        let number = |at: usize| values.get(at).and_then(|value| Some(i64::from_be_bytes((*value).try_into().ok()?)));
        let key = values.first().copied().unwrap_or_default();
        let mut written = self.shared.written.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(value), Some(timestamp)) = (number(1), number(2)) {
            let kept = written.entry(key.to_vec()).or_insert((value, timestamp));
            if timestamp >= kept.1 {
                *kept = (value, timestamp);
            }
            return (opcode::RESULT, Body::default().i32(1).0);
        }
        let row = written.get(key).map(|(value, _)| vec![Some(value.to_be_bytes().to_vec())]);
        (opcode::RESULT, protocol::rows(&[("n", Kind::Bigint)], row.as_slice()))
    }
}

struct Member {
    number: usize,
    address: SocketAddr,
}

/// Rows of the member tables, with the requested columns, or with all columns for `*`.
fn member_rows(text: &str, members: &[Member]) -> Vec<u8> {
    const ALL: [(&str, Kind); 11] = [
        ("host_id", Kind::Uuid),
        ("rpc_address", Kind::Inet),
        ("native_address", Kind::Inet),
        ("native_port", Kind::Int),
        ("data_center", Kind::Text),
        ("rack", Kind::Text),
        ("tokens", Kind::Texts),
        ("partitioner", Kind::Text),
        ("schema_version", Kind::Uuid),
        ("release_version", Kind::Text),
        ("cluster_name", Kind::Text),
    ];
    let between = text.to_lowercase();
    let between = between.strip_prefix("select").and_then(|rest| rest.split("from").next()).unwrap_or("*");
    let asked: Vec<&str> = between.split(',').map(str::trim).collect();
    let columns: Vec<(&str, Kind)> = if asked == ["*"] {
        ALL.to_vec()
    } else {
        let known = |name: &&str| ALL.iter().find(|(column, _)| column == name).copied();
        asked.iter().filter_map(known).collect()
    };
    let row = |member: &Member| {
        let ip = match member.address.ip() {
            std::net::IpAddr::V4(ip) => ip,
            std::net::IpAddr::V6(_) => Ipv4Addr::LOCALHOST,
        };
        // Four tokens for each server, in turn around the ring.
        let number = i64::try_from(member.number).unwrap_or(0);
        let token = |turn: i64| i64::MIN / 2 + (1 << 59) * (turn * 3 + number % 3);
        let tokens: Vec<String> = (0..4).map(|turn| token(turn).to_string()).collect();
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let cell = |column: &str| -> Vec<u8> {
            match column {
                "host_id" => (member.number as u128 + 1).to_be_bytes().to_vec(),
                "schema_version" => 7_u128.to_be_bytes().to_vec(),
                "native_port" => i32::from(member.address.port()).to_be_bytes().to_vec(),
                "rpc_address" | "native_address" => protocol::inet(ip),
                "data_center" => b"north".to_vec(),
                "rack" => b"r1".to_vec(),
                "tokens" => protocol::texts(tokens.len(), &tokens),
                "partitioner" => b"org.apache.cassandra.dht.Murmur3Partitioner".to_vec(),
                "release_version" => b"5.0.9".to_vec(),
                _ => b"chaos".to_vec(),
            }
        };
        columns.iter().map(|(name, _)| Some(cell(name))).collect()
    };
    let rows: Vec<_> = members.iter().map(row).collect();
    protocol::rows(&columns, &rows)
}

async fn listen(server: Arc<Server>, listener: TcpListener) {
    let mut behaviour = server.behaviour.subscribe();
    let mut listener = Some(listener);
    loop {
        let gone = *behaviour.borrow_and_update() == Behaviour::Gone;
        match (&listener, gone) {
            (Some(_), true) => listener = None,
            (None, false) => listener = bind(server.address).await,
            (Some(open), false) => {
                tokio::select! {
                    accepted = open.accept() => if let Ok((stream, _)) = accepted {
                        tokio::spawn(serve_connection(server.clone(), stream));
                    },
                    changed = behaviour.changed() => if changed.is_err() { return },
                }
            }
            (None, true) => {
                if behaviour.changed().await.is_err() {
                    return;
                }
            }
        }
    }
}

async fn bind(address: SocketAddr) -> Option<TcpListener> {
    let open = || {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(1024)
    };
    for _ in 0..100 {
        if let Ok(listener) = open() {
            return Some(listener);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    None
}

/// Counts a connection as open until it is dropped.
struct OpenConnection(Arc<Server>);

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

async fn serve_connection(server: Arc<Server>, mut stream: TcpStream) {
    server.open.fetch_add(1, Ordering::SeqCst);
    let _open = OpenConnection(server.clone());
    let mut reset = server.reset.subscribe();
    let _ = stream.set_nodelay(true);
    let ended = tokio::select! {
        ended = answer_all(&server, &mut stream) => ended,
        _ = reset.changed() => ConnectionEnd::Reset,
    };
    if ended == ConnectionEnd::Reset {
        // The connection is reset, not closed: data that was sent and not read is lost.
        let _ = stream.set_zero_linger();
    }
}

#[derive(PartialEq, Eq)]
enum ConnectionEnd {
    Closed,
    Reset,
}

async fn answer_all(server: &Arc<Server>, stream: &mut TcpStream) -> ConnectionEnd {
    let (mut received, mut out) = (Vec::with_capacity(1 << 16), Vec::new());
    let mut behaviour = server.behaviour.subscribe();
    loop {
        match stream.read_buf(&mut received).await {
            Ok(0) | Err(_) => return ConnectionEnd::Closed,
            Ok(_) => {}
        }
        let mut taken = 0;
        while let Some((request, length)) = protocol::next_request(&received[taken..]) {
            taken += length;
            if request.version != protocol::VERSION {
                let refused = protocol::error(0x000a, "Invalid or unsupported protocol version");
                protocol::message(&mut out, request.stream, opcode::ERROR, &refused.0);
                let _ = stream.write_all(&out).await;
                return ConnectionEnd::Closed;
            }
            let before = out.len();
            server.answer(&request, &mut out);
            let answer_fault = server.answer_fault.lock().unwrap_or_else(PoisonError::into_inner).take();
            match answer_fault {
                None => {}
                Some(AnswerFault::Cut) => {
                    out.truncate(before + (out.len() - before) / 2);
                    let _ = stream.write_all(&out).await;
                    return ConnectionEnd::Closed;
                }
                Some(AnswerFault::Garbage) => out.splice(before.., [0xff; 40]).for_each(drop),
                Some(AnswerFault::Doubled) => out.extend_from_within(before..),
                Some(AnswerFault::Stranger) => protocol::message(&mut out, [0x7f, 0xf0], opcode::READY, &[]),
            }
        }
        received.drain(..taken);
        let now = *behaviour.borrow_and_update();
        match now {
            Behaviour::Silent => {
                // The requests are answered late, when the silence is over.
                if behaviour.wait_for(|behaviour| *behaviour != Behaviour::Silent).await.is_err() {
                    return ConnectionEnd::Closed;
                }
            }
            Behaviour::Slow(delay) => tokio::time::sleep(delay).await,
            Behaviour::Well | Behaviour::Gone | Behaviour::Overloaded => {}
        }
        if stream.write_all(&out).await.is_err() {
            return ConnectionEnd::Closed;
        }
        out.clear();
    }
}
