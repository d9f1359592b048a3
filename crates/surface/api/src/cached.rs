//! Caches a reply that many callers need and that may be a moment old. Only one request is in flight at a time.

use std::{
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use honeyflow_runtime::Failure;
use tokio::sync::Mutex;

use crate::codes;

pub(crate) const FRESH_FOR: Duration = Duration::from_millis(900);
/// A store that does not answer within this time counts as unreachable, so that the waiting callers do not wait long.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Cached<T> {
    kept: Mutex<Option<(Instant, Result<T, Failure>)>>,
    failed: AtomicBool,
}

impl<T: Clone> Cached<T> {
    pub fn new() -> Cached<T> {
        Cached { kept: Mutex::new(None), failed: AtomicBool::new(false) }
    }

    /// Returns whether the last reply was a failure, independent of its age. A request in flight changes nothing before
    /// its reply.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    pub async fn get<F>(&self, ask: impl FnOnce() -> F) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let mut kept = self.kept.lock().await;
        if let Some((at, answer)) = &*kept
            && at.elapsed() < FRESH_FOR
        {
            return answer.clone();
        }
        let answer = tokio::time::timeout(PATIENCE, ask())
            .await
            .unwrap_or_else(|_| Err(Failure::retry(codes::SLOW, format!("no answer within {} s", PATIENCE.as_secs()))));
        self.failed.store(answer.is_err(), Ordering::Relaxed);
        *kept = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn the_last_reply_stays_while_a_new_request_is_in_flight() {
        let cached = Cached::<u32>::new();
        assert!(!cached.has_failed(), "there was no request yet");
        let away = || async { Err(Failure::retry("away", "not there")) };
        assert!(cached.get(away).await.is_err() && cached.has_failed());
        {
            let mut kept = cached.kept.lock().await;
            *kept = None;
        }
        let mut asking = Box::pin(cached.get(std::future::pending));
        assert!(asking.as_mut().now_or_never().is_none());
        assert!(cached.has_failed(), "the request in flight has no reply yet");
        drop(asking);
        assert_eq!(cached.get(|| async { Ok(7) }).await.ok(), Some(7));
        assert!(!cached.has_failed());
        let mut asking = Box::pin(cached.get(std::future::pending));
        assert!(asking.as_mut().now_or_never().is_some(), "fresh");
    }
}
