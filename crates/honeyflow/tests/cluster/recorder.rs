//! The server that workflows call. It records the version of each call for each key, and whether two calls for one key
//! overlap.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde_json::Value;

/// Long enough that two overlapping calls for one key would be noticed.
const TAKES: Duration = Duration::from_millis(2);

#[derive(Default)]
struct KeyRecord {
    open: bool,
    version: u64,
    body: Value,
    /// The bodies that came with each idempotency key.
    bodies: HashMap<String, String>,
}

#[derive(Default)]
struct Notes {
    /// Added to the duration of each call.
    slower_by: Duration,
    keys: HashMap<String, KeyRecord>,
    calls: Vec<Instant>,
    /// The number of calls without an answer: now, and the largest ever.
    open: usize,
    most_open: usize,
    wrong: Vec<String>,
}

#[derive(Clone, Default)]
pub struct Recorder(Arc<Mutex<Notes>>);

impl Recorder {
    /// Answers until the test's process ends.
    pub fn serve() -> (Recorder, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let recorder = Recorder::default();
        let own = recorder.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let recorder = own.clone();
                std::thread::spawn(move || while recorder.answer(&stream).is_some() {});
            }
        });
        (recorder, port)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes each call take longer from now on.
    pub fn slow_down(&self, slower_by: Duration) {
        self.notes().slower_by = slower_by;
    }

    /// The body of the last call for a key.
    pub fn last(&self, key: &str) -> Value {
        self.notes().keys.get(key).map_or(Value::Null, |record| record.body.clone())
    }

    /// The time of each call.
    pub fn calls(&self) -> Vec<Instant> {
        self.notes().calls.clone()
    }

    /// The largest number of calls that were open at the same time.
    pub fn most_open(&self) -> usize {
        self.notes().most_open
    }

    /// Descriptions of overlapping calls and decreasing versions.
    pub fn wrong(&self) -> Vec<String> {
        self.notes().wrong.clone()
    }

    fn answer(&self, stream: &TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).ok().filter(|read| *read > 0)?;
        let key = line.split(' ').nth(1)?.trim_start_matches('/').to_owned();
        let (mut idempotency, mut version, mut length) = (String::new(), 0, 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "idempotency-key" => idempotency = value.to_owned(),
                "honeyflow-version" => version = value.parse().ok()?,
                "content-length" => length = value.parse().ok()?,
                _ => {}
            }
        }
        let mut body = String::new();
        reader.take(length).read_to_string(&mut body).ok()?;
        self.begin(&key, &idempotency, version, &body);
        let takes = TAKES + self.notes().slower_by;
        std::thread::sleep(takes);
        let mut notes = self.notes();
        notes.keys.entry(key).or_default().open = false;
        notes.open -= 1;
        drop(notes);
        let mut stream = stream;
        stream.write_all(b"HTTP/1.1 200 Noted\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}").ok()
    }

    fn begin(&self, key: &str, idempotency: &str, version: u64, body: &str) {
        let mut notes = self.notes();
        notes.calls.push(Instant::now());
        notes.open += 1;
        notes.most_open = notes.most_open.max(notes.open);
        let record = notes.keys.entry(key.to_owned()).or_default();
        let mut wrong = Vec::new();
        if record.open {
            wrong.push(format!("{key}: two calls at once"));
        }
        if version < record.version {
            wrong.push(format!("{key}: version {version} after {}", record.version));
        }
        if idempotency.is_empty() || version == 0 {
            wrong.push(format!("{key}: without idempotency key or version"));
        }
        *record = KeyRecord {
            open: true,
            version,
            body: serde_json::from_str(body).unwrap_or_default(),
            bodies: std::mem::take(&mut record.bodies),
        };
        record.bodies.insert(idempotency.to_owned(), body.to_owned());
        notes.wrong.extend(wrong);
    }
}
