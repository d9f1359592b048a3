//! Sends requests at a fixed rate: a slow response does not delay the next request.

use std::time::Duration;

use serde::Serialize;
use tokio::{task::JoinSet, time::Instant};

/// The most requests in flight; further ones are not sent, and counted as errors.
const OPEN_MAX: usize = 512;
const TICK: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, Default, Debug, Serialize)]
pub struct SendCounts {
    pub sent: u64,
    pub admitted: u64,
    /// Responses with the status 429.
    pub refused: u64,
    pub errors: u64,
}

enum Answer {
    Admitted,
    Refused,
    Error,
}

impl SendCounts {
    fn count(&mut self, answer: &Answer) {
        match answer {
            Answer::Admitted => self.admitted += 1,
            Answer::Refused => self.refused += 1,
            Answer::Error => self.errors += 1,
        }
    }
}

pub async fn send(client: reqwest::Client, url: String, rate: f64, length: Duration) -> SendCounts {
    let mut open = JoinSet::new();
    let mut sent = SendCounts::default();
    let begun = Instant::now();
    let mut every = tokio::time::interval(TICK);
    while begun.elapsed() < length {
        every.tick().await;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count, and never negative")]
        let due = (begun.elapsed().as_secs_f64() * rate) as u64;
        while sent.sent < due {
            sent.sent += 1;
            if open.len() >= OPEN_MAX {
                sent.errors += 1;
                continue;
            }
            open.spawn(one(client.clone(), url.clone()));
        }
        while let Some(answer) = open.try_join_next() {
            sent.count(&answer.unwrap_or(Answer::Error));
        }
    }
    while let Some(answer) = open.join_next().await {
        sent.count(&answer.unwrap_or(Answer::Error));
    }
    sent
}

async fn one(client: reqwest::Client, url: String) -> Answer {
    let Ok(response) = client.get(url).send().await else { return Answer::Error };
    let status = response.status();
    // The body is read to its end, so that the connection can be used again.
    let read = response.bytes().await;
    match status.as_u16() {
        200 if read.is_ok() => Answer::Admitted,
        429 => Answer::Refused,
        _ => Answer::Error,
    }
}
