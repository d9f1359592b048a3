//! Many callers, servers that fail at random, callers that leave at random: a caller gets its own answer or an error,
//! and afterwards the pool has its full size again.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use honeyflow_pool::{Drain, Settings};
use honeyflow_sink_search::{Config, Request};

use crate::{
    PATIENCE, client, config, eventually, plain, ready,
    scripted::{Act, ScriptedServers, answer},
};

const SERVERS: [&str; 3] = ["10.0.0.1:9200", "10.0.0.2:9200", "10.0.0.3:9200"];
const CALLERS: usize = 16;
const REQUESTS: usize = 40;

/// A small generator with a fixed seed; the scheduler decides the order in which callers use it.
struct Dice(Mutex<u64>);

impl Dice {
    fn roll(&self, sides: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % sides
    }
}

fn chunked(body: &str) -> Vec<u8> {
    let (one, two) = body.split_at(body.len() / 2);
    let piece = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{}{}0\r\n\r\n", piece(one), piece(two)).into_bytes()
}

fn misbehave(dice: &Dice, target: &str) -> Vec<Act> {
    let whole = if dice.roll(2) == 0 { answer("200 OK", target) } else { chunked(target) };
    let (early, late) = whole.split_at(dice.roll(whole.len() as u64) as usize);
    match dice.roll(60) {
        0 => vec![Act::Send(early.to_vec()), Act::Close],
        1 => vec![Act::Send(early.to_vec()), Act::Freeze],
        2 => vec![Act::Send(answer("503 Service Unavailable", "{}"))],
        3 => vec![Act::Send(answer("429 Too Many Requests", "{}"))],
        4 => vec![Act::Send(answer("404 Not Found", target))],
        5 => vec![Act::Send(b"\r\n\r\nno http".to_vec())],
        6 => vec![Act::Send(whole.clone()), Act::Close],
        _ => vec![Act::Send(early.to_vec()), Act::Send(late.to_vec())],
    }
}

/// PL-165, PL-169
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pl_140_no_caller_gets_the_answer_of_another() {
    let servers = ScriptedServers::default();
    let (dice, calm) = (Arc::new(Dice(Mutex::new(0x9e37_79b9_7f4a_7c15))), Arc::new(AtomicBool::new(false)));
    for at in SERVERS {
        let (dice, calm) = (dice.clone(), calm.clone());
        servers.serve(at, move |received| {
            if calm.load(Ordering::SeqCst) {
                vec![Act::Send(answer("200 OK", &received.target))]
            } else {
                misbehave(&dice, &received.target)
            }
        });
    }
    let settings = Settings {
        max_backoff: Duration::from_millis(100),
        connections_per_server: Some(4),
        early_refusal: false,
        ..plain()
    };
    let client = client(&servers, Config { sniff: Some(false), ..config(&SERVERS) }, settings);
    ready(&client, 12).await;
    let (right, failed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let callers = (0..CALLERS).map(|caller| {
        let (client, dice, right, failed) = (client.clone(), dice.clone(), right.clone(), failed.clone());
        tokio::spawn(async move {
            for number in 0..REQUESTS {
                let path = format!("/{caller}/{number}/{}", "x".repeat(dice.roll(64) as usize));
                let request = if dice.roll(2) == 0 { Request::get(&path) } else { Request::post(&path, "{}") };
                let patience = Duration::from_millis(dice.roll(200));
                match tokio::time::timeout(patience, client.send(&request, Duration::from_millis(150))).await {
                    Ok(Ok(answer)) => {
                        assert_eq!(answer.body, path);
                        right.fetch_add(1, Ordering::SeqCst);
                    }
                    _ => drop(failed.fetch_add(1, Ordering::SeqCst)),
                }
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        tokio::time::timeout(PATIENCE, caller).await.expect("every deadline was kept").unwrap();
    }
    let (right, failed) = (right.load(Ordering::SeqCst), failed.load(Ordering::SeqCst));
    assert!(right > 100 && failed > 20, "{right} right, {failed} failed: the test has lost its point");
    calm.store(true, Ordering::SeqCst);
    eventually("as large as before", || {
        let status = client.pool().status();
        (status.open, status.lent, status.closing, status.waiting) == (12, 0, 0, [0; 3])
            && SERVERS.iter().map(|at| servers.open(at)).sum::<usize>() == 12
    })
    .await;
    for number in 0..12 {
        let path = format!("/after/{number}");
        assert_eq!(client.send(&Request::get(&path), PATIENCE).await.unwrap().body, path);
    }
    client.pool().control().close(Drain::within(PATIENCE)).await;
    eventually("no connection is left", || SERVERS.iter().all(|at| servers.open(at) == 0)).await;
}
