//! `http.call` against a server that fails on command.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::shop::Shop;

/// One call that the server received.
#[derive(Clone, Debug)]
pub struct Call {
    pub path: String,
    pub idempotency_key: String,
    pub answered: u16,
}

#[derive(Default)]
pub struct Scripted {
    calls: Mutex<Vec<Call>>,
    pub down: AtomicBool,
}

impl Scripted {
    /// Answers until the test's process ends: 503 while it is down, 400 if the path contains `bad`, otherwise 200.
    pub fn serve() -> (Arc<Scripted>, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let scripted = Arc::new(Scripted::default());
        let own = scripted.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let scripted = own.clone();
                std::thread::spawn(move || scripted.answer(stream));
            }
        });
        (scripted, port)
    }

    /// The paths of all calls, in order.
    pub fn paths(&self) -> Vec<String> {
        self.calls.lock().expect("calls").iter().map(|call| call.path.clone()).collect()
    }

    fn answer(&self, mut stream: TcpStream) -> Option<()> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let path = line.split(' ').nth(1)?.to_owned();
        let (mut idempotency_key, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "idempotency-key" => idempotency_key = value.to_owned(),
                "content-length" => length = value.parse().ok()?,
                _ => {}
            }
        }
        reader.take(length).read_to_end(&mut Vec::new()).ok()?;
        let answered = match (self.down.load(Ordering::SeqCst), path.contains("bad")) {
            (true, _) => 503,
            (false, true) => 400,
            (false, false) => 200,
        };
        self.calls.lock().expect("calls").push(Call { path, idempotency_key, answered });
        let body = r#"{"stars": 5}"#;
        write!(
            stream,
            "HTTP/1.1 {answered} Answered\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )
        .ok()
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("calls").clone()
    }
}

fn calling(books: u32, path: &str) -> (Shop, Arc<Scripted>) {
    let (scripted, port) = Scripted::serve();
    let shop = Shop::new(books);
    shop.replace_in_config("entity = \"book\" }]", "entity = \"book\", existing = true }]");
    shop.replace_in_config(
        "step.index = { use = \"search.index\", needs = [\"load\"]",
        &format!(
            "step.rate  = {{ use = \"http.call\", needs = [\"load\"], url = \"http://127.0.0.1:{port}/{path}\", method = \"POST\", \
             http = true, allow-networks = [\"127.0.0.0/8\"], tries = 1, backoff = {{ base = \"50ms\", cap = \"500ms\" }} }}\n\
             step.index = {{ use = \"search.index\", needs = [\"load\", \"rate\"]"
        ),
    );
    (shop, scripted)
}

#[test]
fn ob_53_a_server_that_is_down_opens_the_breaker_and_is_called_again_later() {
    const BOOKS: u32 = 60;
    let (shop, scripted) = calling(BOOKS, "rate/{.id}");
    scripted.down.store(true, Ordering::SeqCst);
    let node = shop.start();
    let gate = node.until("the breaker closes", |status| {
        let closed = status["engine"]["closed"].as_array()?;
        closed.iter().find(|gate| gate["reason"] == "breaker").cloned()
    });
    assert!(gate["detail"].as_str().is_some_and(|why| why.contains("503")), "{gate}");
    assert_eq!(shop.waiting(), i64::from(BOOKS), "nothing is acknowledged");
    assert!(shop.parked().is_empty(), "an outage parks no event");
    scripted.down.store(false, Ordering::SeqCst);
    shop.until_quiet(&node);
    assert!(shop.parked().is_empty());
    shop.assert_equal();
    let mut keys: BTreeMap<String, Vec<Call>> = BTreeMap::new();
    for call in scripted.calls() {
        keys.entry(call.path.clone()).or_default().push(call);
    }
    assert_eq!(keys.len(), BOOKS as usize);
    for calls in keys.values() {
        assert!(calls.iter().all(|call| call.idempotency_key == calls[0].idempotency_key), "{calls:?}");
        assert_eq!(calls.iter().filter(|call| call.answered == 200).count(), 1, "{calls:?}");
    }
    assert!(keys.values().any(|calls| calls.len() > 1), "some calls were repeated");
    node.until("the breaker opens", |status| {
        let closed = status["engine"]["closed"].as_array()?;
        closed.iter().all(|gate| gate["reason"] != "breaker").then_some(())
    });
}

#[test]
fn ob_46_a_refused_call_parks_its_item_alone() {
    let (shop, scripted) = calling(30, "rate/{.title}");
    let node = shop.start();
    shop.until_quiet(&node);
    shop.sql("update book set title = 'bad' where id = 7; update book set title = 'good' where id = 8;");
    shop.until_quiet(&node);
    let parked = shop.parked();
    assert_eq!(parked.len(), 1, "{parked:?}");
    assert_eq!((parked[0]["key"].as_str(), parked[0]["step"].as_str()), (Some("7"), Some("rate")));
    assert!(parked[0]["message"].as_str().is_some_and(|why| why.contains("400")), "{parked:?}");
    assert_eq!(scripted.calls().iter().filter(|call| call.answered == 400).count(), 1);
    assert_eq!(shop.documents("book")["8"]["title"], "good");
    shop.sql("update book set title = 'mended' where id = 7;");
    shop.until_quiet(&node);
    assert!(shop.parked().is_empty());
    shop.assert_equal();
}
