//! The thread that writes. It takes a term's fence once, when the term is granted, and never asks again whether the term
//! lives: whoever was paused writes on when it wakes, and, unless it is polite, a few times more after it has heard that
//! the term is lost.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
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
const WATCH_EVERY: Duration = Duration::from_millis(20);

pub type Open = Box<dyn Fn() -> Result<Box<dyn Ledger>, String> + Send>;

/// How it writes.
pub struct Manner {
    pub fenced: bool,
    pub pace_ms: u64,
    pub polite: bool,
}

pub struct Writer {
    terms: Arc<Mutex<VecDeque<Arc<Led>>>>,
    stops: Arc<AtomicBool>,
    counts: Arc<AtomicBool>,
}

struct Led {
    term: Term,
    fence: Fence,
    lost: AtomicBool,
    /// When the term was last found to be good, on the machine's clock.
    good_us: AtomicU64,
}

impl Led {
    fn look(&self) {
        // Read first: it was good then or later.
        let now = BootClock.now();
        if self.term.check() {
            self.good_us.fetch_max(now.0, Ordering::Relaxed);
        }
    }
}

/// While it lives the term is ours, as far as we know.
pub struct Leading(Arc<Led>);

impl Drop for Leading {
    fn drop(&mut self) {
        self.0.lost.store(true, Ordering::Release);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub fn start(hive: Hive, node: String, manner: Manner, open: Open) -> Writer {
        let writer = Writer { terms: Arc::default(), stops: Arc::default(), counts: Arc::default() };
        let (terms, stops, counts) = (writer.terms.clone(), writer.stops.clone(), writer.counts.clone());
        let watched = watch();
        let runtime = tokio::runtime::Handle::current();
        std::thread::spawn(move || {
            let mut hand = Hand { hive, node, manner, open, ledger: None, runtime, stops };
            // Whoever takes over has it open: opening it is no part of that.
            hand.open_if_closed();
            let mut queen: Option<Leading> = None;
            let mut writing: Vec<Writing> = Vec::new();
            loop {
                hand.look_for_queen(&mut queen, &terms);
                for led in locked(&terms).drain(..) {
                    locked(&watched).push(Arc::downgrade(&led));
                    writing.push(Writing::new(led, if hand.manner.polite { 0 } else { RUDE }));
                }
                writing.retain_mut(|one| hand.write(one));
                if counts.swap(false, Ordering::AcqRel) {
                    writing.iter().for_each(Writing::say_count);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        });
        writer
    }

    /// Writes under it until it is dropped, and a little longer.
    pub fn while_led(&self, term: &Term) -> impl Future<Output = Result<(), Failure>> + use<> {
        let led = self.lead(term);
        async move {
            let _leading = led;
            std::future::pending().await
        }
    }

    /// The same, until the answer is dropped.
    pub fn lead(&self, term: &Term) -> Leading {
        lead(term, &self.terms)
    }

    /// It says how much it has written under the terms that it has.
    pub fn say_counts(&self) {
        self.counts.store(true, Ordering::Release);
    }

    /// The next write stops in its middle, and this process with it; or does so no more.
    pub fn stop_inside(&self, stop: bool) {
        self.stops.store(stop, Ordering::Release);
    }
}

fn lead(term: &Term, terms: &Mutex<VecDeque<Arc<Led>>>) -> Leading {
    let (term, fence) = (term.clone(), term.fence());
    let led = Arc::new(Led { term, fence, lost: AtomicBool::new(false), good_us: AtomicU64::new(0) });
    locked(terms).push_back(led.clone());
    Leading(led)
}

/// Looks at terms again and again, whatever the one who writes waits for.
fn watch() -> Arc<Mutex<Vec<Weak<Led>>>> {
    let watched: Arc<Mutex<Vec<Weak<Led>>>> = Arc::default();
    let looked_at = watched.clone();
    std::thread::spawn(move || {
        loop {
            locked(&looked_at).retain(|led| led.upgrade().inspect(|led| led.look()).is_some());
            std::thread::sleep(WATCH_EVERY);
        }
    });
    watched
}

struct Writing {
    led: Arc<Led>,
    next_at: Instant,
    said: bool,
    writes: u64,
    /// When the last one that was accepted was answered.
    accepted_us: u64,
    rude_left: u32,
    /// Since it was found to be lost, or refused.
    late: (u32, u32),
}

impl Writing {
    fn say_count(&self) {
        let fence = &self.led.fence;
        println!("counted {} {} {}", fence.lease(), fence.epoch().0, self.writes);
    }

    fn new(led: Arc<Led>, rude_left: u32) -> Writing {
        Writing { led, next_at: Instant::now(), said: false, writes: 0, accepted_us: 0, rude_left, late: (0, 0) }
    }

    fn say_tried(&self) {
        let (fence, good_us) = (&self.led.fence, self.led.good_us.load(Ordering::Relaxed));
        let (lease, epoch, (yes, no)) = (fence.lease(), fence.epoch().0, self.late);
        println!("tried {lease} {epoch} {yes} {no} {good_us} {}", self.accepted_us);
    }
}

struct Hand {
    hive: Hive,
    node: String,
    manner: Manner,
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
        let lost = one.led.lost.load(Ordering::Acquire);
        if lost && one.rude_left == 0 {
            one.say_tried();
            return false;
        }
        if Instant::now() < one.next_at {
            return true;
        }
        one.next_at = Instant::now() + Duration::from_millis(self.manner.pace_ms);
        let fence = one.led.fence.clone();
        let (lease, epoch) = (fence.lease().to_string(), fence.epoch().0);
        let entry = Entry { lease, epoch, node: self.node.clone(), at_us: BootClock.now().0 };
        let accepted = self.append(&entry, &fence);
        if accepted == Some(true) {
            one.writes += 1;
            one.accepted_us = BootClock.now().0;
            if !std::mem::replace(&mut one.said, true) {
                println!("wrote {} {} {}", entry.lease, entry.epoch, one.accepted_us);
            }
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
        true
    }

    fn open_if_closed(&mut self) {
        if self.ledger.is_none() {
            self.ledger = (self.open)().map_err(|error| eprintln!("bee: {error}")).ok();
        }
    }

    /// None: nobody knows.
    fn append(&mut self, entry: &Entry, fence: &Fence) -> Option<bool> {
        self.open_if_closed();
        let stops = entry.lease != honeyflow_hive::contract::QUEEN && self.stops.swap(false, Ordering::AcqRel);
        let mut inside = || {
            println!("holding {} {}", entry.lease, entry.epoch);
            let _ = kill_process(getpid(), Signal::STOP);
        };
        let inside: Option<Inside<'_>> = if stops { Some(&mut inside) } else { None };
        let accepted = self.ledger.as_mut()?.append(entry, self.manner.fenced.then_some(fence), inside);
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
