//! An answer that is asked for often and may be a moment old. However many ask, one question is under way at a time.

use std::{
    future::Future,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use honeyflow_runtime::Failure;
use tokio::sync::Mutex;

pub(crate) const FRESH_FOR: Duration = Duration::from_millis(900);
/// A store that does not answer within this is treated as away, so that those who wait in line are not held long.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) struct Cached<T> {
    kept: Mutex<Option<(Instant, Result<T, Failure>)>>,
    failed: AtomicBool,
}

impl<T: Clone> Cached<T> {
    pub fn new() -> Cached<T> {
        Cached { kept: Mutex::new(None), failed: AtomicBool::new(false) }
    }

    /// Whether the last answer was a failure, however old it is. What is being asked changes nothing before it is answered.
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
            .unwrap_or_else(|_| Err(Failure::retry("slow", format!("no answer within {} s", PATIENCE.as_secs()))));
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
    async fn what_was_answered_last_stands_while_it_is_asked_again() {
        let cached = Cached::<u32>::new();
        assert!(!cached.has_failed(), "nobody has asked yet");
        let away = || async { Err(Failure::retry("away", "not there")) };
        assert!(cached.get(away).await.is_err() && cached.has_failed());
        {
            let mut kept = cached.kept.lock().await;
            *kept = None;
        }
        let mut asking = Box::pin(cached.get(std::future::pending));
        assert!(asking.as_mut().now_or_never().is_none());
        assert!(cached.has_failed(), "nothing else is known before it is answered");
        drop(asking);
        assert_eq!(cached.get(|| async { Ok(7) }).await.ok(), Some(7));
        assert!(!cached.has_failed());
        let mut asking = Box::pin(cached.get(std::future::pending));
        assert!(asking.as_mut().now_or_never().is_some(), "fresh");
    }
}
