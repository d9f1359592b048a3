//! Servers in this process, on a runtime of their own, that can be made to do what no real one does on request: fall
//! silent in the middle of a frame, answer twice, forget, refuse.
//!
//! They share what was written, as replicas do once they agree, so that every answer can be told right or wrong.

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

use super::speak::{self, Body, Kind, opcode};

/// What a server does to whoever speaks to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mood {
    Well,
    /// Nobody listens, and every connection has been reset.
    Gone,
    /// Accepts and reads, and says nothing.
    Silent,
    /// As if the machine had a long way.
    Slow(Duration),
    /// Every second request is refused as too much.
    Overloaded,
}

/// Done once, to the next answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Slip {
    /// Ends in the middle of an answer.
    Cut,
    /// Bytes that are no message.
    Garbage,
    Doubled,
    /// To a request that nobody made.
    Stranger,
}

/// Three of them, or as many as there are addresses.
pub struct Cluster {
    servers: Vec<Arc<Server>>,
    _runtime: tokio::runtime::Runtime,
}

pub struct Server {
    pub address: SocketAddr,
    number: usize,
    shared: Arc<Shared>,
    mood: watch::Sender<Mood>,
    slip: Mutex<Option<Slip>>,
    /// Ends the connections that are open.
    reset: watch::Sender<()>,
    /// Statements are known by the life they were prepared in.
    life: AtomicU32,
    pub open: AtomicU32,
    pub served: AtomicU64,
    /// Connections that were open and are no more.
    ended: AtomicU64,
    /// The life in which a statement was executed last.
    lived: AtomicU32,
    hiccup: AtomicBool,
}

#[derive(Default)]
struct Shared {
    addresses: Mutex<Vec<SocketAddr>>,
    /// Key to number and timestamp.
    written: Mutex<HashMap<Vec<u8>, (i64, i64)>>,
}

const LOCAL: &str = "system.local";
const PEERS: &str = "system.peers";
const INSERT: &str = "INSERT";

impl Cluster {
    /// # Errors
    /// What the system says.
    pub fn start(count: u8) -> std::io::Result<Cluster> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let shared = Arc::new(Shared::default());
        let mut servers = Vec::new();
        let mut port = 0;
        for number in 0..count {
            let ip = Ipv4Addr::new(127, 0, 2, number + 1);
            let listener = runtime.block_on(TcpListener::bind((ip, port)))?;
            let address = listener.local_addr()?;
            // One port for all: drivers take that for granted.
            port = address.port();
            shared.addresses.lock().unwrap_or_else(PoisonError::into_inner).push(address);
            let server = Arc::new(Server {
                address,
                number: usize::from(number),
                shared: shared.clone(),
                mood: watch::Sender::new(Mood::Well),
                slip: Mutex::default(),
                reset: watch::Sender::new(()),
                life: AtomicU32::new(0),
                open: AtomicU32::new(0),
                served: AtomicU64::new(0),
                ended: AtomicU64::new(0),
                lived: AtomicU32::new(0),
                hiccup: AtomicBool::new(false),
            });
            runtime.spawn(listen(server.clone(), listener));
            servers.push(server);
        }
        Ok(Cluster { servers, _runtime: runtime })
    }

    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    /// Sockets that are open, counted here and not by whoever opened them.
    pub fn open(&self) -> u32 {
        self.servers.iter().map(|server| server.open.load(Ordering::SeqCst)).sum()
    }
}

