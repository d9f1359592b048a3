//! The thread that writes to the log. It takes a term's fence once, when the term is granted, and never checks whether
//! the term still lives. So a node that was paused writes on when it wakes and, unless it is polite, a few times more
//! after it has learned that the term is lost.

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

use crate::hive::ledger::{BeforeCommit, Entry, Ledger};

/// How often an impolite node writes under a term that it knows to be lost.
const WRITES_AFTER_LOSS: u32 = 4;
const WRITE_LOOP_PAUSE: Duration = Duration::from_millis(4);
const WATCH_EVERY: Duration = Duration::from_millis(20);

pub type OpenLedger = Box<dyn Fn() -> Result<Box<dyn Ledger>, String> + Send>;

/// How a node writes.
pub struct WriteOptions {
    pub fenced: bool,
    pub pace_ms: u64,
    pub polite: bool,
}

pub struct Writer {
    terms: Arc<Mutex<VecDeque<Arc<LedTerm>>>>,
    stops: Arc<AtomicBool>,
    counts: Arc<AtomicBool>,
}

struct LedTerm {
    term: Term,
    fence: Fence,
    lost: AtomicBool,
    /// When the term was last checked and good, on the machine's clock.
    good_us: AtomicU64,
}

impl LedTerm {
    fn check(&self) {
        // The clock is read first: the term was good at that moment or later.
        let now = BootClock.now();
        if self.term.check() {
            self.good_us.fetch_max(now.0, Ordering::Relaxed);
        }
    }
}

/// While this value lives, the node believes that it holds the term.
pub struct LeadGuard(Arc<LedTerm>);

