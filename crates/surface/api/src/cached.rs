//! An answer that is asked for often and may be a moment old. However many ask, one question is under way at a time.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use honeyflow_runtime::Failure;
use tokio::sync::Mutex;

pub(crate) const FRESH_FOR: Duration = Duration::from_millis(900);
/// A store that does not answer within this is treated as away, so that those who wait in line are not held long.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Cached<T>(Mutex<Option<(Instant, Result<T, Failure>)>>);

impl<T: Clone> Cached<T> {
    pub fn new() -> Cached<T> {
        Cached(Mutex::new(None))
    }

    pub async fn get<F>(&self, ask: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut kept = self.0.lock().await;
        if let Some((at, answer)) = &*kept
            && at.elapsed() < FRESH_FOR
        {
            return answer.clone();
        }
        let answer = tokio::time::timeout(PATIENCE, ask())
            .await
            .unwrap_or_else(|_| Err(Failure::retry("slow", format!("no answer within {} s", PATIENCE.as_secs()))));
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }
}
