//! What waits together goes together.

use tokio::sync::mpsc;

/// Turns that the others get to queue in.
const TURNS_MAX: usize = 8;

/// Adds what is in the queue to what was taken out of it. Shards are worked on by tasks of their own that wake together:
/// as long as more of them come, they are let in.
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