impl Server {
    pub fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
        if mood == Mood::Gone {
            self.reset();
        }
    }

    /// Every connection ends at once, as when a process is killed.
    pub fn reset(&self) {
        self.reset.send_replace(());
    }

    pub fn forget(&self) {
        self.life.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether somebody has told it a statement that it had forgotten, and used it.
    pub fn reminded(&self) -> bool {
        self.lived.load(Ordering::SeqCst) == self.life.load(Ordering::SeqCst)
    }

    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::SeqCst)
    }

    pub fn slip(&self, slip: Slip) {
        *self.slip.lock().unwrap_or_else(PoisonError::into_inner) = Some(slip);
    }

    fn answer(&self, heard: &speak::Heard<'_>, out: &mut Vec<u8>) {
        let (opcode, body) = match heard.opcode {
            opcode::OPTIONS => (opcode::SUPPORTED, Body::default().u16(1).string("COMPRESSION").u16(0).0),
            opcode::STARTUP | opcode::REGISTER => (opcode::READY, Vec::new()),
            opcode::QUERY => self.query(speak::statement(heard.body).unwrap_or_default()),
            opcode::PREPARE => (opcode::RESULT, self.prepare(speak::statement(heard.body).unwrap_or_default())),
            opcode::EXECUTE => self.execute(heard.body),
            _ => (opcode::ERROR, speak::error(0x000a, "not here").0),
        };
        speak::message(out, heard.stream, opcode, &body);
    }

    fn query(&self, text: &str) -> (u8, Vec<u8>) {
        if text.contains("keyspaces") {
            let replication = ["class", "SimpleStrategy", "replication_factor", "3"];
            let row = vec![Some(speak::KEYSPACE.into()), Some(speak::texts(2, &replication))];
            let columns = [("keyspace_name", Kind::Text), ("replication", Kind::TextByText)];
            return (opcode::RESULT, speak::rows(&columns, &[row]));
        }
        let asked = |number: usize| text.contains(LOCAL) == (number == self.number);
        let addresses = self.shared.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let members = addresses.iter().enumerate().filter(|(number, _)| asked(*number));
        let rows: Vec<Member> = members.map(|(number, address)| Member { number, address: *address }).collect();
        if text.contains(LOCAL) || text.contains(PEERS) {
            return (opcode::RESULT, members_as_asked(text, &rows));
        }
        (opcode::ERROR, speak::error(0x2200, "there is no such table").0)
    }

    fn prepare(&self, text: &str) -> Vec<u8> {
        let (word, parameters, columns): (_, &[_], &[_]) = if text.starts_with(INSERT) {
            ("put", &[("id", Kind::Int), ("n", Kind::Bigint), ("[timestamp]", Kind::Bigint)], &[])
        } else {
            ("get", &[("id", Kind::Int)], &[("n", Kind::Bigint)])
        };
        let id = format!("{word}-{}", self.life.load(Ordering::SeqCst));
        speak::prepared(id.as_bytes(), parameters, columns)
    }

    fn execute(&self, body: &[u8]) -> (u8, Vec<u8>) {
        let Some((id, values)) = speak::execution(body) else {
            return (opcode::ERROR, speak::error(0x000a, "no execution").0);
        };
        let number = self.life.load(Ordering::SeqCst);
        let life = format!("-{number}");
        if !id.ends_with(life.as_bytes()) {
            return (opcode::ERROR, speak::error(0x2500, "unprepared").short_bytes(id).0);
        }
        if *self.mood.borrow() == Mood::Overloaded && self.hiccup.fetch_xor(true, Ordering::Relaxed) {
            return (opcode::ERROR, speak::error(0x1001, "too much").0);
        }
        self.served.fetch_add(1, Ordering::Relaxed);
        self.lived.store(number, Ordering::SeqCst);
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
        (opcode::RESULT, speak::rows(&[("n", Kind::Bigint)], row.as_slice()))
    }
}

struct Member {
    number: usize,
    address: SocketAddr,
}

/// Rows of the tables of members, with the columns that were asked for, or those that matter if all were.
fn members_as_asked(text: &str, members: &[Member]) -> Vec<u8> {
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
        // Four for each, in turn around the ring.
        let number = i64::try_from(member.number).unwrap_or(0);
        let token = |turn: i64| i64::MIN / 2 + (1 << 59) * (turn * 3 + number % 3);
        let tokens: Vec<String> = (0..4).map(|turn| token(turn).to_string()).collect();
        let tokens: Vec<&str> = tokens.iter().map(String::as_str).collect();
        let cell = |column: &str| -> Vec<u8> {
            match column {
                "host_id" => (member.number as u128 + 1).to_be_bytes().to_vec(),
                "schema_version" => 7_u128.to_be_bytes().to_vec(),
                "native_port" => i32::from(member.address.port()).to_be_bytes().to_vec(),
                "rpc_address" | "native_address" => speak::inet(ip),
                "data_center" => b"north".to_vec(),
                "rack" => b"r1".to_vec(),
                "tokens" => speak::texts(tokens.len(), &tokens),
                "partitioner" => b"org.apache.cassandra.dht.Murmur3Partitioner".to_vec(),
                "release_version" => b"5.0.9".to_vec(),
                _ => b"chaos".to_vec(),
            }
        };
        columns.iter().map(|(name, _)| Some(cell(name))).collect()
    };
    let rows: Vec<_> = members.iter().map(row).collect();
    speak::rows(&columns, &rows)
}

