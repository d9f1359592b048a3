//! The thread that writes. It takes a term's fence once, when the term is granted, and never asks again whether the term
//! lives: whoever was paused writes on when it wakes, and a few times more after it has heard that the term is lost.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use honeyflow_hive::{Fence, Hive, Term, service::Role};
use honeyflow_runtime::{Clock, Failure, time::BootClock};
use rustix::process::{Signal, getpid, kill_process};

use crate::hive::ledger::{Entry, Inside, Ledger};

/// Writes under a term that is known to be lost.
const RUDE: u32 = 4;
const LOOK_EVERY: Duration = Duration::from_millis(4);

pub type Open = Box<dyn Fn() -> Result<Box<dyn Ledger>, String> + Send>;

pub struct Writer {
    terms: Arc<Mutex<VecDeque<Arc<Led>>>>,
    stops: Arc<AtomicBool>,
}

struct Led {
    fence: Fence,
    lost: AtomicBool,
}

/// While it lives the term is ours, as far as we know.
struct Leading(Arc<Led>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.lost.store(true, Ordering::Release);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub fn start(hive: Hive, node: String, fenced: bool, pace_ms: u64, open: Open) -> Writer {
        let writer = Writer { terms: Arc::default(), stops: Arc::default() };
        let (terms, stops) = (writer.terms.clone(), writer.stops.clone());
        let pace = Duration::from_millis(pace_ms);
        let runtime = tokio::runtime::Handle::current();
        std::thread::spawn(move || {
            let mut hand = Hand { hive, node, fenced, pace, open, ledger: None, runtime, stops };
            let mut queen: Option<Leading> = None;
            let mut writing: Vec<Writing> = Vec::new();
            loop {
                hand.look_for_queen(&mut queen, &terms);
                writing.extend(locked(&terms).drain(..).map(Writing::new));
                writing.retain_mut(|one| hand.write(one));
                std::thread::sleep(LOOK_EVERY);
            }
        });
        writer
    }

    /// Writes under it until it is dropped, and a little longer.
    pub fn while_led(&self, term: &Term) -> impl Future<Output = Result<(), Failure>> + use<> {
        let led = lead(term, &self.terms);
        async move {
            let _leading = led;
            std::future::pending().await
        }
    }

    /// The next write stops in its middle, and this process with it.
    pub fn stop_inside(&self) {
        self.stops.store(true, Ordering::Release);
    }
}

fn lead(term: &Term, terms: &Mutex<VecDeque<Arc<Led>>>) -> Leading {
    let led = Arc::new(Led { fence: term.fence(), lost: AtomicBool::new(false) });
    locked(terms).push_back(led.clone());
    Leading(led)
}

struct Writing {
    led: Arc<Led>,
    next_at: Instant,
    said: bool,
    rude_left: u32,
    /// Since it was found to be lost, or refused.
    late: (u32, u32),
}

impl Writing {
    fn new(led: Arc<Led>) -> Writing {
        Writing { led, next_at: Instant::now(), said: false, rude_left: RUDE, late: (0, 0) }
    }
}

struct Hand {
    hive: Hive,
    node: String,
    fenced: bool,
    pace: Duration,
    open: Open,
    ledger: Option<Box<dyn Ledger>>,
    runtime: tokio::runtime::Handle,
    stops: Arc<AtomicBool>,
}

impl Hand {
    /// Nobody hands the queen's term to us; we see it in our role.
    fn look_for_queen(&self, queen: &mut Option<Leading>, terms: &Mutex<VecDeque<Arc<Led>>>) {
        match self.hive.role() {
            Role::Queen(term) => {
                let known = queen.as_ref().is_some_and(|leading| leading.0.fence.epoch() == term.epoch());
                if !known {
                    *queen = Some(lead(&term, terms));
                }
            }
            _ => *queen = None,
        }
    }

    /// False: this term is over.
    fn write(&mut self, one: &mut Writing) -> bool {
        if Instant::now() < one.next_at {
            return true;
        }
        one.next_at = Instant::now() + self.pace;
        let fence = one.led.fence.clone();
        let lost = one.led.lost.load(Ordering::Acquire);
        let (lease, epoch) = (fence.lease().to_string(), fence.epoch().0);
        let entry = Entry { lease, epoch, node: self.node.clone(), at_us: BootClock.now().0 };
        let accepted = self.append(&entry, &fence);
        if accepted == Some(true) && !one.said {
            one.said = true;
            println!("wrote {} {} {}", entry.lease, entry.epoch, BootClock.now().0);
        }
        match accepted {
            Some(true) if lost => one.late.0 += 1,
            Some(false) => {
                one.late.1 += 1;
                if !lost {
                    let (hive, lease) = (self.hive.clone(), fence.lease().clone());
                    self.runtime.spawn(async move { hive.stale(lease, fence.epoch()).await });
                }
            }
            _ => {}
        }
        if lost && accepted.is_some() {
            one.rude_left -= 1;
        }
        if one.rude_left == 0 {
            println!("tried {} {} {} {}", entry.lease, entry.epoch, one.late.0, one.late.1);
        }
        one.rude_left > 0
    }

    /// None: nobody knows.
    fn append(&mut self, entry: &Entry, fence: &Fence) -> Option<bool> {
        if self.ledger.is_none() {
            self.ledger = (self.open)().map_err(|error| eprintln!("bee: {error}")).ok();
        }
        let stops = entry.lease != honeyflow_hive::contract::QUEEN && self.stops.swap(false, Ordering::AcqRel);
        let mut inside = || {
            println!("holding {} {}", entry.lease, entry.epoch);
            let _ = kill_process(getpid(), Signal::STOP);
        };
        let inside: Option<Inside<'_>> = if stops { Some(&mut inside) } else { None };
        let accepted = self.ledger.as_mut()?.append(entry, self.fenced.then_some(fence), inside);
        match accepted {
            Ok(accepted) => Some(accepted),
            Err(error) => {
                eprintln!("bee: {error}");
                self.ledger = None;
                None
            }
        }
    }
}
