//! Finds the times in which the machine did not run this process: a thread that sleeps for short times notes when it
//! woke late.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use tokio::time::Instant;

const CHECK_EVERY: Duration = Duration::from_millis(20);
/// Shorter delays are normal and are ignored.
const STALL_MIN: Duration = Duration::from_millis(200);

pub struct Stalls {
    stopped: Arc<AtomicBool>,
    stalls: JoinHandle<Vec<(Instant, Instant)>>,
}

impl Stalls {
    pub fn watch() -> Stalls {
        let stopped = Arc::<AtomicBool>::default();
        let stop = stopped.clone();
        let stalls = std::thread::spawn(move || {
            let (mut stalls, mut last) = (Vec::new(), Instant::now());
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(CHECK_EVERY);
                let now = Instant::now();
                if now - last > STALL_MIN {
                    stalls.push((last, now));
                }
                last = now;
            }
            stalls
        });
        Stalls { stopped, stalls }
    }

    /// Returns the start and end of each stall.
    pub fn end(self) -> Vec<(Instant, Instant)> {
        self.stopped.store(true, Ordering::Relaxed);
        self.stalls.join().unwrap_or_default()
    }
}
