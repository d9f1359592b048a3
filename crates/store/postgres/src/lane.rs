//! Collects the waiting requests of a queue, so that one transaction or message serves all of them.

use tokio::sync::mpsc;

/// How often the collecting task yields so that other tasks can add their requests.
const TURNS_MAX: usize = 8;

/// Adds the requests in the queue to `taken`, up to `max`. Each shard has its own task, and these tasks wake together:
/// while further requests arrive, they are added too.
pub(crate) async fn gather<J>(queue: &mut mpsc::Receiver<J>, max: usize, taken: &mut Vec<J>) {
    for _ in 0..TURNS_MAX {
        tokio::task::yield_now().await;
        let before = taken.len();
        while taken.len() < max
            && let Ok(next) = queue.try_recv()
        {
            taken.push(next);
        }
        if taken.len() == before || taken.len() >= max {
            return;
        }
    }
}