async fn listen(server: Arc<Server>, listener: TcpListener) {
    let mut mood = server.mood.subscribe();
    let mut listener = Some(listener);
    loop {
        let gone = *mood.borrow_and_update() == Mood::Gone;
        match (&listener, gone) {
            (Some(_), true) => listener = None,
            (None, false) => listener = bind(server.address).await,
            (Some(open), false) => {
                tokio::select! {
                    accepted = open.accept() => if let Ok((stream, _)) = accepted {
                        tokio::spawn(talk(server.clone(), stream));
                    },
                    changed = mood.changed() => if changed.is_err() { return },
                }
            }
            (None, true) => {
                if mood.changed().await.is_err() {
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

/// A connection, counted while it is open.
struct Counted(Arc<Server>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
        self.0.ended.fetch_add(1, Ordering::SeqCst);
    }
}

async fn talk(server: Arc<Server>, mut stream: TcpStream) {
    server.open.fetch_add(1, Ordering::SeqCst);
    let _counted = Counted(server.clone());
    let mut reset = server.reset.subscribe();
    let _ = stream.set_nodelay(true);
    let ended = tokio::select! {
        ended = answer_all(&server, &mut stream) => ended,
        _ = reset.changed() => End::Reset,
    };
    if ended == End::Reset {
        // Not a goodbye: what was sent and not read is lost.
        let _ = stream.set_zero_linger();
    }
}

#[derive(PartialEq, Eq)]
enum End {
    Closed,
    Reset,
}

async fn answer_all(server: &Arc<Server>, stream: &mut TcpStream) -> End {
    let (mut came, mut out) = (Vec::with_capacity(1 << 16), Vec::new());
    let mut mood = server.mood.subscribe();
    loop {
        match stream.read_buf(&mut came).await {
            Ok(0) | Err(_) => return End::Closed,
            Ok(_) => {}
        }
        let mut taken = 0;
        while let Some((heard, length)) = speak::heard(&came[taken..]) {
            taken += length;
            if heard.version != speak::VERSION {
                let refused = speak::error(0x000a, "Invalid or unsupported protocol version");
                speak::message(&mut out, heard.stream, opcode::ERROR, &refused.0);
                let _ = stream.write_all(&out).await;
                return End::Closed;
            }
            let before = out.len();
            server.answer(&heard, &mut out);
            let slip = server.slip.lock().unwrap_or_else(PoisonError::into_inner).take();
            match slip {
                None => {}
                Some(Slip::Cut) => {
                    out.truncate(before + (out.len() - before) / 2);
                    let _ = stream.write_all(&out).await;
                    return End::Closed;
                }
                Some(Slip::Garbage) => out.splice(before.., [0xff; 40]).for_each(drop),
                Some(Slip::Doubled) => out.extend_from_within(before..),
                Some(Slip::Stranger) => speak::message(&mut out, [0x7f, 0xf0], opcode::READY, &[]),
            }
        }
        came.drain(..taken);
        let now = *mood.borrow_and_update();
        match now {
            Mood::Silent => {
                // Until it is over; then what was asked is answered late.
                if mood.wait_for(|mood| *mood != Mood::Silent).await.is_err() {
                    return End::Closed;
                }
            }
            Mood::Slow(delay) => tokio::time::sleep(delay).await,
            Mood::Well | Mood::Gone | Mood::Overloaded => {}
        }
        if stream.write_all(&out).await.is_err() {
            return End::Closed;
        }
        out.clear();
    }
}
