//! When the machine gave this process no time: a thread that wants to be woken often notes when it was not.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::time::Instant;

const OFTEN: Duration = Duration::from_millis(20);
/// What the machine takes for others now and then goes unnoticed.
const LONG: Duration = Duration::from_millis(200);

pub struct Stalls {
    over: Arc<AtomicBool>,
    seen: JoinHandle<Vec<(Instant, Instant)>>,
}

impl Stalls {
    pub fn watch() -> Stalls {
        let over = Arc::<AtomicBool>::default();
        let ends = over.clone();
        let seen = std::thread::spawn(move || {
            let (mut seen, mut last) = (Vec::new(), Instant::now());
            while !ends.load(Ordering::Relaxed) {
                std::thread::sleep(OFTEN);
                let now = Instant::now();
                if now - last > LONG {
                    seen.push((last, now));
                }
                last = now;
            }
            seen
        });
        Stalls { over, seen }
    }

    /// From when to when.
    pub fn end(self) -> Vec<(Instant, Instant)> {
        self.over.store(true, Ordering::Relaxed);
        self.seen.join().unwrap_or_default()
    }
}