impl Drop for LeadGuard {
    fn drop(&mut self) {
        self.0.lost.store(true, Ordering::Release);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Writer {
    pub fn start(hive: Hive, node: String, options: WriteOptions, open: OpenLedger) -> Writer {
        let writer = Writer { terms: Arc::default(), stops: Arc::default(), counts: Arc::default() };
        let (terms, stops, counts) = (writer.terms.clone(), writer.stops.clone(), writer.counts.clone());
        let watched = watch();
        let runtime = tokio::runtime::Handle::current();
        std::thread::spawn(move || {
            let mut thread = WriterThread { hive, node, options, open, ledger: None, runtime, stops };
            // The log is open before the node takes over, so that opening it is no part of the take-over time.
            thread.open_if_closed();
            let mut queen: Option<LeadGuard> = None;
            let mut term_writers: Vec<TermWriter> = Vec::new();
            loop {
                thread.update_queen_term(&mut queen, &terms);
                for led in locked(&terms).drain(..) {
                    locked(&watched).push(Arc::downgrade(&led));
                    term_writers.push(TermWriter::new(led, if thread.options.polite { 0 } else { WRITES_AFTER_LOSS }));
                }
                term_writers.retain_mut(|term_writer| thread.write(term_writer));
                if counts.swap(false, Ordering::AcqRel) {
                    term_writers.iter().for_each(TermWriter::print_count);
                }
                std::thread::sleep(WRITE_LOOP_PAUSE);
            }
        });
        writer
    }

    /// Writes under the term until the future is dropped, and a little longer.
    pub fn while_led(&self, term: &Term) -> impl Future<Output = Result<(), Failure>> + use<> {
        let led = self.lead(term);
        async move {
            let _guard = led;
            std::future::pending().await
        }
    }

    /// Writes under the term until the returned guard is dropped, and a little longer.
    pub fn lead(&self, term: &Term) -> LeadGuard {
        lead(term, &self.terms)
    }

    /// The writer prints how often it has written under each of its terms.
    pub fn print_counts(&self) {
        self.counts.store(true, Ordering::Release);
    }

    /// True: the next write stops before its commit, and this process with it. False: cancels that.
    pub fn stop_before_commit(&self, stop: bool) {
        self.stops.store(stop, Ordering::Release);
    }
}

fn lead(term: &Term, terms: &Mutex<VecDeque<Arc<LedTerm>>>) -> LeadGuard {
    let (term, fence) = (term.clone(), term.fence());
    let led = Arc::new(LedTerm { term, fence, lost: AtomicBool::new(false), good_us: AtomicU64::new(0) });
    locked(terms).push_back(led.clone());
    LeadGuard(led)
}

/// Checks the terms regularly, also while the writing thread waits.
fn watch() -> Arc<Mutex<Vec<Weak<LedTerm>>>> {
    let watched: Arc<Mutex<Vec<Weak<LedTerm>>>> = Arc::default();
    let terms = watched.clone();
    std::thread::spawn(move || {
        loop {
            locked(&terms).retain(|led| led.upgrade().inspect(|led| led.check()).is_some());
            std::thread::sleep(WATCH_EVERY);
        }
    });
    watched
}

struct TermWriter {
    led: Arc<LedTerm>,
    next_at: Instant,
    first_write_printed: bool,
    writes: u64,
    /// When the store answered the last accepted write.
    accepted_us: u64,
    writes_after_loss_left: u32,
    /// Writes that were accepted after the term was lost, and all writes that were refused.
    late: (u32, u32),
}

impl TermWriter {
    fn print_count(&self) {
        let fence = &self.led.fence;
        println!("counted {} {} {}", fence.lease(), fence.epoch().0, self.writes);
    }

    fn new(led: Arc<LedTerm>, writes_after_loss_left: u32) -> TermWriter {
        TermWriter {
            led,
            next_at: Instant::now(),
            first_write_printed: false,
            writes: 0,
            accepted_us: 0,
            writes_after_loss_left,
            late: (0, 0),
        }
    }

    fn print_tried(&self) {
        let (fence, good_us) = (&self.led.fence, self.led.good_us.load(Ordering::Relaxed));
        let (lease, epoch, (yes, no)) = (fence.lease(), fence.epoch().0, self.late);
        println!("tried {lease} {epoch} {yes} {no} {good_us} {}", self.accepted_us);
    }
}

struct WriterThread {
    hive: Hive,
    node: String,
    options: WriteOptions,
    open: OpenLedger,
    ledger: Option<Box<dyn Ledger>>,
    runtime: tokio::runtime::Handle,
    stops: Arc<AtomicBool>,
}

impl WriterThread {
    /// The hive gives the queen's term to no callback; the writer reads it from the node's role.
    fn update_queen_term(&self, queen: &mut Option<LeadGuard>, terms: &Mutex<VecDeque<Arc<LedTerm>>>) {
        match self.hive.role() {
            Role::Queen(term) => {
                let is_known = queen.as_ref().is_some_and(|guard| guard.0.fence.epoch() == term.epoch());
                if !is_known {
                    *queen = Some(lead(&term, terms));
                }
            }
            _ => *queen = None,
        }
    }

    /// Writes once, if it is time. Returns false when the writer has finished with this term.
    fn write(&mut self, term_writer: &mut TermWriter) -> bool {
        let lost = term_writer.led.lost.load(Ordering::Acquire);
        if lost && term_writer.writes_after_loss_left == 0 {
            term_writer.print_tried();
            return false;
        }
        if Instant::now() < term_writer.next_at {
            return true;
        }
        term_writer.next_at = Instant::now() + Duration::from_millis(self.options.pace_ms);
        let fence = term_writer.led.fence.clone();
        let (lease, epoch) = (fence.lease().to_string(), fence.epoch().0);
        let entry = Entry { lease, epoch, node: self.node.clone(), at_us: BootClock.now().0 };
        let accepted = self.append(&entry, &fence);
        if accepted == Some(true) {
            term_writer.writes += 1;
            term_writer.accepted_us = BootClock.now().0;
            if !std::mem::replace(&mut term_writer.first_write_printed, true) {
                println!("wrote {} {} {}", entry.lease, entry.epoch, term_writer.accepted_us);
            }
        }
        match accepted {
            Some(true) if lost => term_writer.late.0 += 1,
            Some(false) => {
                term_writer.late.1 += 1;
                if !lost {
                    let (hive, lease) = (self.hive.clone(), fence.lease().clone());
                    self.runtime.spawn(async move { hive.stale(lease, fence.epoch()).await });
                }
            }
            _ => {}
        }
        if lost && accepted.is_some() {
            term_writer.writes_after_loss_left -= 1;
        }
        true
    }

    fn open_if_closed(&mut self) {
        if self.ledger.is_none() {
            self.ledger = (self.open)().map_err(|error| eprintln!("bee: {error}")).ok();
        }
    }

    /// Returns None if it is unknown whether the store accepted the write.
    fn append(&mut self, entry: &Entry, fence: &Fence) -> Option<bool> {
        self.open_if_closed();
        let stops = entry.lease != honeyflow_hive::contract::QUEEN && self.stops.swap(false, Ordering::AcqRel);
        let mut stop = || {
            println!("holding {} {}", entry.lease, entry.epoch);
            let _ = kill_process(getpid(), Signal::STOP);
        };
        let before_commit: Option<BeforeCommit<'_>> = if stops { Some(&mut stop) } else { None };
        let accepted = self.ledger.as_mut()?.append(entry, self.options.fenced.then_some(fence), before_commit);
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
